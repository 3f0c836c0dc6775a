//! Pinned host memory, and memory that the program registers.

use hetckpt_ring::command::{Command, DeviceIndex};

use crate::guard::Current;
use crate::host_areas;
use crate::memory_map::RangeKind;
use crate::pointers::Out;
use crate::registered_memory;
use crate::result::{CuResult, Outcome};

entry_points! {
    context cuMemHostAlloc "cuMemHostAlloc" 2020 (addr: Out<u64>, size: u64, flags: u32) => alloc;
    context cuMemAllocHost_v2 "cuMemAllocHost" 3020 (addr: Out<u64>, size: u64) => alloc_plain;
    context cuMemFreeHost "cuMemFreeHost" 2000 (addr: u64) => free;
    context cuMemHostGetDevicePointer_v2 "cuMemHostGetDevicePointer" 3020
        (device_addr: Out<u64>, addr: u64, flags: u32) => device_pointer;
    context cuMemHostGetFlags "cuMemHostGetFlags" 2030 (flags: Out<u32>, addr: u64) => self::flags;
    context cuMemHostRegister_v2 "cuMemHostRegister" 6050 (addr: u64, size: u64, flags: u32) => register;
    context cuMemHostUnregister "cuMemHostUnregister" 4000 (addr: u64) => unregister;
}

const FLAG_PORTABLE: u32 = 1;
const FLAG_DEVICE_MAP: u32 = 2;

fn alloc_plain(current: Current, addr: Out<u64>, size: u64) -> Outcome {
    alloc(current, addr, size, 0)
}

fn alloc(current: Current, addr: Out<u64>, size: u64, flags: u32) -> Outcome {
    if size == 0 || addr.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    let got = host_areas::take(&current.session.device, &mut current.session.pinned(), size)?;
    // With unified addresses all pinned memory is mapped and portable.
    current.session.device.memory().insert(
        got,
        size,
        RangeKind::Pinned {
            flags: flags | FLAG_DEVICE_MAP | (flags & FLAG_PORTABLE),
        },
    );
    addr.set(got)
}

/// Freeing waits for what is queued: a copy may still be under way.
fn free(current: Current, addr: u64) -> Outcome {
    let session = current.session;
    if addr == 0 {
        return Ok(());
    }
    let found = session.device.memory().starting_at(addr);
    let range = found
        .filter(|range| matches!(range.kind, RangeKind::Pinned { .. }))
        .ok_or(CuResult::INVALID_VALUE)?;
    session.call(Command::Synchronize {
        device: DeviceIndex::FIRST,
    })?;
    session.device.memory().remove(addr);
    host_areas::give_back(&session.device, &mut session.pinned(), addr, range.size_bytes)
}

fn device_pointer(current: Current, device_addr: Out<u64>, addr: u64, flags: u32) -> Outcome {
    if flags != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    let found = current
        .session
        .device
        .memory()
        .find(addr)
        .ok_or(CuResult::INVALID_VALUE)?;
    match found.kind {
        RangeKind::Pinned { .. } | RangeKind::Managed => device_addr.set(addr),
        RangeKind::Registered { .. } => {
            let start = registered_memory::device_address(current.session, found.addr)?;
            device_addr.set(start + (addr - found.addr))
        }
        _ => Err(CuResult::INVALID_VALUE),
    }
}

fn flags(current: Current, flags: Out<u32>, addr: u64) -> Outcome {
    let found = current
        .session
        .device
        .memory()
        .find(addr)
        .ok_or(CuResult::INVALID_VALUE)?;
    match found.kind {
        RangeKind::Pinned { flags: given } | RangeKind::Registered { flags: given, .. } => flags.set(given),
        _ => Err(CuResult::INVALID_VALUE),
    }
}

fn register(current: Current, addr: u64, size: u64, flags: u32) -> Outcome {
    if addr == 0 || size == 0 || addr.checked_add(size).is_none() {
        return Err(CuResult::INVALID_VALUE);
    }
    let mut memory = current.session.device.memory();
    if memory.overlaps(addr, size) {
        return Err(CuResult::HOST_MEMORY_ALREADY_REGISTERED);
    }
    let on_device = None;
    memory.insert(addr, size, RangeKind::Registered { flags, on_device });
    Ok(())
}

fn unregister(current: Current, addr: u64) -> Outcome {
    let session = current.session;
    let range = session.device.memory().starting_at(addr);
    let range = range.ok_or(CuResult::HOST_MEMORY_NOT_REGISTERED)?;
    let RangeKind::Registered { on_device, .. } = range.kind else {
        return Err(CuResult::HOST_MEMORY_NOT_REGISTERED);
    };
    if let Some(on_device) = on_device {
        registered_memory::release(session, &range, on_device)?;
    }
    session.device.memory().remove(addr);
    Ok(())
}

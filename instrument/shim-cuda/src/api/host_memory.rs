//! Pinned host memory. Memory the program registers stays ordinary memory: copies work, kernels cannot reach it.

use hetckpt_ring::command::{Command, DeviceIndex};
use hetckpt_ring::pinned_table::PinnedArea;

use crate::guard::Current;
use crate::memory_map::RangeKind;
use crate::pinned_pool::PinnedPool;
use crate::pointers::Out;
use crate::result::{CuResult, Outcome};
use crate::session::Session;

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
    let got = take(current.session, &mut current.session.pinned(), size)?;
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

/// Takes memory from a pool, which its owner holds throughout, so that two threads do not both make an area that one
/// would do for.
pub(super) fn take(session: &Session, pool: &mut PinnedPool, size: u64) -> Outcome<u64> {
    if !PinnedPool::needs_own_area(size)
        && let Some(got) = pool.take(size)
    {
        return Ok(got);
    }
    let area = pool.add_area(size)?;
    if let Err(error) = announce(session, area) {
        pool.drop_area(area.addr);
        return Err(error);
    }
    if PinnedPool::needs_own_area(size) {
        Ok(area.addr)
    } else {
        pool.take(size).ok_or(CuResult::OUT_OF_MEMORY)
    }
}

/// Gives memory back to its pool, once nothing that is queued uses it.
pub(super) fn give_back(session: &Session, pool: &mut PinnedPool, addr: u64, size: u64) -> Outcome {
    if let Some(area) = pool.release(addr, size).empty_area {
        session.call(Command::UnregisterHost { addr: area })?;
        let _ = session.device.producer().pinned_table().remove(area);
        pool.drop_area(area);
    }
    Ok(())
}

fn announce(session: &Session, area: PinnedArea) -> Outcome {
    let table = session.device.producer().pinned_table();
    table.insert(area).map_err(|_| CuResult::OUT_OF_MEMORY)?;
    let PinnedArea { addr, size_bytes, fd } = area;
    let result = session.call(Command::RegisterHost { addr, size_bytes, fd });
    if result.is_err() {
        let _ = table.remove(addr);
    }
    result.map(|_| ())
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
    give_back(session, &mut session.pinned(), addr, range.size_bytes)
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
        RangeKind::Registered { .. } => Err(CuResult::NOT_SUPPORTED),
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
        RangeKind::Pinned { flags: given } | RangeKind::Registered { flags: given } => flags.set(given),
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
    memory.insert(addr, size, RangeKind::Registered { flags });
    Ok(())
}

fn unregister(current: Current, addr: u64) -> Outcome {
    let mut memory = current.session.device.memory();
    let found = memory
        .starting_at(addr)
        .filter(|range| matches!(range.kind, RangeKind::Registered { .. }));
    found.ok_or(CuResult::HOST_MEMORY_NOT_REGISTERED)?;
    memory.remove(addr);
    Ok(())
}

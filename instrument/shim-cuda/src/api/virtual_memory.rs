//! Virtual memory management.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hetckpt_ring::command::{Command, DeviceIndex, PLACED_GRANULARITY};
use hetckpt_ring::reply::Reply;

use crate::guard::Current;
use crate::handles::Handle;
use crate::memory_map::RangeKind;
use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};
use crate::session::Session;
use crate::virtual_memory::Physical;

entry_points! {
    context cuMemAddressReserve "cuMemAddressReserve" 10020
        (addr: Out<u64>, size: u64, alignment: u64, wanted: u64, flags: u64) => reserve;
    context cuMemAddressFree "cuMemAddressFree" 10020 (addr: u64, size: u64) => unreserve;
    context cuMemCreate "cuMemCreate" 10020
        (memory: Out<Handle>, size: u64, properties: In<Properties>, flags: u64) => create;
    context cuMemRelease "cuMemRelease" 10020 (memory: Handle) => release;
    context cuMemMap "cuMemMap" 10020
        (addr: u64, size: u64, offset: u64, memory: Handle, flags: u64) => map;
    context cuMemUnmap "cuMemUnmap" 10020 (addr: u64, size: u64) => unmap;
    context cuMemSetAccess "cuMemSetAccess" 10020
        (addr: u64, size: u64, access: In<Access>, count: u64) => set_access;
    context cuMemGetAccess "cuMemGetAccess" 10020 (flags: Out<u64>, location: In<[u32; 2]>, addr: u64) => get_access;
    device cuMemGetAllocationGranularity "cuMemGetAllocationGranularity" 10020
        (granularity: Out<u64>, properties: In<Properties>, option: u32) => get_granularity;
    context cuMemGetAllocationPropertiesFromHandle "cuMemGetAllocationPropertiesFromHandle" 10020
        (properties: Out<Properties>, memory: Handle) => get_properties;
    context cuMemRetainAllocationHandle "cuMemRetainAllocationHandle" 11000 (memory: Out<Handle>, addr: u64) => retain;
}

/// `CUmemAllocationProp`: kind and kinds of shareable handles, kind and number of the location, and more.
type Properties = [u64; 4];

/// `CUmemAccessDesc`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Access {
    location: [u32; 2],
    flags: u32,
}

const _: () = assert!(size_of::<Access>() == 12);

/// `CU_MEM_LOCATION_TYPE_DEVICE`, the first.
const FIRST_DEVICE: [u32; 2] = [1, 0];
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_AND_WRITE: u32 = 3;

/// That it is pinned memory of the device; the kinds of handles by which it could be shared do not matter until it is.
fn check(properties: Properties) -> Outcome {
    const PINNED: u32 = 1;
    let low = |word: u64| (word & u64::from(u32::MAX)) as u32;
    let location = [low(properties[1]), low(properties[1] >> 32)];
    match (low(properties[0]), location) {
        (PINNED, FIRST_DEVICE) => Ok(()),
        (PINNED, [1, _]) => Err(CuResult::INVALID_DEVICE),
        (PINNED, _) => Err(CuResult::NOT_SUPPORTED),
        _ => Err(CuResult::INVALID_VALUE),
    }
}

fn reserve(current: Current, addr: Out<u64>, size: u64, alignment: u64, wanted: u64, flags: u64) -> Outcome {
    if addr.is_null() || flags != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    addr.set(current.session.virtual_memory.lock().reserve(size, alignment, wanted)?)
}

fn unreserve(current: Current, addr: u64, size: u64) -> Outcome {
    current.session.virtual_memory.lock().unreserve(addr, size)
}

fn create(current: Current, memory: Out<Handle>, size: u64, properties: In<Properties>, flags: u64) -> Outcome {
    let properties = properties.get()?;
    check(properties)?;
    if memory.is_null() || flags != 0 || size == 0 || !size.is_multiple_of(PLACED_GRANULARITY) {
        return Err(CuResult::INVALID_VALUE);
    }
    let session = current.session;
    let device = DeviceIndex::FIRST;
    let Reply::Memory { free_bytes, .. } = session.call(Command::MemoryInfo { device })? else {
        return Err(CuResult::UNKNOWN);
    };
    if size > free_bytes {
        return Err(CuResult::OUT_OF_MEMORY);
    }
    let made = Physical {
        size_bytes: size,
        properties,
        references: AtomicU64::new(1),
    };
    memory.set(session.physical_memory.insert(Arc::new(made)))
}

fn find(session: &Session, memory: Handle) -> Outcome<Arc<Physical>> {
    session.physical_memory.get(memory).ok_or(CuResult::INVALID_VALUE)
}

/// What is mapped stays.
fn release(current: Current, memory: Handle) -> Outcome {
    let session = current.session;
    if find(session, memory)?.references.fetch_sub(1, Ordering::AcqRel) == 1 {
        session.physical_memory.remove(memory);
        session.virtual_memory.lock().forget_released();
    }
    Ok(())
}

fn map(current: Current, addr: u64, size: u64, offset: u64, memory: Handle, flags: u64) -> Outcome {
    let session = current.session;
    let memory = find(session, memory)?;
    if flags != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    if offset != 0 {
        return Err(CuResult::NOT_SUPPORTED);
    }
    let mut virtual_memory = session.virtual_memory.lock();
    virtual_memory.check_map(addr, size, &memory)?;
    session.call(Command::MallocAt {
        addr,
        size_bytes: size,
        device: DeviceIndex::FIRST,
    })?;
    session.device.memory().insert(addr, size, RangeKind::Mapped);
    virtual_memory.map(addr, memory);
    Ok(())
}

/// Waits for what is queued.
fn unmap(current: Current, addr: u64, size: u64) -> Outcome {
    let session = current.session;
    let mut virtual_memory = session.virtual_memory.lock();
    for start in virtual_memory.mappings_in(addr, size)? {
        session.device.memory().remove(start);
        session.call(Command::Free { addr: start })?;
        virtual_memory.unmap(start);
    }
    Ok(())
}

/// Who may read may write, too.
fn set_access(current: Current, addr: u64, size: u64, access: In<Access>, count: u64) -> Outcome {
    let mut virtual_memory = current.session.virtual_memory.lock();
    let mappings = virtual_memory.mappings_in(addr, size)?;
    for access in access.list(count)? {
        if access.location != FIRST_DEVICE {
            return Err(CuResult::INVALID_DEVICE);
        }
        for &mapping in &mappings {
            virtual_memory.set_access(mapping, access.flags != 0);
        }
    }
    Ok(())
}

fn get_access(current: Current, flags: Out<u64>, location: In<[u32; 2]>, addr: u64) -> Outcome {
    if location.get()? != FIRST_DEVICE {
        return Err(CuResult::INVALID_DEVICE);
    }
    let is_accessible = current.session.virtual_memory.lock().is_accessible(addr)?;
    flags.set(if is_accessible { READ_AND_WRITE.into() } else { 0 })
}

fn get_granularity(_: &Session, granularity: Out<u64>, properties: In<Properties>, _option: u32) -> Outcome {
    check(properties.get()?)?;
    granularity.set(PLACED_GRANULARITY)
}

fn get_properties(current: Current, properties: Out<Properties>, memory: Handle) -> Outcome {
    properties.set(find(current.session, memory)?.properties)
}

/// The handle is released as often as it was created and retained.
fn retain(current: Current, memory: Out<Handle>, addr: u64) -> Outcome {
    if memory.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    let found = current.session.virtual_memory.lock().memory(addr)?;
    let session = current.session;
    found.references.fetch_add(1, Ordering::AcqRel);
    let known = session.physical_memory.find(&found);
    memory.set(known.unwrap_or_else(|| session.physical_memory.insert(found)))
}

//! Questions about pointers.

use crate::guard::Current;
use crate::memory_map::{Range, RangeKind};
use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};
use crate::session::Session;

entry_points! {
    working cuPointerGetAttribute "cuPointerGetAttribute" 4000
        (value: Out<u8>, attribute: u32, addr: u64) => get_one;
    working cuPointerGetAttributes "cuPointerGetAttributes" 7000
        (count: u32, attributes: In<u32>, values: In<Out<u8>>, addr: u64) => get_many;
    context cuPointerSetAttribute "cuPointerSetAttribute" 6000
        (value: In<u8>, attribute: u32, addr: u64) => set;
}

/// Numbers of `CUpointer_attribute`.
mod attribute {
    pub const CONTEXT: u32 = 1;
    pub const MEMORY_TYPE: u32 = 2;
    pub const DEVICE_POINTER: u32 = 3;
    pub const HOST_POINTER: u32 = 4;
    pub const SYNC_MEMOPS: u32 = 6;
    pub const BUFFER_ID: u32 = 7;
    pub const IS_MANAGED: u32 = 8;
    pub const DEVICE_ORDINAL: u32 = 9;
    pub const RANGE_START: u32 = 11;
    pub const RANGE_SIZE: u32 = 12;
    pub const MAPPED: u32 = 13;
    pub const LEGACY_IPC: u32 = 10;
    pub const HANDLE_TYPES: u32 = 14;
    pub const GPU_DIRECT_RDMA: u32 = 15;
    pub const ACCESS_FLAGS: u32 = 16;
    pub const MEMPOOL_HANDLE: u32 = 17;
}

/// `CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE`.
const READ_WRITE: u32 = 3;
const TYPE_HOST: u32 = 1;
const TYPE_DEVICE: u32 = 2;
/// Device ordinal of memory that no device knows.
const NO_DEVICE: i32 = -2;

/// One question, about memory that CUDA knows.
fn get_one(session: &Session, value: Out<u8>, attribute: u32, addr: u64) -> Outcome {
    let range = session.device.memory().find(addr).ok_or(CuResult::INVALID_VALUE)?;
    answer(session, value, attribute, addr, Some(range))
}

/// Several questions; unknown memory is not an error, its answers are 0.
fn get_many(session: &Session, count: u32, attributes: In<u32>, values: In<Out<u8>>, addr: u64) -> Outcome {
    let range = session.device.memory().find(addr);
    for index in 0..count as usize {
        answer(session, values.nth(index)?, attributes.nth(index)?, addr, range)?;
    }
    Ok(())
}

fn answer(session: &Session, value: Out<u8>, attribute: u32, addr: u64, range: Option<Range>) -> Outcome {
    let is_managed = range.is_some_and(|range| range.kind == RangeKind::Managed);
    let is_device = range.is_some_and(|range| range.is_device());
    let on_device = range.and_then(|range| match range.kind {
        RangeKind::Registered { on_device, .. } => on_device.map(|start| start + (addr - range.addr)),
        _ => Some(addr),
    });
    let word = value.cast::<u32>();
    let long = value.cast::<u64>();
    match attribute {
        attribute::CONTEXT => long.set(if range.is_some() { session.primary.0 } else { 0 }),
        attribute::MEMORY_TYPE => word.set(match range {
            None => 0,
            Some(_) if is_device || is_managed => TYPE_DEVICE,
            Some(_) => TYPE_HOST,
        }),
        attribute::DEVICE_POINTER => long.set(on_device.unwrap_or(0)),
        attribute::HOST_POINTER => long.set(if is_device { 0 } else { addr }),
        attribute::SYNC_MEMOPS => word.set(0),
        attribute::BUFFER_ID => long.set(range.map_or(0, |range| range.id)),
        // One byte (`bool`) in the driver's interface, but the runtime passes an `int`.
        attribute::IS_MANAGED => word.set(u32::from(is_managed)),
        attribute::DEVICE_ORDINAL => value.cast::<i32>().set(if range.is_some() { 0 } else { NO_DEVICE }),
        attribute::RANGE_START => long.set(range.map_or(0, |range| range.addr)),
        attribute::RANGE_SIZE => long.set(range.map_or(0, |range| range.size_bytes)),
        // Nothing is shared with other processes or devices.
        attribute::LEGACY_IPC | attribute::GPU_DIRECT_RDMA => value.set(0),
        attribute::HANDLE_TYPES => long.set(0),
        attribute::ACCESS_FLAGS => word.set(if on_device.is_some() || is_device {
            READ_WRITE
        } else {
            0
        }),
        attribute::MAPPED => value.set(u8::from(on_device.is_some())),
        attribute::MEMPOOL_HANDLE => {
            let pool = range.and_then(|range| session.pools.lock().of(range.addr));
            long.set(pool.map_or(0, |pool| pool.0))
        }
        _ => Err(CuResult::NOT_SUPPORTED),
    }
}

fn set(current: Current, _value: In<u8>, attribute: u32, addr: u64) -> Outcome {
    let found = current
        .session
        .device
        .memory()
        .find(addr)
        .filter(|range| range.kind == RangeKind::Allocation);
    found.ok_or(CuResult::INVALID_VALUE)?;
    // Synchronous copies are synchronous here anyway.
    if attribute == attribute::SYNC_MEMOPS {
        Ok(())
    } else {
        Err(CuResult::INVALID_VALUE)
    }
}

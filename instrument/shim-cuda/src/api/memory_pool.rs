//! Memory pools: there is one, the device's default pool, and it is the device's memory itself.

use crate::guard::Current;
use crate::handles::Handle;
use crate::pointers::Out;
use crate::result::{CuResult, Outcome};
use crate::session::Session;

use super::device::check;
use super::memory::alloc_async;

entry_points! {
    device cuDeviceGetDefaultMemPool "cuDeviceGetDefaultMemPool" 11020 (pool: Out<Handle>, device: i32) => get;
    device cuDeviceGetMemPool "cuDeviceGetMemPool" 11020 (pool: Out<Handle>, device: i32) => get;
    device cuDeviceSetMemPool "cuDeviceSetMemPool" 11020 (device: i32, pool: Handle) => set;
    device cuMemPoolTrimTo "cuMemPoolTrimTo" 11020 (pool: Handle, bytes: u64) => trim;
    device cuMemPoolGetAttribute "cuMemPoolGetAttribute" 11020
        (pool: Handle, attribute: u32, value: Out<u64>) => get_attribute;
    device cuMemPoolSetAttribute "cuMemPoolSetAttribute" 11020
        (pool: Handle, attribute: u32, value: Out<u64>) => set_attribute;
    context cuMemAllocFromPoolAsync "cuMemAllocFromPoolAsync" 11020
        (addr: Out<u64>, size: u64, pool: Handle, stream: Handle) => alloc, cuMemAllocFromPoolAsync_ptsz 11020;
}

const POOL: Handle = Handle(0x6900_0000_0010);

fn check_pool(pool: Handle) -> Outcome {
    if pool == POOL {
        Ok(())
    } else {
        Err(CuResult::INVALID_VALUE)
    }
}

fn get(_: &Session, pool: Out<Handle>, device: i32) -> Outcome {
    check(device)?;
    pool.set(POOL)
}

fn set(_: &Session, device: i32, pool: Handle) -> Outcome {
    check(device)?;
    check_pool(pool)
}

fn trim(_: &Session, pool: Handle, _bytes: u64) -> Outcome {
    check_pool(pool)
}

/// Reuse flags 1 to 3 (`int`) are on; all else (`cuuint64_t`: threshold and statistics) is 0.
fn get_attribute(_: &Session, pool: Handle, attribute: u32, value: Out<u64>) -> Outcome {
    check_pool(pool)?;
    match attribute {
        1..=3 => value.cast::<i32>().set(1),
        4..=8 => value.set(0),
        _ => Err(CuResult::INVALID_VALUE),
    }
}

/// Hints for keeping freed memory, which is given back at once here.
fn set_attribute(_: &Session, pool: Handle, attribute: u32, _value: Out<u64>) -> Outcome {
    check_pool(pool)?;
    if (1..=8).contains(&attribute) {
        Ok(())
    } else {
        Err(CuResult::INVALID_VALUE)
    }
}

fn alloc(current: Current, addr: Out<u64>, size: u64, pool: Handle, stream: Handle) -> Outcome {
    check_pool(pool)?;
    alloc_async(current, addr, size, stream)
}

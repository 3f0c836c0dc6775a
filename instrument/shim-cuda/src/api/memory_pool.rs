//! Memory pools.

use crate::guard::Current;
use crate::handles::Handle;
use crate::pointers::{In, Out};
use crate::pools;
use crate::result::{CuResult, Outcome};
use crate::session::Session;

use super::device::check;
use super::memory::alloc_from;

entry_points! {
    device cuDeviceGetDefaultMemPool "cuDeviceGetDefaultMemPool" 11020 (pool: Out<Handle>, device: i32) => get_default;
    device cuDeviceGetMemPool "cuDeviceGetMemPool" 11020 (pool: Out<Handle>, device: i32) => get;
    device cuDeviceSetMemPool "cuDeviceSetMemPool" 11020 (device: i32, pool: Handle) => set;
    device cuMemGetDefaultMemPool "cuMemGetDefaultMemPool" 13000
        (pool: Out<Handle>, location: In<[u32; 2]>, kind: u32) => get_default_at;
    device cuMemGetMemPool "cuMemGetMemPool" 13000 (pool: Out<Handle>, location: In<[u32; 2]>, kind: u32) => get_at;
    device cuMemSetMemPool "cuMemSetMemPool" 13000 (location: In<[u32; 2]>, kind: u32, pool: Handle) => set_at;
    device cuMemPoolCreate "cuMemPoolCreate" 11020 (pool: Out<Handle>, properties: In<[u32; 4]>) => create;
    device cuMemPoolDestroy "cuMemPoolDestroy" 11020 (pool: Handle) => destroy;
    device cuMemPoolTrimTo "cuMemPoolTrimTo" 11020 (pool: Handle, bytes: u64) => trim;
    device cuMemPoolGetAttribute "cuMemPoolGetAttribute" 11020
        (pool: Handle, attribute: u32, value: Out<u64>) => get_attribute;
    device cuMemPoolSetAttribute "cuMemPoolSetAttribute" 11020
        (pool: Handle, attribute: u32, value: Out<u64>) => set_attribute;
    device cuMemPoolSetAccess "cuMemPoolSetAccess" 11020
        (pool: Handle, access: In<[u32; 3]>, count: u64) => set_access;
    device cuMemPoolGetAccess "cuMemPoolGetAccess" 11020
        (flags: Out<u32>, pool: Handle, location: In<[u32; 2]>) => get_access;
    context cuMemAllocFromPoolAsync "cuMemAllocFromPoolAsync" 11020
        (addr: Out<u64>, size: u64, pool: Handle, stream: Handle) => alloc, cuMemAllocFromPoolAsync_ptsz 11020;
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`, the first.
const FIRST_DEVICE: [u32; 2] = [1, 0];
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_AND_WRITE: u32 = 3;

/// That it is a kind of memory that pools have here.
fn check_place(location: [u32; 2], kind: u32) -> Outcome {
    match (location, kind) {
        (FIRST_DEVICE, PINNED) => Ok(()),
        ([1, _], PINNED) => Err(CuResult::INVALID_DEVICE),
        _ => Err(CuResult::NOT_SUPPORTED),
    }
}

fn get_default(_: &Session, pool: Out<Handle>, device: i32) -> Outcome {
    check(device)?;
    pool.set(pools::DEFAULT)
}

fn get_default_at(session: &Session, pool: Out<Handle>, location: In<[u32; 2]>, kind: u32) -> Outcome {
    check_place(location.get()?, kind)?;
    get_default(session, pool, 0)
}

fn get(session: &Session, pool: Out<Handle>, device: i32) -> Outcome {
    check(device)?;
    pool.set(session.pools.lock().current())
}

fn get_at(session: &Session, pool: Out<Handle>, location: In<[u32; 2]>, kind: u32) -> Outcome {
    check_place(location.get()?, kind)?;
    get(session, pool, 0)
}

fn set(session: &Session, device: i32, pool: Handle) -> Outcome {
    check(device)?;
    session.pools.lock().set_current(pool)
}

fn set_at(session: &Session, location: In<[u32; 2]>, kind: u32, pool: Handle) -> Outcome {
    check_place(location.get()?, kind)?;
    set(session, 0, pool)
}

/// `CUmemPoolProps` begins with the kind of allocation, that of shareable handles, and the location.
fn create(session: &Session, pool: Out<Handle>, properties: In<[u32; 4]>) -> Outcome {
    let [kind, shareable, place, number] = properties.get()?;
    check_place([place, number], kind)?;
    if shareable != 0 {
        return Err(CuResult::NOT_SUPPORTED);
    }
    if pool.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    pool.set(session.pools.lock().create())
}

fn destroy(session: &Session, pool: Handle) -> Outcome {
    session.pools.lock().destroy(pool)
}

/// There is nothing that a pool keeps.
fn trim(session: &Session, pool: Handle, _bytes: u64) -> Outcome {
    session.pools.lock().check(pool)
}

fn get_attribute(session: &Session, pool: Handle, attribute: u32, value: Out<u64>) -> Outcome {
    match session.pools.lock().attribute(pool, attribute)? {
        (number, true) => value.cast::<i32>().set(i32::from(number != 0)),
        (number, false) => value.set(number),
    }
}

fn set_attribute(session: &Session, pool: Handle, attribute: u32, value: Out<u64>) -> Outcome {
    let read = |is_int| {
        if is_int {
            Ok(value.cast::<u32>().get()?.into())
        } else {
            value.get()
        }
    };
    session.pools.lock().set_attribute(pool, attribute, read)
}

/// The device itself can always reach its pools.
fn set_access(session: &Session, pool: Handle, access: In<[u32; 3]>, count: u64) -> Outcome {
    session.pools.lock().check(pool)?;
    for [place, number, flags] in access.list(count)? {
        if [place, number] != FIRST_DEVICE || flags != READ_AND_WRITE {
            return Err(CuResult::INVALID_DEVICE);
        }
    }
    Ok(())
}

fn get_access(session: &Session, flags: Out<u32>, pool: Handle, location: In<[u32; 2]>) -> Outcome {
    session.pools.lock().check(pool)?;
    if location.get()? != FIRST_DEVICE {
        return Err(CuResult::INVALID_DEVICE);
    }
    flags.set(READ_AND_WRITE)
}

fn alloc(current: Current, addr: Out<u64>, size: u64, pool: Handle, stream: Handle) -> Outcome {
    current.session.pools.lock().check(pool)?;
    alloc_from(&current, pool, addr, size, stream)
}

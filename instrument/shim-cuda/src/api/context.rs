//! Contexts. There is one device memory; a context is a handle with settings, and what the thread's calls need to have.

use std::sync::Arc;

use parking_lot::Mutex;

use hetckpt_ring::command::{Command, DeviceIndex};

use super::device::check;
use crate::guard::Current;
use crate::handles::Handle;
use crate::objects::Context;
use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};
use crate::session::Session;
use crate::thread_state;

entry_points! {
    device cuDevicePrimaryCtxRetain "cuDevicePrimaryCtxRetain" 7000 (context: Out<Handle>, device: i32) => retain_primary;
    device cuDevicePrimaryCtxRelease "cuDevicePrimaryCtxRelease" 7000 (device: i32) => release_primary;
    device cuDevicePrimaryCtxRelease_v2 "cuDevicePrimaryCtxRelease" 11000 (device: i32) => release_primary;
    device cuDevicePrimaryCtxReset "cuDevicePrimaryCtxReset" 7000 (device: i32) => reset_primary;
    device cuDevicePrimaryCtxReset_v2 "cuDevicePrimaryCtxReset" 11000 (device: i32) => reset_primary;
    device cuDevicePrimaryCtxSetFlags "cuDevicePrimaryCtxSetFlags" 7000 (device: i32, flags: u32) => set_primary_flags;
    device cuDevicePrimaryCtxSetFlags_v2 "cuDevicePrimaryCtxSetFlags" 11000 (device: i32, flags: u32) => set_primary_flags;
    device cuDevicePrimaryCtxGetState "cuDevicePrimaryCtxGetState" 7000
        (device: i32, flags: Out<u32>, active: Out<i32>) => primary_state;
    working cuCtxCreate_v2 "cuCtxCreate" 3020 (context: Out<Handle>, flags: u32, device: i32) => create;
    working cuCtxCreate_v3 "cuCtxCreate" 11040
        (context: Out<Handle>, affinity: In<u8>, num_affinity: i32, flags: u32, device: i32) => create_with_affinity;
    working cuCtxCreate_v4 "cuCtxCreate" 12050
        (context: Out<Handle>, params: In<CreateParams>, flags: u32, device: i32) => create_with_params;
    device cuCtxDestroy_v2 "cuCtxDestroy" 4000 (context: Handle) => destroy;
    device cuCtxDetach "cuCtxDetach" 2000 (context: Handle) => destroy;
    device cuCtxGetCurrent "cuCtxGetCurrent" 4000 (context: Out<Handle>) => get_current;
    device cuCtxSetCurrent "cuCtxSetCurrent" 4000 (context: Handle) => set_current;
    device cuCtxPushCurrent_v2 "cuCtxPushCurrent" 4000 (context: Handle) => push;
    device cuCtxPopCurrent_v2 "cuCtxPopCurrent" 4000 (context: Out<Handle>) => pop;
    device cuCtxGetDevice "cuCtxGetDevice" 2000 (device: Out<i32>) => get_device;
    device cuCtxGetDevice_v2 "cuCtxGetDevice" 13000 (device: Out<i32>, context: Handle) => get_device_of;
    context cuCtxSynchronize "cuCtxSynchronize" 2000 () => synchronize;
    working cuCtxSynchronize_v2 "cuCtxSynchronize" 13000 (context: Handle) => synchronize_of;
    context cuCtxGetFlags "cuCtxGetFlags" 7000 (flags: Out<u32>) => get_flags;
    context cuCtxGetId "cuCtxGetId" 12000 (context: Handle, id: Out<u64>) => get_id;
    device cuCtxGetApiVersion "cuCtxGetApiVersion" 3020 (context: Handle, version: Out<u32>) => api_version;
    context cuCtxGetLimit "cuCtxGetLimit" 3010 (value: Out<u64>, limit: u32) => get_limit;
    context cuCtxSetLimit "cuCtxSetLimit" 3010 (limit: u32, value: u64) => set_limit;
    context cuCtxGetCacheConfig "cuCtxGetCacheConfig" 3020 (config: Out<u32>) => get_zero;
    context cuCtxSetCacheConfig "cuCtxSetCacheConfig" 3020 (config: u32) => ignore;
    context cuCtxGetSharedMemConfig "cuCtxGetSharedMemConfig" 4020 (config: Out<u32>) => get_bank_size;
    context cuCtxSetSharedMemConfig "cuCtxSetSharedMemConfig" 4020 (config: u32) => ignore;
    context cuCtxGetStreamPriorityRange "cuCtxGetStreamPriorityRange" 5050
        (least: Out<i32>, greatest: Out<i32>) => priority_range;
    context cuCtxResetPersistingL2Cache "cuCtxResetPersistingL2Cache" 11000 () => nothing;
    context cuCtxEnablePeerAccess "cuCtxEnablePeerAccess" 4000 (peer: Handle, flags: u32) => enable_peer;
    context cuCtxDisablePeerAccess "cuCtxDisablePeerAccess" 4000 (peer: Handle) => disable_peer;
}

/// Most urgent priority of a stream.
pub const GREATEST_PRIORITY: i32 = -5;

fn retain_primary(session: &Session, context: Out<Handle>, device: i32) -> Outcome {
    check(device)?;
    context.set(session.primary)?;
    *session.primary_count.lock() += 1;
    Ok(())
}

fn release_primary(session: &Session, device: i32) -> Outcome {
    check(device)?;
    let mut count = session.primary_count.lock();
    match *count {
        0 => Err(CuResult::INVALID_CONTEXT),
        1 => {
            *count = 0;
            drop(count);
            session.storage.destroy(session.primary);
            session.reset()
        }
        _ => {
            *count -= 1;
            Ok(())
        }
    }
}

/// The runtime's destructors run before this returns; it sets itself up anew at its next call.
fn reset_primary(session: &Session, device: i32) -> Outcome {
    check(device)?;
    *session.primary_count.lock() = 0;
    session.storage.destroy(session.primary);
    session.reset()
}

fn set_primary_flags(session: &Session, device: i32, flags: u32) -> Outcome {
    check(device)?;
    let primary = find(session, session.primary)?;
    *primary.flags.lock() = flags;
    Ok(())
}

fn primary_state(session: &Session, device: i32, flags: Out<u32>, active: Out<i32>) -> Outcome {
    check(device)?;
    let primary = find(session, session.primary)?;
    flags.set(*primary.flags.lock())?;
    active.set(i32::from(*session.primary_count.lock() > 0))
}

fn find(session: &Session, context: Handle) -> Outcome<Arc<Context>> {
    session.contexts.get(context).ok_or(CuResult::INVALID_CONTEXT)
}

fn create(session: &Session, context: Out<Handle>, flags: u32, device: i32) -> Outcome {
    check(device)?;
    let made = session.contexts.insert(Arc::new(Context {
        flags: Mutex::new(flags),
        is_primary: false,
    }));
    context.set(made)?;
    thread_state::push_context(made)
}

fn create_with_affinity(
    session: &Session,
    context: Out<Handle>,
    _affinity: In<u8>,
    num_affinity: i32,
    flags: u32,
    device: i32,
) -> Outcome {
    if num_affinity != 0 {
        return Err(CuResult::NOT_SUPPORTED);
    }
    create(session, context, flags, device)
}

/// `CUctxCreateParams`: asks for a part of the device, or for one that a graphics program shares. Zeros ask for
/// neither.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CreateParams {
    affinity: u64,
    num_affinity: i32,
    graphics: u64,
}

fn create_with_params(
    session: &Session,
    context: Out<Handle>,
    params: In<CreateParams>,
    flags: u32,
    device: i32,
) -> Outcome {
    if !params.is_null() {
        let params = params.get()?;
        if params.num_affinity != 0 || params.graphics != 0 {
            return Err(CuResult::NOT_SUPPORTED);
        }
    }
    create(session, context, flags, device)
}

/// All memory is the device's: what the context's owner has not freed is freed at the process's end.
fn destroy(session: &Session, context: Handle) -> Outcome {
    if find(session, context)?.is_primary {
        return Err(CuResult::INVALID_CONTEXT);
    }
    if thread_state::current_context() == context {
        thread_state::pop_context()?;
    }
    if session.check_fault().is_ok() {
        session.call(Command::Synchronize {
            device: DeviceIndex::FIRST,
        })?;
    }
    session.storage.destroy(context);
    session.contexts.remove(context);
    Ok(())
}

fn get_current(_: &Session, context: Out<Handle>) -> Outcome {
    context.set(thread_state::current_context())
}

fn set_current(session: &Session, context: Handle) -> Outcome {
    if context != Handle::NULL {
        find(session, context)?;
    }
    thread_state::set_context(context);
    Ok(())
}

fn push(session: &Session, context: Handle) -> Outcome {
    find(session, context)?;
    thread_state::push_context(context)
}

fn pop(_: &Session, context: Out<Handle>) -> Outcome {
    context.set_if_wanted(thread_state::pop_context()?);
    Ok(())
}

fn get_device(session: &Session, device: Out<i32>) -> Outcome {
    get_device_of(session, device, Handle::NULL)
}

fn get_device_of(session: &Session, device: Out<i32>, context: Handle) -> Outcome {
    given_or_current(session, context)?;
    device.set(0)
}

fn given_or_current(session: &Session, context: Handle) -> Outcome<Arc<Context>> {
    let context = if context == Handle::NULL {
        thread_state::current_context()
    } else {
        context
    };
    find(session, context)
}

fn synchronize(current: Current) -> Outcome {
    current.session.captures.refuse_all()?;
    current
        .session
        .call(Command::Synchronize {
            device: DeviceIndex::FIRST,
        })
        .map(|_| ())
}

fn synchronize_of(session: &Session, context: Handle) -> Outcome {
    given_or_current(session, context)?;
    session.captures.refuse_all()?;
    session
        .call(Command::Synchronize {
            device: DeviceIndex::FIRST,
        })
        .map(|_| ())
}

fn get_flags(current: Current, flags: Out<u32>) -> Outcome {
    let context = find(current.session, current.context)?;
    flags.set(*context.flags.lock())
}

fn get_id(current: Current, context: Handle, id: Out<u64>) -> Outcome {
    given_or_current(current.session, context)?;
    id.set(if context == Handle::NULL {
        current.context.0
    } else {
        context.0
    })
}

fn api_version(session: &Session, context: Handle, version: Out<u32>) -> Outcome {
    given_or_current(session, context)?;
    version.set(3020)
}

fn get_limit(current: Current, value: Out<u64>, limit: u32) -> Outcome {
    let limits = current.session.limits.lock();
    value.set(*limits.get(limit as usize).ok_or(CuResult::INVALID_VALUE)?)
}

/// `CU_LIMIT_MALLOC_HEAP_SIZE`
const MALLOC_HEAP_SIZE: u32 = 2;

fn set_limit(current: Current, limit: u32, value: u64) -> Outcome {
    let mut limits = current.session.limits.lock();
    *limits.get_mut(limit as usize).ok_or(CuResult::INVALID_VALUE)? = value;
    if limit == MALLOC_HEAP_SIZE {
        current.session.device.heap.set_limit(value);
    }
    Ok(())
}

fn get_zero(_: Current, value: Out<u32>) -> Outcome {
    value.set(0)
}

fn get_bank_size(_: Current, value: Out<u32>) -> Outcome {
    const FOUR_BYTES: u32 = 1;
    value.set(FOUR_BYTES)
}

/// A preference that no device here has use for.
fn ignore(_: Current, _preference: u32) -> Outcome {
    Ok(())
}

fn nothing(_: Current) -> Outcome {
    Ok(())
}

fn priority_range(_: Current, least: Out<i32>, greatest: Out<i32>) -> Outcome {
    least.set_if_wanted(0);
    greatest.set_if_wanted(GREATEST_PRIORITY);
    Ok(())
}

fn enable_peer(_: Current, _peer: Handle, _flags: u32) -> Outcome {
    Err(CuResult::INVALID_DEVICE)
}

fn disable_peer(_: Current, _peer: Handle) -> Outcome {
    Err(CuResult::PEER_ACCESS_NOT_ENABLED)
}

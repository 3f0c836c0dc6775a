//! What a program may ask and set of a kernel. A `CUkernel` and its `CUfunction` are one handle.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::guard::Current;
use crate::handles::Handle;
use crate::library::Kernel;
use crate::pointers::Out;
use crate::result::{CuResult, Outcome};
use crate::session::Session;
use crate::table_slots::Address;

use super::device::check;

entry_points! {
    context cuKernelGetFunction "cuKernelGetFunction" 12000 (function: Out<Handle>, kernel: Handle) => get_function;
    working cuKernelGetLibrary "cuKernelGetLibrary" 12050 (library: Out<Handle>, kernel: Handle) => get_library;
    working cuKernelGetAttribute "cuKernelGetAttribute" 12000
        (value: Out<i32>, attribute: u32, kernel: Handle, device: i32) => get_kernel_attribute;
    working cuKernelSetAttribute "cuKernelSetAttribute" 12000
        (attribute: u32, value: i32, kernel: Handle, device: i32) => set_kernel_attribute;
    working cuKernelSetCacheConfig "cuKernelSetCacheConfig" 12000 (kernel: Handle, config: u32, device: i32) => set_cache;
    working cuKernelGetName "cuKernelGetName" 12030 (name: Out<Address>, kernel: Handle) => get_name;
    working cuKernelGetParamInfo "cuKernelGetParamInfo" 12040
        (kernel: Handle, index: u64, offset: Out<u64>, size: Out<u64>) => get_param;
    context cuFuncGetAttribute "cuFuncGetAttribute" 2020 (value: Out<i32>, attribute: u32, kernel: Handle) => get_attribute;
    context cuFuncSetAttribute "cuFuncSetAttribute" 9000 (kernel: Handle, attribute: u32, value: i32) => set_attribute;
    context cuFuncSetCacheConfig "cuFuncSetCacheConfig" 3000 (kernel: Handle, config: u32) => ignore;
    context cuFuncSetSharedMemConfig "cuFuncSetSharedMemConfig" 4020 (kernel: Handle, config: u32) => ignore;
    context cuFuncIsLoaded "cuFuncIsLoaded" 12040 (state: Out<u32>, kernel: Handle) => is_loaded;
    context cuFuncLoad "cuFuncLoad" 12040 (kernel: Handle) => load;
    context cuFuncGetModule "cuFuncGetModule" 11000 (module: Out<Handle>, kernel: Handle) => get_module;
    working cuFuncGetName "cuFuncGetName" 12030 (name: Out<Address>, kernel: Handle) => get_name;
    working cuFuncGetParamInfo "cuFuncGetParamInfo" 12040
        (kernel: Handle, index: u64, offset: Out<u64>, size: Out<u64>) => get_param;
}

/// Numbers of `CUfunction_attribute`.
mod attribute {
    pub const MAX_THREADS: u32 = 0;
    pub const STATIC_SHARED: u32 = 1;
    pub const CONST: u32 = 2;
    pub const LOCAL: u32 = 3;
    pub const REGISTERS: u32 = 4;
    pub const PTX_VERSION: u32 = 5;
    pub const BINARY_VERSION: u32 = 6;
    pub const MAX_DYNAMIC_SHARED: u32 = 8;
    pub const CARVEOUT: u32 = 9;
    pub const REQUIRED_CLUSTER_WIDTH: u32 = 11;
    pub const REQUIRED_CLUSTER_DEPTH: u32 = 13;
    pub const NON_PORTABLE_CLUSTERS: u32 = 14;
    pub const CLUSTER_SCHEDULING: u32 = 15;
    pub const LAST: u32 = 15;
}

/// A kernel by handle.
pub fn find(session: &Session, kernel: Handle) -> Outcome<Arc<Kernel>> {
    session.kernels.get(kernel).ok_or(CuResult::INVALID_HANDLE)
}

fn get_function(current: Current, function: Out<Handle>, kernel: Handle) -> Outcome {
    find(current.session, kernel)?;
    function.set(kernel)
}

fn is_loaded(current: Current, state: Out<u32>, kernel: Handle) -> Outcome {
    const LOADED: u32 = 1;
    find(current.session, kernel)?;
    state.set(LOADED)
}

fn load(current: Current, kernel: Handle) -> Outcome {
    find(current.session, kernel)?
        .resolve(&current.session.device)
        .map(|_| ())
}

fn get_library(session: &Session, library: Out<Handle>, kernel: Handle) -> Outcome {
    let kernel = find(session, kernel)?;
    library.set(session.libraries.find(&kernel.library).ok_or(CuResult::NOT_FOUND)?)
}

fn get_module(current: Current, module: Out<Handle>, kernel: Handle) -> Outcome {
    get_library(current.session, module, kernel)
}

fn get_attribute(current: Current, value: Out<i32>, attribute: u32, kernel: Handle) -> Outcome {
    get_kernel_attribute(current.session, value, attribute, kernel, 0)
}

fn get_kernel_attribute(session: &Session, value: Out<i32>, attribute: u32, kernel: Handle, device: i32) -> Outcome {
    check(device)?;
    let kernel = find(session, kernel)?;
    let built = kernel.built(&session.device)?;
    let number = match attribute {
        attribute::MAX_THREADS => built.max_threads_per_block,
        attribute::STATIC_SHARED => built.static_shared_bytes,
        attribute::CONST => built.const_bytes,
        attribute::LOCAL => built.local_bytes,
        attribute::REGISTERS => built.num_registers,
        attribute::PTX_VERSION => kernel.resolve(&session.device)?.description().ptx_version,
        attribute::BINARY_VERSION => session.device.attribute_u32(75) * 10 + session.device.attribute_u32(76),
        attribute::MAX_DYNAMIC_SHARED => kernel.max_dynamic_shared(&session.device, built.static_shared_bytes),
        attribute::CARVEOUT => kernel.carveout.load(Ordering::Relaxed),
        attribute::NON_PORTABLE_CLUSTERS => kernel.allows_non_portable_clusters.load(Ordering::Relaxed).into(),
        other if other <= attribute::LAST => 0,
        _ => return Err(CuResult::INVALID_VALUE),
    };
    value.set(number.cast_signed())
}

fn set_attribute(current: Current, kernel: Handle, attribute: u32, value: i32) -> Outcome {
    set_kernel_attribute(current.session, attribute, value, kernel, 0)
}

fn set_kernel_attribute(session: &Session, attribute: u32, value: i32, kernel: Handle, device: i32) -> Outcome {
    check(device)?;
    let kernel = find(session, kernel)?;
    match attribute {
        attribute::MAX_DYNAMIC_SHARED => {
            let wanted = u32::try_from(value).map_err(|_| CuResult::INVALID_VALUE)?;
            let limit = session
                .device
                .attribute_u32(97)
                .saturating_sub(kernel.built(&session.device)?.static_shared_bytes);
            if wanted > limit {
                return Err(CuResult::INVALID_VALUE);
            }
            kernel.max_dynamic_shared.store(wanted, Ordering::Relaxed);
            Ok(())
        }
        attribute::CARVEOUT if (-1..=100).contains(&value) => {
            kernel.carveout.store(value.cast_unsigned(), Ordering::Relaxed);
            Ok(())
        }
        attribute::NON_PORTABLE_CLUSTERS => {
            kernel.allows_non_portable_clusters.store(value != 0, Ordering::Relaxed);
            Ok(())
        }
        // Launches name their clusters, and are given those that they name.
        attribute::REQUIRED_CLUSTER_WIDTH..=attribute::REQUIRED_CLUSTER_DEPTH | attribute::CLUSTER_SCHEDULING => Ok(()),
        _ => Err(CuResult::INVALID_VALUE),
    }
}

fn set_cache(session: &Session, kernel: Handle, _config: u32, device: i32) -> Outcome {
    check(device)?;
    find(session, kernel).map(|_| ())
}

/// A preference that no device here has use for.
fn ignore(current: Current, kernel: Handle, _config: u32) -> Outcome {
    find(current.session, kernel).map(|_| ())
}

/// Names handed out stay valid: each is kept once for the life of the process.
fn get_name(session: &Session, name: Out<Address>, kernel: Handle) -> Outcome {
    static NAMES: Mutex<Vec<CString>> = Mutex::new(Vec::new());
    let kernel = find(session, kernel)?;
    let mut names = NAMES.lock();
    let bytes = kernel.name.as_bytes();
    if !names.iter().any(|known| known.as_bytes() == bytes) {
        names.push(CString::new(bytes).map_err(|_| CuResult::UNKNOWN)?);
    }
    let known = names
        .iter()
        .find(|known| known.as_bytes() == bytes)
        .ok_or(CuResult::UNKNOWN)?;
    name.set(Address(known.as_ptr().cast()))
}

fn get_param(session: &Session, kernel: Handle, index: u64, offset: Out<u64>, size: Out<u64>) -> Outcome {
    let resolved = find(session, kernel)?.resolve(&session.device)?;
    let params = &resolved.description().params;
    let param = usize::try_from(index)
        .ok()
        .and_then(|i| params.get(i))
        .ok_or(CuResult::INVALID_VALUE)?;
    offset.set(param.offset.into())?;
    size.set_if_wanted(param.size.into());
    Ok(())
}

//! Images that are run as they came, machine code or PTX: loaded, launched and waited for. A pause does not reach them.
#![allow(unsafe_code, reason = "driver FFI")]

use std::ffi::{CStr, CString, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute as Attribute};
use hetckpt_abi::cluster_query::PORTABLE_CLUSTER;

use super::CudaInner;
use super::driver::{self, DriverError, Result, Shape, check};
use super::handles::{Module, Stream};
use super::progress::Progress;
use super::unstoppable;
use crate::device::{KernelAttributes, Launch, LoadedKernel, OpaqueKernel, OpaqueModule, RunningLaunch};
use crate::error::DeviceError;

/// First driver that lists a module's kernels and their parameters.
const FIRST_DRIVER: i32 = 12_040;
/// Kernels and parameters beyond these are taken for nonsense.
const MAX_KERNELS: u32 = 1 << 16;
const MAX_PARAMS: usize = 4096;

/// A kernel of machine code.
pub(super) struct OpaqueCuda {
    name: String,
    function: CUfunction,
    params: Vec<(u32, u32)>,
    attributes: KernelAttributes,
    _module: Arc<Module>,
}

// SAFETY: functions of a loaded module may be used from any thread.
unsafe impl Send for OpaqueCuda {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for OpaqueCuda {}

impl OpaqueCuda {
    pub fn function(&self) -> CUfunction {
        self.function
    }
}

impl LoadedKernel for OpaqueCuda {
    fn attributes(&self) -> KernelAttributes {
        self.attributes
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// Loads an image, and finds those of the `variables` that it has; `device` is for messages.
pub(super) fn load(image: &[u8], variables: &[String], device: &str) -> std::result::Result<OpaqueModule, DeviceError> {
    let refused = |e: DriverError| DeviceError::Build {
        kernel: "machine code".to_owned(),
        device: device.to_owned(),
        log: e.to_string(),
    };
    let module = Arc::new(Module(driver::cuModuleLoadData(image).map_err(refused)?));
    let globals = variables.iter().filter_map(|name| {
        let (addr, size_bytes) = driver::cuModuleGetGlobal(module.0, &CString::new(name.as_str()).ok()?).ok()?;
        Some((name.clone(), addr, size_bytes))
    });
    Ok(OpaqueModule {
        globals: globals.collect(),
        kernels: kernels(&module).map_err(refused)?,
        loaded: Some(module),
    })
}

fn kernels(module: &Arc<Module>) -> Result<Vec<OpaqueKernel>> {
    const LIST: &str = "cuModuleEnumerateFunctions";
    if driver::cuDriverGetVersion()? < FIRST_DRIVER {
        return Err(DriverError {
            call: LIST,
            code: driver::UNKNOWN,
        });
    }
    let mut count = 0;
    // SAFETY: a place for a number, and a module that lives.
    check("cuModuleGetFunctionCount", unsafe {
        sys::cuModuleGetFunctionCount(&raw mut count, module.0)
    })?;
    let count = count.min(MAX_KERNELS);
    let mut functions = vec![std::ptr::null_mut(); count as usize];
    // SAFETY: as many places as are named.
    check(LIST, unsafe {
        sys::cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module.0)
    })?;
    let kernels = functions.into_iter().map(|function| kernel(function, module));
    let mut kernels = kernels.collect::<Result<Vec<_>>>()?;
    // The driver promises no order, and a program restored elsewhere knows kernels by their place.
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(kernels)
}

fn kernel(function: CUfunction, module: &Arc<Module>) -> Result<OpaqueKernel> {
    let mut name = std::ptr::null();
    // SAFETY: a place for a pointer, and a function of a module that lives.
    check("cuFuncGetName", unsafe { sys::cuFuncGetName(&raw mut name, function) })?;
    if name.is_null() {
        return Err(DriverError {
            call: "cuFuncGetName",
            code: driver::UNKNOWN,
        });
    }
    // SAFETY: the driver returned a C string that lives as long as the module.
    let name = unsafe { CStr::from_ptr(name) };
    // By name, because a listed function need not be loaded yet.
    let function = driver::cuModuleGetFunction(module.0, name)?;
    let name = name.to_string_lossy().into_owned();
    let mut params = Vec::new();
    while params.len() < MAX_PARAMS {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: places for two numbers; an index beyond the last parameter is refused.
        let result = unsafe { sys::cuFuncGetParamInfo(function, params.len(), &raw mut offset, &raw mut size) };
        if check("cuFuncGetParamInfo", result).is_err() {
            break;
        }
        let (Ok(offset), Ok(size)) = (u32::try_from(offset), u32::try_from(size)) else {
            return Err(DriverError {
                call: "cuFuncGetParamInfo",
                code: driver::UNKNOWN,
            });
        };
        params.push((offset, size));
    }
    let attribute = |which| driver::cuFuncGetAttribute(which, function).map(i32::cast_unsigned);
    let attributes = KernelAttributes {
        max_threads_per_block: attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        num_registers: attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
        static_shared_bytes: attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
        local_bytes: attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
    };
    let own = OpaqueCuda {
        name: name.clone(),
        function,
        params: params.clone(),
        attributes,
        _module: Arc::clone(module),
    };
    Ok(OpaqueKernel {
        name,
        params,
        ptx_version: attribute(Attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
        kernel: Arc::new(own),
    })
}

/// Launches on a stream of `device`; while the device is paused, nothing of it is started.
pub(super) fn launch(
    device: &Arc<CudaInner>,
    progress: &Arc<Progress>,
    launch: Launch,
) -> std::result::Result<Arc<dyn RunningLaunch>, DeviceError> {
    let kernel = launch.kernel.as_any().downcast_ref::<OpaqueCuda>();
    let (name, all) = (
        kernel.map_or(String::new(), |k| k.name.clone()),
        launch.shape.num_blocks(),
    );
    unstoppable::give(device, progress, &name, all, |progress| {
        Progress::give_launch(progress, device.launcher.as_ref(), move |stream| start(stream, &launch))
    })
}

/// Has `stream` launch a kernel of machine code.
pub(super) fn start(stream: &Stream, launch: &Launch) -> Result<()> {
    let invalid = DriverError {
        call: "cuLaunchKernel",
        code: driver::INVALID_VALUE,
    };
    let kernel = launch.kernel.as_any().downcast_ref::<OpaqueCuda>().ok_or(invalid)?;
    let mut pointers: Vec<*mut c_void> = Vec::with_capacity(kernel.params.len());
    for &(offset, size) in &kernel.params {
        let range = offset as usize..(offset as usize).saturating_add(size as usize);
        let Some(param) = launch.params.get(range) else {
            return Err(invalid);
        };
        pointers.push(param.as_ptr().cast_mut().cast());
    }
    driver::allow_shared_memory(kernel.function, launch.shape.dynamic_shared_bytes)?;
    if launch.shape.blocks_per_cluster() > PORTABLE_CLUSTER {
        // The program has done so.
        driver::allow_non_portable_clusters(kernel.function)?;
    }
    let shape = Shape::from(&launch.shape);
    // SAFETY: one pointer for each parameter that the driver knows of, into a buffer that holds all of it; the driver
    // copies them before it returns.
    unsafe { driver::cuLaunchKernel(kernel.function, &shape, stream.0, &mut pointers) }
}

//! Building PTX with the driver's compiler. The driver keeps what it made on disk, where [`super::CudaOptions`] says.

use std::ffi::CString;
use std::sync::Arc;

use hetckpt_abi::launch_shape::LaunchShape;

use cudarc::driver::sys::{CUfunction, CUfunction_attribute as Attribute};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::driver::{self, DriverError};
use super::handles::Module;
use crate::device::{KernelAttributes, LoadRequest, LoadedKernel};
use crate::error::DeviceError;

/// First line of a program that is launched over a list of blocks (the PTX generator's `BLOCK_LIST_MARK`).
const BLOCK_LIST_MARK: &str = "// hetckpt: launched over a list of blocks";

/// First line of a program whose control block's address may be 0 (the PTX generator's `ENDS_SOON_MARK`).
const ENDS_SOON_MARK: &str = "// hetckpt: each thread ends soon";
/// A launch of such a program is over soon if its blocks take the device's multiprocessors so often at most. Larger
/// ones hide what asking costs.
const FEW_ROUNDS: u64 = 32;

/// A program loaded on a CUDA device.
pub(super) struct CudaKernel {
    pub request: LoadRequest,
    pub is_block_list: bool,
    /// Threads that a launch may have to be over soon; 0 if none is.
    most_threads_to_end: u64,
    /// Columns of its registers ([`crate::control::register_columns`]).
    pub columns: Vec<(u32, u32)>,
    attributes: KernelAttributes,
    function: CUfunction,
    /// Threads and shared memory of a block: how many fit a multiprocessor.
    occupancy: Mutex<FxHashMap<(u32, u32), u32>>,
    _module: Module,
}

#[allow(unsafe_code, reason = "driver handles may be shared")]
mod shared_handles {
    // SAFETY: functions of a loaded module may be used from any thread.
    unsafe impl Send for super::CudaKernel {}
    // SAFETY: as above; the driver locks.
    unsafe impl Sync for super::CudaKernel {}
}

/// The program as the device's user holds it.
pub(super) struct LoadedCuda(pub Arc<CudaKernel>);

impl LoadedKernel for LoadedCuda {
    fn attributes(&self) -> KernelAttributes {
        self.0.attributes
    }

    fn ends_soon(&self, shape: &LaunchShape) -> bool {
        let num_threads = shape.num_blocks().saturating_mul(shape.threads_per_block());
        !shape.cooperative && (1..=self.0.most_threads_to_end).contains(&num_threads)
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl CudaKernel {
    pub fn function(&self) -> CUfunction {
        self.function
    }

    /// Lets blocks have `shared_bytes` of shared memory; returns how many of `threads` threads fit a multiprocessor.
    pub fn prepare(&self, threads: u32, shared_bytes: u32) -> Result<u32, DriverError> {
        let mut known = self.occupancy.lock();
        if let Some(&blocks) = known.get(&(threads, shared_bytes)) {
            return Ok(blocks);
        }
        driver::allow_shared_memory(self.function, shared_bytes)?;
        let blocks = driver::cuOccupancyMaxActiveBlocksPerMultiprocessor(self.function, threads, shared_bytes)?;
        known.insert((threads, shared_bytes), blocks);
        Ok(blocks)
    }
}

/// Builds and loads programs for one device.
#[derive(Debug)]
pub(super) struct Builder {
    /// As the user names it.
    pub device: String,
    /// Threads that it runs at a time.
    pub num_threads: u64,
}

impl Builder {
    /// With `max_registers` registers at most, if that is bounded. (A second build with just so few that one more block
    /// fits a multiprocessor was tried: kernels were no faster, and cold starts took twice as long.)
    pub fn load(
        &self,
        request: &LoadRequest,
        ptx: &str,
        max_registers: Option<u32>,
    ) -> Result<CudaKernel, DeviceError> {
        let mut kernel = CudaKernel::new(request, ptx, self.build(request, ptx, max_registers)?);
        if ptx.starts_with(ENDS_SOON_MARK) {
            kernel.most_threads_to_end = self.num_threads * FEW_ROUNDS;
        }
        Ok(kernel)
    }

    fn build(&self, request: &LoadRequest, ptx: &str, max_registers: Option<u32>) -> Result<BuiltModule, DeviceError> {
        let fault = |log: String| DeviceError::Build {
            kernel: request.name.clone(),
            device: self.device.clone(),
            log,
        };
        let name = CString::new(request.name.as_str()).map_err(|e| fault(e.to_string()))?;
        let refused = |e: DriverError| fault(e.to_string());
        let loaded = driver::cuModuleLoadDataEx(ptx, max_registers);
        let module = Module(loaded.map_err(|(e, log)| if log.is_empty() { refused(e) } else { fault(log) })?);
        let function = driver::cuModuleGetFunction(module.0, &name).map_err(refused)?;
        let attributes = attributes(function, request).map_err(refused)?;
        Ok((module, function, attributes))
    }
}

type BuiltModule = (Module, CUfunction, KernelAttributes);

impl CudaKernel {
    fn new(request: &LoadRequest, ptx: &str, (module, function, attributes): BuiltModule) -> Self {
        Self {
            attributes,
            is_block_list: ptx.starts_with(BLOCK_LIST_MARK),
            most_threads_to_end: 0,
            columns: crate::control::register_columns(&request.layout),
            function,
            occupancy: Mutex::default(),
            request: LoadRequest {
                code: crate::device::Code::Ptx(String::new()),
                ..request.clone()
            },
            _module: module,
        }
    }
}

fn attributes(function: CUfunction, request: &LoadRequest) -> Result<KernelAttributes, DriverError> {
    let attribute = |which| driver::cuFuncGetAttribute(which, function).map(i32::cast_unsigned);
    Ok(KernelAttributes {
        max_threads_per_block: attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        num_registers: attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
        static_shared_bytes: request.static_shared_bytes,
        local_bytes: attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
    })
}

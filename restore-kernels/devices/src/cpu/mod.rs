//! The CPU as a device: hetIR compiled by the code generator's shared object, run block by block on a pool of threads.
//!
//! Device addresses are the server process's own. A *block* runs on one worker at a time, its threads one after another
//! through region functions ([`hetckpt_abi::cpu_block`]); between regions, barriers and warp-level operations are
//! carried out here on the saved registers ([`barrier`], [`warp`]). Blocks need not run to their end at once: a block
//! that spins for another is set aside after a time slice ([`mod@slice`]). Long kernels start in quickly made
//! code ([`optimizer`]).

mod code_generator;
mod object;
mod kernel;
pub(crate) mod memory;
mod thread_columns;
mod barrier;
mod warp;
mod context;
mod fault;
mod block_run;
mod capture;
mod work;
mod launch;
mod pool;
mod slice;
mod step;
mod optimizer;
mod worker;
mod frozen_process;
pub(crate) mod host;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use crate::device::{
    Device, DeviceDescription, Fill, Launch, LoadRequest, LoadedKernel, PlannedView, Queue, RunningLaunch,
};
use crate::error::DeviceError;
use code_generator::CodeGenerator;
use frozen_process::PlannedFork;
use kernel::CpuKernel;
use pool::Pool;

/// Threads a block may have, as on CUDA devices.
const MAX_THREADS_PER_BLOCK: u32 = 1024;
/// Shared memory a block may have: what CUDA devices of compute capability 9.0 allow.
const MAX_SHARED_BYTES: u32 = 227 << 10;

/// Bytes of hetIR text from which on LLVM takes some tenths of a second for full code.
const QUICK_FROM_BYTES: usize = 4 << 10;

/// How the CPU device is set up.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// The code generator's shared object; `None` looks where an installation has it
    /// ([`CpuOptions::find_code_generator`]).
    pub code_generator: Option<PathBuf>,
    /// Folder for compiled objects; `None` keeps none.
    pub cache_dir: Option<PathBuf>,
    /// Worker threads; `None`: one for each processor this process may use.
    pub num_workers: Option<usize>,
    /// Bytes of hetIR text from which on a kernel starts in code that is made quickly, and gets the best there is once
    /// it has run for a while.
    pub quick_from_bytes: usize,
}

impl Default for CpuOptions {
    fn default() -> Self {
        Self {
            code_generator: None,
            cache_dir: None,
            num_workers: None,
            quick_from_bytes: QUICK_FROM_BYTES,
        }
    }
}

impl CpuOptions {
    /// Where the code generator is: `$HETCKPT_CPU_CODEGEN`, else `../lib/hetckpt/` from the folder of this program,
    /// else beside it.
    #[must_use]
    pub fn find_code_generator() -> PathBuf {
        const NAME: &str = "libhetckpt_cpu_codegen.so";
        if let Some(path) = std::env::var_os("HETCKPT_CPU_CODEGEN").filter(|p| !p.is_empty()) {
            return PathBuf::from(path);
        }
        let exe = std::env::current_exe().unwrap_or_default();
        let dir = exe.parent().unwrap_or(std::path::Path::new("."));
        let installed = dir.join("../lib/hetckpt").join(NAME);
        if installed.exists() { installed } else { dir.join(NAME) }
    }
}

/// The CPU device.
pub struct CpuDevice {
    generator: Arc<CodeGenerator>,
    pool: Arc<Pool>,
    options: CpuOptions,
    memory: memory::MappedRanges,
}

impl CpuDevice {
    /// Starts the device.
    ///
    /// # Errors
    /// [`DeviceError::NotPresent`] if the code generator cannot be loaded.
    pub fn open(options: &CpuOptions) -> Result<Self, DeviceError> {
        let path = options
            .code_generator
            .clone()
            .unwrap_or_else(CpuOptions::find_code_generator);
        let generator = Arc::new(CodeGenerator::open(&path)?);
        fault::install_handlers().map_err(|error| DeviceError::NotPresent {
            device: "cpu".to_owned(),
            reason: format!("cannot handle faults of kernels: {error}"),
        })?;
        let num_workers = options.num_workers.unwrap_or_else(host::num_processors).max(1);
        let pool = Pool::start(num_workers).map_err(|error| DeviceError::NotPresent {
            device: "cpu".to_owned(),
            reason: format!("cannot start a worker thread: {error}"),
        })?;
        Ok(Self {
            generator,
            pool,
            options: options.clone(),
            memory: memory::MappedRanges::default(),
        })
    }

    /// Describes the CPU without starting anything.
    #[must_use]
    pub fn describe_host() -> DeviceDescription {
        let memory = host::memory();
        DeviceDescription {
            id: "cpu".to_owned(),
            kind: "cpu",
            name: host::processor_name(),
            vendor: host::processor_vendor(),
            driver: String::new(),
            total_bytes: memory.total_bytes,
            free_bytes: memory.free_bytes,
            max_threads_per_block: MAX_THREADS_PER_BLOCK,
            max_shared_bytes: MAX_SHARED_BYTES,
            num_multiprocessors: u32::try_from(host::num_processors()).unwrap_or(u32::MAX),
            cuda_attributes: Vec::new(),
            uuid: [0; 16],
        }
    }
}

/// LLVM IR that the code generator makes of a kernel's hetIR text, before optimisation; for people.
///
/// # Errors
/// [`DeviceError::NotPresent`] if the code generator cannot be loaded, [`DeviceError::Build`] if it refuses the text.
pub fn llvm_ir(text: &str) -> Result<String, DeviceError> {
    let generator = CodeGenerator::open(&CpuOptions::find_code_generator())?;
    generator.llvm_ir(text).map_err(|error| DeviceError::Build {
        kernel: "the given text".to_owned(),
        device: "cpu".to_owned(),
        log: error.to_string(),
    })
}

impl Drop for CpuDevice {
    fn drop(&mut self) {
        self.pool.shut_down();
    }
}

impl Device for CpuDevice {
    fn describe(&self) -> DeviceDescription {
        DeviceDescription {
            driver: self.generator.identity().to_owned(),
            num_multiprocessors: u32::try_from(self.pool.num_workers()).unwrap_or(u32::MAX),
            ..Self::describe_host()
        }
    }

    fn map(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        self.memory.map(addr, size_bytes)
    }

    fn plan_view(&self, _size_bytes: u64) -> Result<Option<Box<dyn PlannedView>>, DeviceError> {
        Ok(Some(Box::new(PlannedFork)))
    }

    fn unmap(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        self.memory.unmap(addr, size_bytes)
    }

    fn register_host(&self, _addr: u64, _size_bytes: u64) -> Result<(), DeviceError> {
        // Mapped in this process at its address: kernels reach it as they are.
        Ok(())
    }

    fn unregister_host(&self, _addr: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn write(&self, dst: u64, src: &[u8]) -> Result<(), DeviceError> {
        memory::write(dst, src);
        Ok(())
    }

    fn begin_write(
        &self,
        dst: u64,
        size_bytes: usize,
        _spare: &mut Vec<u8>,
        produce: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<(), DeviceError> {
        memory::write_with(dst, size_bytes, produce);
        Ok(())
    }

    fn read(&self, src: u64, dst: &mut [u8]) -> Result<(), DeviceError> {
        memory::read(src, dst);
        Ok(())
    }

    fn copy(&self, dst: u64, src: u64, size_bytes: u64) -> Result<(), DeviceError> {
        memory::copy(dst, src, size_bytes);
        Ok(())
    }

    fn fill(&self, dst: u64, pitch_bytes: u64, value: Fill, width: u64, rows: u64) -> Result<(), DeviceError> {
        memory::fill(dst, pitch_bytes, value, width, rows);
        Ok(())
    }

    fn zero(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        self.memory.zero(addr, size_bytes)
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedKernel>, DeviceError> {
        Ok(Arc::new(CpuKernel::load(&self.generator, &self.options, request)?))
    }

    fn create_queue(&self, _priority: i32) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(CpuQueue {
            pool: self.pool.clone(),
            id: self.pool.create_queue(),
        }))
    }

    fn request_pause(&self) -> Result<(), DeviceError> {
        self.pool.request_pause();
        Ok(())
    }

    fn end_pause(&self) -> Result<(), DeviceError> {
        self.pool.end_pause();
        Ok(())
    }
}

struct CpuQueue {
    pool: Arc<Pool>,
    id: pool::QueueId,
}

impl Queue for CpuQueue {
    fn launch(&self, launch: Launch) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        let running = launch::CpuLaunch::new(launch)?;
        self.pool.submit(self.id, running.clone());
        Ok(running)
    }

    fn check(&self, launch: &Launch) -> Result<(), DeviceError> {
        launch::CpuLaunch::new(launch.clone()).map(drop)
    }
}

impl Drop for CpuQueue {
    fn drop(&mut self) {
        self.pool.drop_queue(self.id);
    }
}

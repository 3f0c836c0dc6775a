//! One launch on the CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use hetckpt_abi::paused_block::PausedGrid;

use super::block_run::BlockLaunch;
use super::capture::capture;
use super::context::BlockShape;
use super::kernel::CpuKernel;
use super::work::Work;
use super::{MAX_SHARED_BYTES, MAX_THREADS_PER_BLOCK};
use crate::device::{Blocks, Launch, LoadedKernel, Outcome, RunningLaunch};
use crate::error::DeviceError;

/// A launch: what to run, how far it is, how it ended.
pub struct CpuLaunch {
    kernel: Arc<dyn LoadedKernel>,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared_bytes: u32,
    /// Its blocks may wait for one another.
    pub is_cooperative: bool,
    params: AlignedParams,
    /// What it continues.
    pub continues: Option<Arc<PausedGrid>>,
    /// Sizes of a block.
    pub shape: BlockShape,
    /// Blocks left.
    pub work: Mutex<Work>,
    /// Blocks that a worker should take at once.
    pub grain: AtomicU64,
    paused: AtomicBool,
    failed: AtomicBool,
    end: Mutex<End>,
    ended: Condvar,
}

#[derive(Default)]
struct End {
    is_done: bool,
    /// Taken by `wait`.
    outcome: Option<Outcome>,
    failure: Option<DeviceError>,
}

/// The parameter buffer where native code may load 16 bytes at once.
struct AlignedParams {
    words: Vec<u128>,
    len: usize,
}

impl AlignedParams {
    fn new(bytes: &[u8]) -> Self {
        let words = bytes.chunks(16).map(|chunk| {
            let mut word = [0; 16];
            word[..chunk.len()].copy_from_slice(chunk);
            u128::from_ne_bytes(word)
        });
        Self {
            words: words.collect(),
            len: bytes.len(),
        }
    }

    #[allow(unsafe_code, reason = "words seen as bytes")]
    fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes were copied into the words; any bytes are valid `u8`s.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast::<u8>(), self.len) }
    }
}

impl CpuLaunch {
    /// Checks a launch against the device's limits.
    pub fn new(launch: Launch) -> Result<Arc<Self>, DeviceError> {
        let kernel = cpu_kernel(&*launch.kernel)?;
        let refused = |reason: String| {
            Err(DeviceError::Launch {
                kernel: kernel.name.clone(),
                reason,
            })
        };
        let volume = |d: [u32; 3]| d.iter().try_fold(1u64, |product, &n| product.checked_mul(u64::from(n)));
        let (threads, blocks) = (
            volume(launch.shape.block).unwrap_or(0),
            volume(launch.shape.grid).unwrap_or(0),
        );
        if threads == 0 || threads > u64::from(MAX_THREADS_PER_BLOCK) {
            return refused(format!(
                "blocks of {:?} threads; 1 to {MAX_THREADS_PER_BLOCK} are possible",
                launch.shape.block
            ));
        }
        if blocks == 0 {
            return refused(format!("a grid of {:?} blocks", launch.shape.grid));
        }
        let shared = kernel
            .static_shared_bytes
            .saturating_add(launch.shape.dynamic_shared_bytes);
        if shared > MAX_SHARED_BYTES {
            return refused(format!(
                "{shared} bytes of shared memory; {MAX_SHARED_BYTES} are possible"
            ));
        }
        if launch.params.len() < kernel.param_bytes as usize {
            return refused(format!(
                "{} bytes of parameters instead of {}",
                launch.params.len(),
                kernel.param_bytes
            ));
        }
        let shape = BlockShape {
            num_threads: threads as u32,
            bytes_per_thread: kernel.bytes_per_thread(),
            shared_bytes: shared,
            local_bytes: kernel.local_bytes,
        };
        let (work, continues) = match launch.blocks {
            Blocks::All => (Work::all(blocks), None),
            Blocks::Rest(grid) => (Work::rest(grid.paused.len(), grid.not_started.clone()), Some(grid)),
        };
        Ok(Arc::new(Self {
            grid: launch.shape.grid,
            block: launch.shape.block,
            dynamic_shared_bytes: launch.shape.dynamic_shared_bytes,
            is_cooperative: launch.shape.cooperative,
            params: AlignedParams::new(&launch.params),
            kernel: launch.kernel,
            continues,
            shape,
            work: Mutex::new(work),
            grain: AtomicU64::new(1),
            paused: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            end: Mutex::new(End::default()),
            ended: Condvar::new(),
        }))
    }

    /// The program. `new` made sure that it is this device's.
    pub fn kernel(&self) -> Option<&CpuKernel> {
        self.kernel.as_any().downcast_ref()
    }

    /// Blocks of the grid.
    pub fn num_blocks(&self) -> u64 {
        self.grid.iter().map(|&n| u64::from(n)).product()
    }

    /// What its blocks have in common.
    pub fn block_launch(&self) -> Option<BlockLaunch<'_>> {
        Some(BlockLaunch {
            kernel: self.kernel()?,
            params: self.params.bytes(),
            grid: self.grid,
            block: self.block,
            dynamic_shared_bytes: self.dynamic_shared_bytes,
        })
    }

    /// Asks the launch to stop for good; the caller then tells its workers.
    pub fn pause(&self) {
        self.paused.store(true, Ordering::SeqCst);
    }

    /// True if no block is to be started or go on.
    pub fn is_stopping(&self) -> bool {
        self.paused.load(Ordering::SeqCst) || self.failed.load(Ordering::SeqCst)
    }

    /// Records the first failure.
    pub fn fail(&self, cuda_result: u32, reason: String) {
        let kernel = self.kernel().map_or_else(String::new, |k| k.name.clone());
        self.end.lock().failure.get_or_insert(DeviceError::Fault {
            kernel,
            reason,
            cuda_result,
        });
        self.failed.store(true, Ordering::SeqCst);
    }

    /// Ends the launch if no worker holds a block of it and none is to be given out; true if this call ended it.
    pub fn settle(&self) -> bool {
        let mut work = self.work.lock();
        if work.num_busy != 0 || (work.has_task() && !self.is_stopping()) {
            return false;
        }
        let mut end = self.end.lock();
        if end.is_done {
            return false;
        }
        let outcome = if let Some(failure) = end.failure.take() {
            work.clear();
            Outcome::Failed(failure)
        } else {
            let layout = self.kernel().map(|k| &k.layout);
            let rest = work.take_rest(self.continues.as_deref(), |block| {
                layout
                    .map(|layout| capture(layout, block.block, &block.memory))
                    .unwrap_or_default()
            });
            if rest.is_finished() {
                Outcome::Finished
            } else {
                Outcome::Paused(rest)
            }
        };
        end.outcome = Some(outcome);
        end.is_done = true;
        self.ended.notify_all();
        true
    }

    fn wait_done(&self) -> MutexGuard<'_, End> {
        let mut end = self.end.lock();
        while !end.is_done {
            self.ended.wait(&mut end);
        }
        end
    }
}

fn cpu_kernel(kernel: &dyn LoadedKernel) -> Result<&CpuKernel, DeviceError> {
    kernel.as_any().downcast_ref().ok_or(DeviceError::Launch {
        kernel: String::new(),
        reason: "the kernel was loaded on another device".to_owned(),
    })
}

impl RunningLaunch for CpuLaunch {
    fn is_done(&self) -> bool {
        self.end.lock().is_done
    }

    fn wait(&self) -> Outcome {
        self.wait_done().outcome.take().unwrap_or(Outcome::Finished)
    }

    fn wait_stopped(&self) {
        drop(self.wait_done());
    }
}

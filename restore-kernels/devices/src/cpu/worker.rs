//! A worker thread: takes blocks of a launch and runs them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::block_run::{self, BlockEnd, BlockLaunch};
use super::capture::{capture, reinstate};
use super::context::BlockMemory;
use super::launch::CpuLaunch;
use super::work::{SuspendedBlock, Task};

/// Blocks of a launch that may be set aside at once, which is as many as can wait for one another.
const MAX_SUSPENDED: usize = 4096;
/// A worker looks for other launches this often.
const ROUND: Duration = Duration::from_millis(2);
/// Blocks taken at once should take about this long: less costs locking, more delays the others' share.
const CHUNK: Duration = Duration::from_micros(200);

/// What others see of a worker.
#[derive(Default)]
pub struct WorkerState {
    /// Read by generated code: not 0 = stop at the next probe.
    pub pause: PauseWord,
    turn: Mutex<Turn>,
}

/// A word in a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
pub struct PauseWord(AtomicU32);

#[derive(Default)]
struct Turn {
    launch: Option<Arc<CpuLaunch>>,
    /// When the present block's turn began.
    since: Option<Instant>,
}

impl WorkerState {
    /// Stops the worker's block at its next probe if it belongs to `launch`.
    pub fn interrupt(&self, launch: &Arc<CpuLaunch>) {
        let turn = self.turn.lock();
        if turn.launch.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, launch)) {
            self.pause.0.store(1, Ordering::SeqCst);
        }
    }

    /// Stops the present block if it has had its turn for longer than `limit` says of its launch, and `f` says so.
    pub fn end_long_turn(&self, limit: impl FnOnce(&CpuLaunch) -> Duration, f: impl FnOnce(&Arc<CpuLaunch>) -> bool) {
        let mut turn = self.turn.lock();
        if let (Some(since), Some(launch)) = (turn.since, &turn.launch)
            && since.elapsed() > limit(launch)
            && f(launch)
        {
            self.pause.0.store(1, Ordering::SeqCst);
            turn.since = None;
        }
    }

    fn begin(&self, launch: &Arc<CpuLaunch>) {
        let mut turn = self.turn.lock();
        turn.launch = Some(launch.clone());
        turn.since = Some(Instant::now());
        // Whoever stops the launch sets its flag first and then looks here, under the lock.
        self.pause.0.store(u32::from(launch.is_stopping()), Ordering::SeqCst);
    }

    fn end(&self) {
        *self.turn.lock() = Turn::default();
    }
}

/// Runs blocks of `launch` for a while. `memory` is the worker's own, used again and again; `wake` is called when there
/// is something for another worker.
pub fn run(
    launch: &Arc<CpuLaunch>,
    state: &WorkerState,
    memory: &mut Box<BlockMemory>,
    num_workers: usize,
    wake: &dyn Fn(),
) {
    let Some(block_launch) = launch.block_launch() else {
        return;
    };
    let began = Instant::now();
    let mut share = Share {
        launch,
        block_launch,
        state,
        memory,
    };
    while began.elapsed() < ROUND {
        let task = {
            let mut work = launch.work.lock();
            if launch.is_stopping() {
                return;
            }
            let fair_share = work.num_fresh() / (2 * num_workers as u64) + 1;
            work.take(launch.grain.load(Ordering::Relaxed).min(fair_share), MAX_SUSPENDED)
        };
        let Some(task) = task else { return };
        state.begin(launch);
        share.run_task(task);
        state.end();
        let mut work = launch.work.lock();
        work.num_busy -= 1;
        if work.has_suspended() {
            drop(work);
            wake();
        }
    }
}

/// A worker's share of a launch.
struct Share<'a> {
    launch: &'a CpuLaunch,
    block_launch: BlockLaunch<'a>,
    state: &'a WorkerState,
    memory: &'a mut Box<BlockMemory>,
}

impl Share<'_> {
    fn run_task(&mut self, task: Task) {
        match task {
            Task::Fresh(first, end) => self.run_fresh(first, end),
            Task::Paused(index) => {
                let Some(paused) = self.launch.continues.as_ref().and_then(|grid| grid.paused.get(index)) else {
                    return;
                };
                match reinstate(paused, &self.launch.shape, self.memory) {
                    Ok(()) => self.run_block(paused.block),
                    Err(error) => self.launch.fail(719, error.to_string()),
                }
            }
            Task::Suspended(SuspendedBlock { block, memory }) => {
                *self.memory = memory;
                self.run_block(block);
            }
        }
    }

    fn run_fresh(&mut self, first: u64, end: u64) {
        let began = Instant::now();
        for block in first..end {
            if self.state.pause.0.load(Ordering::Relaxed) != 0 {
                self.launch.work.lock().give_back(block, end);
                return;
            }
            self.memory.reset(&self.launch.shape);
            self.run_block(block);
        }
        adapt_grain(self.launch, end - first, began.elapsed());
    }

    /// Gives a block its turn.
    fn run_block(&mut self, block: u64) {
        match block_run::run(&self.block_launch, block, self.memory, &self.state.pause.0) {
            BlockEnd::Finished => {}
            BlockEnd::Failed { cuda_result, reason } => {
                self.launch.fail(cuda_result, reason);
                // The rest of this worker's chunk is not to run either.
                self.state.pause.0.store(1, Ordering::Relaxed);
            }
            BlockEnd::Interrupted if !self.launch.is_stopping() => {
                let memory = std::mem::take(self.memory);
                self.launch.work.lock().suspend(SuspendedBlock { block, memory });
            }
            BlockEnd::Interrupted if self.memory.points.iter().all(|&p| p == 0) => {
                self.launch.work.lock().give_back(block, block + 1);
            }
            BlockEnd::Interrupted => {
                let stopped = capture(&self.block_launch.kernel.layout, block, self.memory);
                self.launch.work.lock().stop(stopped);
            }
        }
    }
}

/// Doubles or halves the number of blocks taken at once, towards [`CHUNK`].
fn adapt_grain(launch: &CpuLaunch, num_blocks: u64, took: Duration) {
    let grain = launch.grain.load(Ordering::Relaxed);
    if took < CHUNK / 2 && num_blocks >= grain {
        launch.grain.store((grain * 2).min(1 << 20), Ordering::Relaxed);
    } else if took > CHUNK * 2 {
        launch.grain.store((grain / 2).max(1), Ordering::Relaxed);
    }
}

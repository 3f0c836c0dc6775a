#![allow(unsafe_code, reason = "calls generated code")]
//! Runs one block: regions, warp-level operations, barriers, until it ends, stops or has had its turn.
//!
//! Threads of kernels with warp-level operations run warp by warp, each as far as it gets; otherwise the whole block is
//! one group, so that a region function is called with long ranges.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use hetckpt_abi::cpu_block::CpuBlock;
use hetckpt_abi::cpu_tables::BarrierTable;
use hetckpt_abi::thread_state::FINISHED;

use super::context::BlockMemory;
use super::fault::call_region;
use super::kernel::{CpuKernel, Waits};
use super::warp::WARP_SIZE;
use super::{barrier, step, warp};

/// Threads given to a region function at once: each runs to its next probe before the pause word stops the call.
const MAX_THREADS_PER_CALL: usize = 128;
/// Times that a warp goes on past a warp-level operation before the next warp has its turn: one that spins may be
/// waiting for another.
const MAX_ADVANCES: u32 = 256;

/// Turns, 50 ms each, after which threads that wait at a step go on although others have not come as far as they can.
const MAX_TURNS_AT_STEPS: u32 = 20;

/// How a turn of a block ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockEnd {
    /// All threads finished.
    Finished,
    /// The pause word was seen: threads are where they stopped, or wait.
    Interrupted,
    /// It failed.
    Failed {
        /// For the program.
        cuda_result: u32,
        /// For a person.
        reason: String,
    },
}

/// What all blocks of a launch have in common.
pub struct BlockLaunch<'a> {
    /// Program.
    pub kernel: &'a CpuKernel,
    /// Parameter buffer, 16-byte aligned.
    pub params: &'a [u8],
    /// Grid.
    pub grid: [u32; 3],
    /// Block dimensions.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub dynamic_shared_bytes: u32,
}

/// Runs block `index` from where `memory` says its threads are. `pause` is the worker's word.
pub fn run(launch: &BlockLaunch<'_>, index: u64, memory: &mut BlockMemory, pause: &AtomicU32) -> BlockEnd {
    let num_threads = launch.block.iter().product();
    let grid = launch.grid;
    let (nx, ny) = (u64::from(grid[0]), u64::from(grid[1]));
    let mut context = CpuBlock {
        global: ptr::null_mut(),
        pause: pause.as_ptr(),
        params: launch.params.as_ptr(),
        resume_points: ptr::null_mut(),
        registers: ptr::null_mut(),
        shared: ptr::null_mut(),
        local: ptr::null_mut(),
        trapped: ptr::null_mut(),
        num_threads,
        dynamic_shared_bytes: launch.dynamic_shared_bytes,
        block_dim: launch.block,
        grid_dim: grid,
        // Each is below its extent, which has 32 bits.
        block_index: [(index % nx) as u32, (index / nx % ny) as u32, (index / nx / ny) as u32],
        reserved: 0,
    };
    let mut turn = Turn {
        kernel: launch.kernel,
        memory,
        context: &mut context,
        pause,
    };
    match turn.run() {
        Ok(end) | Err(end) => end,
    }
}

struct Turn<'a> {
    kernel: &'a CpuKernel,
    memory: &'a mut BlockMemory,
    context: &'a mut CpuBlock,
    pause: &'a AtomicU32,
}

impl Turn<'_> {
    /// `Err` is an end found in the middle.
    fn run(&mut self) -> Result<BlockEnd, BlockEnd> {
        let num_threads = self.memory.points.len();
        let group_size = if self.kernel.warp_ops().is_empty() {
            num_threads
        } else {
            WARP_SIZE
        };
        let next = std::mem::take(&mut self.memory.next_thread);
        self.free_waiting(group_size);
        self.run_ready(next, num_threads)?;
        loop {
            let mut has_more = false;
            for first in (0..num_threads).step_by(group_size.max(1)) {
                has_more |= self.run_group(first, (first + group_size).min(num_threads))?;
            }
            if self.memory.is_finished() {
                return Ok(BlockEnd::Finished);
            }
            self.check_pause()?;
            if !self.release(has_more) {
                return Ok(BlockEnd::Failed {
                    cuda_result: 719,
                    reason: self.describe_deadlock(),
                });
            }
        }
    }

    /// A turn that has ended early has come to no end of what threads can do by themselves: one spins, perhaps for
    /// others that wait. These go on, if they wait for nobody else.
    fn free_waiting(&mut self, group_size: usize) {
        let num_threads = self.memory.points.len();
        if !self.kernel.warp_ops().is_empty() {
            for first in (0..num_threads).step_by(group_size.max(1)) {
                warp::advance(self.kernel, self.memory, first, (first + group_size).min(num_threads));
            }
        }
        if step::is_waited_at(self.kernel, self.memory) {
            self.memory.turns_at_steps += 1;
            if self.memory.turns_at_steps > MAX_TURNS_AT_STEPS {
                step::release(self.kernel, self.memory);
            }
        }
    }

    /// Lets threads go on that have waited for others of the block. False if there are none, and nothing else goes on.
    fn release(&mut self, has_more: bool) -> bool {
        // Those that go on may be spinning until one that waits at a step goes on.
        let goes_on = step::release(self.kernel, self.memory) || has_more;
        // Only a barrier for a part of the block can be complete then.
        let is_for_part = |b: &BarrierTable| b.count.is_some();
        if goes_on && !self.kernel.barriers().iter().any(is_for_part) {
            return true;
        }
        barrier::release(self.kernel, self.memory) || goes_on
    }

    /// Runs threads `first..end` until none of them can go on, or for a while; true if some can go on.
    fn run_group(&mut self, first: usize, end: usize) -> Result<bool, BlockEnd> {
        for _ in 0..MAX_ADVANCES {
            self.run_ready(first, end)?;
            if self.kernel.warp_ops().is_empty() || !warp::advance(self.kernel, self.memory, first, end) {
                return Ok(false);
            }
            self.check_pause()?;
        }
        Ok(true)
    }

    /// Runs each thread of `first..end` that can go on, neighbours at the same point together.
    fn run_ready(&mut self, first: usize, end: usize) -> Result<(), BlockEnd> {
        let mut start = first;
        while start < end {
            let point = self.memory.points[start];
            let most = end.min(start + MAX_THREADS_PER_CALL);
            let length = self.memory.points[start..most]
                .iter()
                .take_while(|&&p| p == point)
                .count();
            let stop = start + length;
            let function = if point == FINISHED {
                None
            } else {
                self.kernel.region(point)
            };
            if let Some(function) = function {
                self.memory.fill_context(self.context);
                let (from, to) = (start as u32, stop as u32);
                // SAFETY: the context's pointers are to memory of the block's shape, made just now; all threads of the
                // range are at the function's resume point.
                let result = unsafe { call_region(function, self.context, from, to) };
                result.map_err(|fault| BlockEnd::Failed {
                    cuda_result: fault.cuda_result(),
                    reason: format!(
                        "{fault} by one of threads {from} to {} of block {:?}",
                        to - 1,
                        self.context.block_index
                    ),
                })?;
                if self.memory.trapped != 0 {
                    let reason = format!("trap in block {:?}", self.context.block_index);
                    return Err(BlockEnd::Failed {
                        cuda_result: 719,
                        reason,
                    });
                }
                // Threads that stopped at a probe could go on at once where all points have functions; they must not.
                self.check_pause_unless_finished()
                    .inspect_err(|_| self.memory.next_thread = stop % self.memory.points.len())?;
            } else if point != FINISHED && self.kernel.waits(point) == Waits::No {
                let reason = format!(
                    "rp{point}, at which threads of block {:?} stand, cannot be started",
                    self.context.block_index
                );
                return Err(BlockEnd::Failed {
                    cuda_result: 719,
                    reason,
                });
            }
            start = stop;
        }
        Ok(())
    }

    fn check_pause(&self) -> Result<(), BlockEnd> {
        if self.pause.load(Ordering::Relaxed) == 0 {
            Ok(())
        } else {
            Err(BlockEnd::Interrupted)
        }
    }

    fn check_pause_unless_finished(&self) -> Result<(), BlockEnd> {
        self.check_pause().map_err(|end| {
            if self.memory.is_finished() {
                BlockEnd::Finished
            } else {
                end
            }
        })
    }

    fn describe_deadlock(&self) -> String {
        let mut counts = BTreeMap::new();
        for &point in &self.memory.points {
            *counts.entry(point).or_insert(0u32) += 1;
        }
        let places: Vec<String> = counts
            .iter()
            .map(|(&point, count)| match (point, self.kernel.waits(point)) {
                (FINISHED, _) => format!("{count} finished"),
                (_, Waits::Barrier(_)) => format!("{count} at the barrier rp{point}"),
                (_, Waits::WarpOp(i)) => format!(
                    "{count} at the warp operation rp{point} ({:?})",
                    self.kernel.warp_ops()[i].op
                ),
                (_, Waits::No | Waits::Step(_)) => format!("{count} at rp{point}"),
            })
            .collect();
        format!(
            "threads of block {:?} wait for each other for ever: {}",
            self.context.block_index,
            places.join(", ")
        )
    }
}

//! A block: its threads take turns until all have finished or stopped.

use hetckpt_ir::kernel::Kernel;

use super::grid::World;
use super::thread::{State, Thread};
use super::{barrier, step, warp};
use crate::error::Error;

/// Lanes of a warp.
pub(super) const WARP: usize = 32;

/// One block of the grid.
pub(super) struct Block {
    /// Linear index in the grid.
    pub linear: u64,
    pub threads: Vec<Thread>,
    pub shared: Vec<u8>,
    /// What each warp decided at the entry, in kernels where a warp starts together or not at all.
    pub entry_decisions: Vec<Option<bool>>,
}

impl Block {
    /// A block whose threads are at the kernel's start.
    pub(super) fn new(linear: u64, kernel: &Kernel, num_threads: usize, shared_bytes: usize) -> Self {
        Self {
            linear,
            threads: vec![Thread::new(kernel); num_threads],
            shared: vec![0; shared_bytes],
            entry_decisions: vec![None; num_threads.div_ceil(WARP)],
        }
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.threads
            .iter()
            .all(|t| matches!(t.state, State::Finished | State::Stopped(_)))
    }

    /// Everyone's turn once.
    pub(super) fn round(&mut self, world: &mut World<'_>) -> Result<(), Error> {
        let mut has_moved = false;
        for thread in 0..self.threads.len() {
            for _ in 0..world.options.quantum.max(1) {
                if self.threads[thread].state != State::Running {
                    break;
                }
                step::step(world, self, thread)?;
                has_moved = true;
            }
        }
        for first in (0..self.threads.len()).step_by(WARP) {
            has_moved |= warp::resolve(world, self, first)?;
        }
        // Whoever leaves a warp-level operation may still be on the way to the barrier.
        has_moved |= barrier::resolve(world, self)?;
        if has_moved || self.is_at_rest() {
            Ok(())
        } else {
            Err(self.stuck())
        }
    }

    fn stuck(&self) -> Error {
        let waiting = self
            .threads
            .iter()
            .find(|t| matches!(t.state, State::AtBarrier | State::AtWarpOp));
        let is_stopped = self.threads.iter().any(|t| matches!(t.state, State::Stopped(_)));
        match waiting {
            Some(thread) if is_stopped => Error::CannotStop {
                block: self.linear,
                at: thread.block,
            },
            _ => Error::Deadlock { block: self.linear },
        }
    }
}

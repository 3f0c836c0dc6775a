//! A block: its threads and its shared memory.

use hetckpt_ir::kernel::Kernel;

use super::thread::{State, Thread};

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
}

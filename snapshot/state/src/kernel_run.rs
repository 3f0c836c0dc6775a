//! A kernel that was stopped while it ran.

use bincode::Encode;
use hetckpt_abi::launch_shape::LaunchShape;

use crate::budget::decode_fields;
use crate::thread::{ResumePointRegisters, StoppedBlock};

/// A probed kernel that some launch is stopped in; kept as text, so that any target can be generated from it again.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct ProbedKernel {
    /// Mangled name.
    pub name: String,
    /// The probed kernel in hetIR's text form, module variables bound to their addresses.
    pub text: String,
    /// Static shared memory of a block in bytes.
    pub static_shared_bytes: u32,
    /// What is saved at each resume point, by ascending number.
    pub resume_points: Vec<ResumePointRegisters>,
}

decode_fields!(ProbedKernel {
    name: text,
    text: text,
    static_shared_bytes: value,
    resume_points: list,
});

/// A stopped launch: blocks that are neither stopped nor not started have finished.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct KernelRun {
    /// Index of its kernel in [`crate::process::ProcessState::probed_kernels`].
    pub probed_kernel: u32,
    /// How many threads; the unfinished blocks of a cooperative launch must run together.
    pub shape: LaunchShape,
    /// Parameter buffer.
    pub params: Vec<u8>,
    /// Blocks stopped part-way, by ascending index.
    pub stopped: Vec<StoppedBlock>,
    /// Blocks not started: ascending, disjoint ranges, end exclusive.
    pub not_started: Vec<(u64, u64)>,
    /// The threads of each stopped block are in step: what one of them does next, the others do too, as far as the
    /// kernel's control flow is the same for all of them.
    pub in_step: bool,
}

decode_fields!(KernelRun {
    probed_kernel: value,
    shape: value,
    params: bytes,
    stopped: list,
    not_started: list,
    in_step: value,
});

impl KernelRun {
    /// True if its sizes can be, and no blocks are listed that it cannot have.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        if !self.shape.is_possible() {
            return false;
        }
        let num_blocks = self.shape.num_blocks();
        let mut end = 0;
        let are_ordered = self.not_started.iter().all(|&(first, past)| {
            let follows = end <= first && first < past && past <= num_blocks;
            end = past;
            follows
        });
        are_ordered && self.stopped.iter().all(|stopped| stopped.block < num_blocks)
    }

    /// Blocks not started.
    #[must_use]
    pub fn num_not_started(&self) -> u64 {
        self.not_started
            .iter()
            .map(|&(first, end)| end.saturating_sub(first))
            .sum()
    }

    /// Blocks that have finished.
    #[must_use]
    pub fn num_finished(&self) -> u64 {
        self.shape
            .num_blocks()
            .saturating_sub(self.stopped.len() as u64)
            .saturating_sub(self.num_not_started())
    }
}

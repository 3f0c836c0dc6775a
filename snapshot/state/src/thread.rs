//! Threads of blocks that were stopped part-way.
//!
//! Threads of one block that stopped at the same resume point form a group; a group holds only the registers that are
//! live at its resume point, each as one array over the group's threads (structure of arrays). Which registers these
//! are, and how wide, stands once per kernel in [`ResumePointRegisters`].

use crate::budget::decode_fields;
use bincode::Encode;

/// Registers saved at one resume point of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct ResumePointRegisters {
    /// The resume point's number in the probed kernel.
    pub resume_point: u32,
    /// Number and width in bytes (1, 2, 4, 8) of each register, in the order in which a group stores them.
    pub registers: Vec<(u32, u8)>,
}

decode_fields!(ResumePointRegisters {
    resume_point: value,
    registers: list,
});

impl ResumePointRegisters {
    /// Bytes saved for one thread.
    #[must_use]
    pub fn bytes_per_thread(&self) -> u64 {
        self.registers.iter().map(|&(_, width)| u64::from(width)).sum()
    }
}

/// Threads of a block that stopped at the same resume point.
///
/// # Shape
/// With `n` threads, register `i` of the resume point's list takes `n * width` bytes; thread `j` of the group (in
/// ascending order) is element `j`.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct ThreadGroup {
    /// Where they go on.
    pub resume_point: u32,
    /// Linear indices in the block: ascending, disjoint ranges, end exclusive.
    pub threads: Vec<(u32, u32)>,
    /// Register arrays, one after another.
    pub registers: Vec<u8>,
}

decode_fields!(ThreadGroup {
    resume_point: value,
    threads: list,
    registers: bytes,
});

impl ThreadGroup {
    /// Number of threads in the group.
    #[must_use]
    pub fn num_threads(&self) -> u64 {
        self.threads
            .iter()
            .map(|&(first, end)| u64::from(end.saturating_sub(first)))
            .sum()
    }
}

/// A block stopped part-way. Threads in no group have finished.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct StoppedBlock {
    /// Linear index in the grid: `x + nx * (y + ny * z)`.
    pub block: u64,
    /// Threads by resume point, ascending; resume point 0: not started.
    pub groups: Vec<ThreadGroup>,
    /// Shared memory, static then dynamic.
    pub shared: Vec<u8>,
    /// Local frames, one after another in thread order.
    pub local: Vec<u8>,
}

decode_fields!(StoppedBlock {
    block: value,
    groups: list,
    shared: bytes,
    local: bytes,
});

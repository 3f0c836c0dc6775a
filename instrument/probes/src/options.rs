//! How densely probes stand.

/// How densely probes stand. The defaults keep a poll's cost below a percent of the work between two polls, and that
/// work below a fraction of a millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Instructions a thread may execute between two polls, by estimate.
    pub budget_insts: u32,
    /// Iterations between two polls of a strip-mined loop, at most.
    pub max_chunk: u32,
    /// Bodies that an unrolled loop has, at most.
    pub max_unroll: u32,
    /// Instructions that an unrolled loop has, at most.
    pub max_unrolled_insts: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            budget_insts: 16 * 1024,
            max_chunk: 1024,
            max_unroll: 8,
            max_unrolled_insts: 512,
        }
    }
}

impl Options {
    /// Options under which loops poll about every `chunk` iterations, however short they are.
    #[must_use]
    pub fn dense(chunk: u32) -> Self {
        Self {
            budget_insts: chunk,
            max_chunk: chunk,
            ..Self::default()
        }
    }
}

//! A block that was stopped part-way, as devices hand it out and take it back.

/// State of the threads and memory of one block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PausedBlock {
    /// Linear index in the program's grid: `x + nx * (y + ny * z)`.
    pub block: u64,
    /// Resume point of each thread in linear order; [`crate::thread_state::FINISHED`] if it has finished, 0 if it has
    /// not started.
    pub resume_points: Vec<u32>,
    /// Register area ([`crate::thread_state::ThreadStateLayout`]); bytes of registers that are not live are 0.
    pub registers: Vec<u8>,
    /// Shared memory, static then dynamic.
    pub shared: Vec<u8>,
    /// Local frames, one after another in thread order.
    pub local: Vec<u8>,
}

/// What is left of a launch after a pause: everything that is neither here nor not started has finished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PausedGrid {
    /// Blocks stopped part-way, by ascending index.
    pub paused: Vec<PausedBlock>,
    /// Blocks not started: ascending, disjoint ranges of linear indices, end exclusive.
    pub not_started: Vec<(u64, u64)>,
}

impl PausedGrid {
    /// True if the launch has finished.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.paused.is_empty() && self.not_started.is_empty()
    }

    /// Number of blocks not started.
    #[must_use]
    pub fn num_not_started(&self) -> u64 {
        self.not_started.iter().map(|(first, end)| end - first).sum()
    }
}

//! What a run that is interrupted is compared with.

use std::time::Duration;

use crate::process::Outcome;

/// An uninterrupted run: what all others are compared with.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// The length that was used.
    pub length: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took, from start to end.
    pub duration: Duration,
    /// For how long kernels were in flight.
    pub kernels: Duration,
}

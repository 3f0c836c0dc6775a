//! Judges a probed kernel against the kernel it came from. Shares no code with the passes.
//!
//! Rules, one file each:
//! * `shape`: resume points, barriers, warp-level operations and the entry probe stand as hetIR promises.
//! * `saved_state`: what is saved at each resume point holds everything that is read after it.
//! * `cycles`: control cannot go round without passing a barrier, a poll, or a branch beside a poll.
//! * `erasure`: taking out what was inserted gives back the kernel, instruction by instruction, along every path.
//!
//! What remains to be believed, and is tested by running: that a branch beside a poll takes it often enough, and that
//! the end of a chunk lies before the end of the loop.

mod shape;
mod saved_state;
mod cycles;
mod erasure;

use hetckpt_ir::entity::{BbId, RegId, ResumePointId};
use hetckpt_ir::kernel::Kernel;
use thiserror::Error;

/// What is wrong with a probed kernel. All variants are bugs in the probe passes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// The entry block has predecessors, or does not end in the poll of `rp0`, or does more than compute registers.
    #[error("the entry block is not an entry probe")]
    Entry,
    /// A barrier shares its basic block or lacks its resume points.
    #[error("the barrier of {0} does not stand alone between its resume points")]
    Barrier(BbId),
    /// A warp-level operation shares its basic block or lacks its resume points.
    #[error("the warp-level operation of {0} does not stand alone between its resume points")]
    WarpOp(BbId),
    /// A poll does not go on at its resume point.
    #[error("the poll of {0} does not go on at its resume point")]
    Poll(BbId),
    /// A resume point belongs to no probe, or to several.
    #[error("resume point {0} belongs to {1} probes")]
    ResumePoint(ResumePointId, usize),
    /// A register is read after a resume point that does not save it.
    #[error("{1} is read after {0}, which does not save it")]
    NotSaved(ResumePointId, RegId),
    /// Control can go round without a probe.
    #[error("control can go round through {0} without passing a probe")]
    UnprobedCycle(BbId),
    /// The probed kernel does something else than the original.
    #[error("{probed} does not do what {original} of the original does")]
    Differs {
        /// Where in the original.
        original: BbId,
        /// Where in the probed kernel.
        probed: BbId,
    },
}

/// Checks `probed`, made from `original`.
///
/// # Errors
/// All that is wrong.
pub fn check(original: &Kernel, probed: &Kernel) -> Result<(), Vec<Violation>> {
    let mut violations = shape::violations(probed);
    violations.extend(saved_state::violations(probed));
    violations.extend(cycles::violations(probed));
    violations.extend(erasure::violations(original, probed));
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

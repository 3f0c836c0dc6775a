//! A program: a kernel made ready for one way of being started.

use hetckpt_ir::entity::{BbId, ResumePointId};
use hetckpt_ir::kernel::Kernel;

/// A probed kernel and the resume points at which its threads may be started.
///
/// An ordinary launch starts all threads at the entry: `entries` is `[(rp0, bb0)]`. A continuation, made by
/// resegmentation, starts each thread at the resume point it had stopped at. Resume points keep the ids they have in
/// the probed kernel, whatever blocks were cloned, so that a continuation can be stopped and captured like the
/// original.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The kernel. Its `resume_points[i].block` may differ from `entries`: clones exist only here.
    pub kernel: Kernel,
    /// Where a thread at the resume point goes on. In ascending order of resume points; no resume point twice.
    pub entries: Vec<(ResumePointId, BbId)>,
}

impl Program {
    /// An ordinary start of `kernel`.
    #[must_use]
    pub fn from_start(kernel: Kernel) -> Self {
        Self {
            kernel,
            entries: vec![(Kernel::ENTRY_POINT, Kernel::ENTRY)],
        }
    }

    /// True if threads may start elsewhere than at the entry.
    #[must_use]
    pub fn is_continuation(&self) -> bool {
        self.entries != [(Kernel::ENTRY_POINT, Kernel::ENTRY)]
    }
}

//! Basic blocks and their terminators.

use crate::entity::{BbId, RegId, ResumePointId, Span};
use crate::inst::{Guard, Inst, Operand};

/// Straight-line code and where it goes.
#[derive(Clone, Debug, PartialEq)]
pub struct BasicBlock {
    /// Instructions, first to last.
    pub insts: Vec<Inst>,
    /// Where control goes then.
    pub terminator: Terminator,
    /// Source position of the terminator.
    pub span: Span,
}

/// Number of a barrier that is none of PTX's, for one thread: it goes on once the others have got as far as they can.
pub const GIVE_WAY: u64 = 16;

/// The end of a basic block.
#[derive(Clone, Debug, PartialEq)]
pub enum Terminator {
    /// Unconditional.
    Jump(BbId),
    /// `guard ? taken : not_taken`.
    Branch {
        /// Condition.
        guard: Guard,
        /// If it holds.
        taken: BbId,
        /// If not.
        not_taken: BbId,
    },
    /// The thread ends.
    Exit,
    /// The thread traps: the launch fails.
    Trap,
    /// `bar.sync` or `bar.red` (PTX ISA, "barrier"): wait for all threads of the block that have not exited.
    /// After the probe pass such a block has no instructions of its own.
    Barrier {
        /// Barrier number, 0 to 15, or [`GIVE_WAY`].
        id: Operand,
        /// Threads taking part; `None`: the whole block.
        count: Option<Operand>,
        /// Reduction, if any.
        reduction: Option<BarrierReduction>,
        /// Set by the probe pass.
        probe: Option<BarrierProbe>,
        /// Where all go on.
        next: BbId,
    },
    /// A probe: ask whether to stop. A thread that stops saves what is live at `resume_point`; one whose warp or block
    /// does not decide to stop goes on at `next`. Inserted by the probe pass.
    Poll {
        /// Where a thread stopped here goes on. Its block is `next`, except for the entry probe, whose block is `bb0`
        /// (nothing has happened yet, so the thread counts as not started and nothing is saved).
        resume_point: ResumePointId,
        /// Where a thread goes that is not to stop.
        next: BbId,
    },
}

/// Reduction of `bar.red` over the threads' predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BarrierReduction {
    /// Which.
    pub op: BarrierReductionOp,
    /// Result: a predicate for and/or, 32 bits for popc.
    pub dst: RegId,
    /// Each thread's predicate.
    pub src: Guard,
}

/// Operation of `bar.red`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum BarrierReductionOp {
    And,
    Or,
    Popc,
}

/// Resume points around a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BarrierProbe {
    /// Start of the barrier's own block: the thread has not arrived yet.
    pub arrive: ResumePointId,
    /// Start of the following block: the thread has left the barrier.
    pub leave: ResumePointId,
}

impl Terminator {
    /// Basic blocks control may go to, in order.
    #[must_use]
    pub fn successors(&self) -> Vec<BbId> {
        match self {
            Terminator::Jump(next) | Terminator::Barrier { next, .. } | Terminator::Poll { next, .. } => vec![*next],
            Terminator::Branch { taken, not_taken, .. } => vec![*taken, *not_taken],
            Terminator::Exit | Terminator::Trap => vec![],
        }
    }

    /// Replaces each successor by `f` of it.
    pub fn map_successors(&mut self, mut f: impl FnMut(BbId) -> BbId) {
        match self {
            Terminator::Jump(next) | Terminator::Barrier { next, .. } | Terminator::Poll { next, .. } => {
                *next = f(*next);
            }
            Terminator::Branch { taken, not_taken, .. } => {
                *taken = f(*taken);
                *not_taken = f(*not_taken);
            }
            Terminator::Exit | Terminator::Trap => {}
        }
    }
}

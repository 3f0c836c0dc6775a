//! Threads that are absent: what keeps a block together where part of it ends, or goes round a barrier.
//!
//! OpenCL C's barriers, and so the warp-level operations made of them, need every thread of the block, while a CUDA kernel
//! may let threads end before (`if (i >= n) return;`) or let only some warps come (`if (warp == 0) …`). Where a branch
//! decides which threads come to such a place, here all go there, if any does, those that the branch would have sent
//! elsewhere as *absent*: they compute what is the same for the block, so that they take its uniform branches, but do not
//! touch memory that only some touch, take no part in reductions, and at a divergent branch go straight to where its
//! ways meet. Where the two ways of the first branch meet, they get their registers back and are present again. If both
//! ways have code, one is gone after the other.
//!
//! [`meeting`] judges the rewritten kernel, in which that branch is one on what a reduction at a barrier
//! says, the same for all.

use std::collections::BTreeMap;

use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::analysis::dominators::PostDominators;
use hetckpt_ir::analysis::liveness::Liveness;
use hetckpt_ir::basic_block::{BarrierReduction, BarrierReductionOp, BasicBlock, Terminator};
use hetckpt_ir::entity::{BbId, RegId};
use hetckpt_ir::inst::{Guard, Inst, Op, Operand};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Type, Width};

use super::Error;
use super::meeting::{self, Facts};

/// A place from which on some threads are absent.
#[derive(Clone, Debug)]
pub(super) struct Leave {
    /// Number, for names.
    pub id: usize,
    /// Holds for the threads that stay.
    pub stays: Guard,
    /// Where they are present again; `None` if they have ended.
    pub back_at: Option<BbId>,
    /// They have not just ended, but trapped.
    pub traps: bool,
    /// Registers that they get back there.
    pub keeps: Vec<RegId>,
}

/// A kernel whose threads all meet, and which of them are absent where.
#[derive(Debug)]
pub(super) struct Presence {
    /// The kernel, rewritten.
    pub kernel: Kernel,
    /// By the block at whose end threads become absent.
    pub leaves: BTreeMap<BbId, Leave>,
    /// What is known of the rewritten kernel.
    pub facts: Facts,
}

impl Presence {
    /// Rewrites `kernel` until all threads come together wherever threads meet.
    ///
    /// # Errors
    /// What [`meeting::check`] says of a branch that cannot be rewritten.
    pub fn new(kernel: &Kernel) -> Result<Self, Error> {
        let mut kernel = kernel.clone();
        let mut leaves = BTreeMap::new();
        loop {
            let restored = leaves.values().flat_map(|leave: &Leave| {
                let keeps = leave.keeps.iter();
                leave
                    .back_at
                    .into_iter()
                    .flat_map(move |at| keeps.clone().map(move |reg| (at, *reg)))
            });
            let restored: Vec<(BbId, RegId)> = restored.collect();
            match meeting::check(&kernel, &restored) {
                Ok(facts) => return Ok(Self { kernel, leaves, facts }),
                Err((error, None)) => return Err(error),
                Err((error, Some(branch))) => {
                    let id = leaves.len();
                    let (at, leave) = keep_together(&mut kernel, branch, id).ok_or(error)?;
                    leaves.insert(at, leave);
                }
            }
        }
    }

    /// True if threads may be absent.
    pub fn has_absent(&self) -> bool {
        !self.leaves.is_empty()
    }
}

/// Makes the branch at the end of `at` one that the block takes as a whole; `None` if it has not the form for that.
fn keep_together(kernel: &mut Kernel, mut at: BbId, id: usize) -> Option<(BbId, Leave)> {
    let Terminator::Branch {
        guard,
        taken,
        not_taken,
    } = kernel.blocks[at.index()].terminator
    else {
        return None;
    };
    let cfg = Cfg::new(kernel);
    let join = PostDominators::new(&cfg).immediate(at);
    let is_skipped = |side: BbId| Some(side) == join || only_ends(kernel, side);
    let negated = Guard {
        negated: !guard.negated,
        ..guard
    };
    let (side, other, stays) = match (is_skipped(taken), is_skipped(not_taken)) {
        (false, true) => (taken, not_taken, guard),
        (true, false) => (not_taken, taken, negated),
        (true, true) => return None,
        (false, false) => {
            let (second, stays) = one_after_the_other(kernel, &cfg, at, join?)?;
            at = second;
            (taken, join?, stays)
        }
    };
    let back_at = Some(other).filter(|other| !only_ends(kernel, *other));
    let keeps = match back_at {
        None => Vec::new(),
        Some(back_at) => kept(kernel, at, side, back_at)?,
    };
    let any = kernel.add_register(Width::Pred);
    let span = kernel.blocks[at.index()].span;
    let decision = kernel.add_block(BasicBlock {
        insts: Vec::new(),
        terminator: Terminator::Branch {
            guard: Guard {
                pred: any,
                negated: false,
            },
            taken: side,
            not_taken: other,
        },
        span,
    });
    kernel.blocks[at.index()].terminator = Terminator::Barrier {
        id: Operand::Imm(0),
        count: None,
        reduction: Some(BarrierReduction {
            op: BarrierReductionOp::Or,
            dst: any,
            src: stays,
        }),
        probe: None,
        next: decision,
    };
    let leave = Leave {
        id,
        stays,
        back_at,
        traps: kernel.blocks[other.index()].terminator == Terminator::Trap && back_at.is_none(),
        keeps,
    };
    Some((decision, leave))
}

/// True if a block ends the thread and does nothing else.
fn only_ends(kernel: &Kernel, id: BbId) -> bool {
    let block = &kernel.blocks[id.index()];
    block.insts.is_empty() && matches!(block.terminator, Terminator::Exit | Terminator::Trap)
}

/// Puts the sides of a branch one after the other: first the one not taken, then a new block, which is returned with the
/// condition for the side taken. `None` if the sides share code or both have barriers: those may be one, at which the
/// threads of both sides wait for each other.
fn one_after_the_other(kernel: &mut Kernel, cfg: &Cfg, at: BbId, join: BbId) -> Option<(BbId, Guard)> {
    let span = kernel.blocks[at.index()].span;
    let Terminator::Branch {
        guard,
        taken,
        not_taken,
    } = kernel.blocks[at.index()].terminator
    else {
        return None;
    };
    let (first, second) = (
        meeting::before(cfg, &[not_taken], Some(join)),
        meeting::before(cfg, &[taken], Some(join)),
    );
    let has_barrier = |side: &[bool]| {
        let mut blocks = kernel.blocks.iter().zip(side).filter(|(_, is_in)| **is_in);
        blocks.any(|(block, _)| matches!(block.terminator, Terminator::Barrier { .. }))
    };
    let shares = first.iter().zip(&second).any(|(a, b)| *a && *b);
    if shares || first[at.index()] || second[at.index()] || (has_barrier(&first) && has_barrier(&second)) {
        return None;
    }
    let pred = kernel.add_register(Width::Pred);
    kernel.blocks[at.index()].insts.push(Inst {
        op: Op::Mov {
            ty: Type::Pred,
            dst: pred,
            src: Operand::Reg(guard.pred),
        },
        guard: None,
        span,
    });
    let middle = kernel.add_block(BasicBlock {
        insts: Vec::new(),
        terminator: Terminator::Jump(taken),
        span,
    });
    for (block, _) in kernel.blocks.iter_mut().zip(&first).filter(|(_, is_in)| **is_in) {
        block
            .terminator
            .map_successors(|to| if to == join { middle } else { to });
    }
    kernel.blocks[at.index()].terminator = Terminator::Branch {
        guard,
        taken: middle,
        not_taken,
    };
    Some((middle, Guard { pred, ..guard }))
}

/// Registers that are written between `side` and `back_at` and read from there on; `None` if control may come back to
/// `at` before.
fn kept(kernel: &Kernel, at: BbId, side: BbId, back_at: BbId) -> Option<Vec<RegId>> {
    let between = meeting::before(&Cfg::new(kernel), &[side], Some(back_at));
    if between[at.index()] {
        return None;
    }
    let liveness = Liveness::new(kernel);
    let mut keeps = Vec::new();
    let mut keep = |reg: RegId| {
        if liveness.live_in(back_at).contains(reg) {
            keeps.push(reg);
        }
    };
    for (_, block) in kernel.iter_blocks().filter(|(id, _)| between[id.index()]) {
        block.insts.iter().for_each(|inst| inst.for_each_def(&mut keep));
        block.terminator.def().into_iter().for_each(&mut keep);
    }
    keeps.sort_unstable();
    keeps.dedup();
    Some(keeps)
}

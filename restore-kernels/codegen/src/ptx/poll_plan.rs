//! How each loop probe and each warp-level operation asks whether to stop.
//!
//! In a kernel without warp-level operations every thread asks for itself. With them, a probe that a warp's lanes pass
//! together is decided by the warp. Where lanes come to a probe apart from each other, a lane may stop alone only if it can
//! end at once: then the warp's other lanes find out at their next warp-level operation, whose `bar.warp.sync` waits
//! until each lane has come or ended. A lane that must wait for its block first (see [`super::save`]) would never be met
//! there, so in such kernels those probes are left out, and the warp-level operations after them ask instead.

use hetckpt_ir::analysis::definitions::Definitions;
use hetckpt_ir::analysis::uniformity::{Divergence, Uniformity};
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::BbId;
use hetckpt_ir::inst::Op;
use hetckpt_ir::kernel::Kernel;

use super::facts::Facts;

/// How a loop probe is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopPoll {
    /// Each thread for itself.
    Alone,
    /// The warp by vote.
    Together,
    /// Not at all.
    LeftOut,
}

/// What a warp asks before a warp-level operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WarpPoll {
    /// Nothing.
    None,
    /// Each time, with a word newer than the end of lanes that have stopped.
    Fresh,
    /// Now and then, in place of probes that were left out.
    Periodic,
}

/// The decision for each basic block.
#[derive(Clone, Debug)]
pub(super) struct PollPlan {
    loop_polls: Vec<Option<LoopPoll>>,
    warp_polls: Vec<WarpPoll>,
}

impl PollPlan {
    pub fn new(kernel: &Kernel, facts: &Facts) -> Self {
        let loop_polls = loop_polls(kernel, facts);
        let from = |how: LoopPoll| {
            let starts = kernel
                .iter_blocks()
                .filter(|(id, _)| loop_polls[id.index()] == Some(how));
            warp_ops_after(kernel, starts.flat_map(|(_, b)| b.terminator.successors()).collect())
        };
        let (fresh, periodic) = (from(LoopPoll::Alone), from(LoopPoll::LeftOut));
        let warp_polls = fresh
            .into_iter()
            .zip(periodic)
            .map(|(fresh, periodic)| match (fresh, periodic) {
                (true, _) => WarpPoll::Fresh,
                (false, true) => WarpPoll::Periodic,
                (false, false) => WarpPoll::None,
            })
            .collect();
        Self { loop_polls, warp_polls }
    }

    /// How the loop probe at the end of a basic block is decided.
    pub fn loop_poll(&self, id: BbId) -> LoopPoll {
        self.loop_polls
            .get(id.index())
            .copied()
            .flatten()
            .unwrap_or(LoopPoll::Alone)
    }

    /// What is asked before the warp-level operation of a basic block.
    pub fn warp_poll(&self, id: BbId) -> WarpPoll {
        self.warp_polls[id.index()]
    }

    /// True if a warp counts its operations.
    pub fn counts(&self) -> bool {
        self.warp_polls.contains(&WarpPoll::Periodic)
    }

    /// Number of loop probes left out.
    pub fn num_left_out(&self) -> usize {
        self.loop_polls
            .iter()
            .filter(|p| **p == Some(LoopPoll::LeftOut))
            .count()
    }
}

fn loop_polls(kernel: &Kernel, facts: &Facts) -> Vec<Option<LoopPoll>> {
    let uniformity = facts
        .has_warp_op
        .then(|| Uniformity::new(kernel, &Definitions::new(kernel)));
    let decide = |id: BbId| match &uniformity {
        None => LoopPoll::Alone,
        Some(u) if u.control(id) <= Divergence::WarpUniform => LoopPoll::Together,
        Some(_) if facts.drains => LoopPoll::LeftOut,
        Some(_) => LoopPoll::Alone,
    };
    let is_loop_poll =
        |t: &Terminator| matches!(t, Terminator::Poll { resume_point, .. } if *resume_point != Kernel::ENTRY_POINT);
    kernel
        .iter_blocks()
        .map(|(id, block)| is_loop_poll(&block.terminator).then(|| decide(id)))
        .collect()
}

/// Basic blocks that hold a warp-level operation which is reached from `work` without another one between.
fn warp_ops_after(kernel: &Kernel, mut work: Vec<BbId>) -> Vec<bool> {
    let has_warp_op = |id: BbId| {
        kernel.blocks[id.index()]
            .insts
            .iter()
            .any(|i| matches!(i.op, Op::Warp { .. }))
    };
    let mut seen = vec![false; kernel.blocks.len()];
    let mut reached = vec![false; kernel.blocks.len()];
    while let Some(id) = work.pop() {
        if std::mem::replace(&mut seen[id.index()], true) {
            continue;
        }
        if has_warp_op(id) {
            reached[id.index()] = true;
        } else {
            work.extend(kernel.blocks[id.index()].terminator.successors());
        }
    }
    reached
}

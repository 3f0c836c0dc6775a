//! How each loop probe decides whether to stop.
//!
//! In a kernel with neither barriers nor warp-level operations every thread decides for itself. With barriers, a probe
//! that all threads of the block pass together is decided by the block, so that nobody waits at a barrier for those who
//! have stopped. With either, a probe that a warp's lanes pass together is decided by the warp.
//!
//! Where lanes come to a probe apart from each other, a lane that stopped alone would have to wait for its block, and
//! lanes of its warp could wait for it elsewhere. A strip-mined loop ends, so there a warp stops only while all of its
//! lanes are there: while some have left the loop it goes on, until they meet again. Other loops may be waiting for
//! what a stopped block would do. There lanes stop alone, if the others can only be waiting at barriers
//! ([`super::barriers_and_warps`]). Where they can be waiting at warp-level operations, such a loop too is interrupted
//! only with the whole warp.
//!
//! Threads that go on from where another device has stopped them may be out of step: some before a probe that they
//! would decide together, some behind it. Then each decides for itself, and all meet at barriers; with warp-level
//! operations only barriers ask.

use std::collections::BTreeMap;

use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::analysis::definitions::Definitions;
use hetckpt_ir::analysis::dominators::Dominators;
use hetckpt_ir::analysis::loops::LoopForest;
use hetckpt_ir::analysis::uniformity::{Divergence, Uniformity};
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, ResumePointId};
use hetckpt_ir::kernel::Kernel;

use super::chunks::chunked_loop;
use super::facts::Facts;

/// How a loop probe is decided; a greater one where less is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LoopPoll {
    /// The block by a barrier.
    ByBlock,
    /// The warp by vote.
    ByWarp,
    /// The warp, if all of its lanes are there.
    ByWholeWarp,
    /// Each thread for itself.
    Alone,
    /// Not at all.
    LeftOut,
}

/// The decision for each basic block.
#[derive(Clone, Debug)]
pub(super) struct PollPlan {
    loop_polls: Vec<Option<LoopPoll>>,
}

impl PollPlan {
    pub fn new(kernel: &Kernel, facts: &Facts, in_step: bool) -> Self {
        let uniformity =
            (facts.has_warp_op || facts.has_barrier).then(|| Uniformity::new(kernel, &Definitions::new(kernel)));
        let cfg = Cfg::new(kernel);
        let forest = LoopForest::new(&cfg, &Dominators::new(&cfg));
        let decide = |id: BbId| match uniformity.as_ref().map(|u| u.control(id)) {
            None => LoopPoll::Alone,
            Some(_) if !in_step && facts.has_warp_op => LoopPoll::LeftOut,
            Some(_) if !in_step => LoopPoll::Alone,
            Some(Divergence::BlockUniform) if facts.has_barrier => LoopPoll::ByBlock,
            Some(Divergence::BlockUniform | Divergence::WarpUniform) => LoopPoll::ByWarp,
            Some(Divergence::Divergent) => {
                if facts.has_warp_op || chunked_loop(kernel, &forest, id).is_some() {
                    LoopPoll::ByWholeWarp
                } else {
                    LoopPoll::Alone
                }
            }
        };
        // Copies of a probe save in the same way.
        let mut decisions = BTreeMap::new();
        for (id, block) in kernel.iter_blocks() {
            if let Some(point) = stops_at(&block.terminator) {
                let decision = decisions.entry(point).or_insert(LoopPoll::ByBlock);
                *decision = decide(id).max(*decision);
            }
        }
        if facts.has_barrier && decisions.values().any(|how| *how == LoopPoll::Alone) {
            // Whoever stops meets the others at the one barrier that all come to.
            let by_block = decisions.values_mut().filter(|how| **how == LoopPoll::ByBlock);
            by_block.for_each(|how| *how = LoopPoll::ByWarp);
        }
        let polls = kernel.blocks.iter().map(|block| stops_at(&block.terminator));
        Self {
            loop_polls: polls.map(|point| decisions.get(&point?).copied()).collect(),
        }
    }

    /// How the loop probe at the end of a basic block is decided; `None` if there is none.
    pub fn loop_poll(&self, id: BbId) -> Option<LoopPoll> {
        self.loop_polls[id.index()]
    }

    /// True if a thread may stop apart from its warp.
    pub fn parts_warps(&self) -> bool {
        self.loop_polls.contains(&Some(LoopPoll::Alone))
    }

    /// True if it matters which lanes of a warp have not ended.
    pub fn asks_for_lanes(&self) -> bool {
        self.loop_polls.contains(&Some(LoopPoll::ByWholeWarp))
    }

    /// True if all threads of the block stop at `point`, or none.
    pub fn stops_block(&self, kernel: &Kernel, point: ResumePointId) -> bool {
        let mut polls = kernel
            .iter_blocks()
            .filter(|(_, b)| stops_at(&b.terminator) == Some(point));
        polls.any(|(id, _)| self.loop_poll(id) == Some(LoopPoll::ByBlock))
    }
}

/// Resume point of a loop probe.
fn stops_at(terminator: &Terminator) -> Option<ResumePointId> {
    match terminator {
        Terminator::Poll { resume_point, .. } if *resume_point != Kernel::ENTRY_POINT => Some(*resume_point),
        _ => None,
    }
}

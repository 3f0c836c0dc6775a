//! Which barriers ask whether to stop.
//!
//! A barrier that asks is an or-reduction, which costs more than a plain one, much in a loop that does little else. A plain
//! barrier will do where no thread can have stopped since the last reduction: then all threads of the block are on
//! their way to the same barrier (CUDA C++ Programming Guide, "Synchronization Functions") and all have the same count of
//! work left until the next one that asks. It will not do where a path leads from another probe to the barrier: there
//! a thread may have stopped, and waits at a reduction for the others. The entry probe is such a probe too, but it is
//! passed once: the count starts at nothing left, so the first barrier that a block comes to asks.

use std::collections::BTreeSet;

use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::analysis::dominators::Dominators;
use hetckpt_ir::analysis::loops::LoopForest;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::BbId;
use hetckpt_ir::inst::Op;
use hetckpt_ir::kernel::Kernel;

use super::poll_plan::{LoopPoll, PollPlan, WarpPoll};

/// Instructions of a thread between two barriers that ask, by estimate.
pub(super) const BARRIER_BUDGET_INSTS: u32 = 2048;

/// How a barrier asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BarrierPoll {
    /// Each time: threads may have stopped on the way.
    Always,
    /// When the block has used up its budget; the barrier uses up so much.
    AfterWork(u32),
    /// Not at all: it stands in no loop, or another barrier of its loop asks.
    Never,
}

/// The decision for each basic block; those that end otherwise count as `Always`.
pub(super) fn barrier_plan(kernel: &Kernel, polls: &PollPlan) -> Vec<BarrierPoll> {
    let mut plan = vec![BarrierPoll::Always; kernel.blocks.len()];
    if polls.num_left_out() > 0 || has_clones(kernel) {
        return plan;
    }
    let may_have_stopped = without_barrier_from(kernel, after_probes(kernel, polls));
    let is_first = without_barrier_from(kernel, vec![Kernel::ENTRY]);
    let cfg = Cfg::new(kernel);
    let dominators = Dominators::new(&cfg);
    let forest = LoopForest::new(&cfg, &dominators);
    let is_barrier = |id: BbId| matches!(kernel.blocks[id.index()].terminator, Terminator::Barrier { .. });
    for (id, _) in kernel.iter_blocks() {
        if is_barrier(id) && !may_have_stopped[id.index()] {
            plan[id.index()] = match forest.innermost(id) {
                None if forest.is_reducible() && !is_first[id.index()] => BarrierPoll::Never,
                None if forest.is_reducible() => BarrierPoll::Always,
                _ => BarrierPoll::AfterWork(BARRIER_BUDGET_INSTS),
            };
        }
    }
    for (loop_id, around) in forest.iter().filter(|(id, _)| forest.is_innermost(*id)) {
        let barriers: Vec<BbId> = around.blocks.iter().copied().filter(|b| is_barrier(*b)).collect();
        let insts: usize = around
            .blocks
            .iter()
            .map(|b| kernel.blocks[b.index()].insts.len() + 1)
            .sum();
        let work = u32::try_from(insts)
            .unwrap_or(BARRIER_BUDGET_INSTS)
            .clamp(1, BARRIER_BUDGET_INSTS);
        // One barrier that each iteration passes may ask for all.
        let is_passed = |b: &BbId| around.latches.iter().all(|latch| dominators.dominates(*b, *latch));
        let asks_already = barriers.iter().find(|b| is_passed(b) && may_have_stopped[b.index()]);
        let may_ask = || {
            barriers
                .iter()
                .filter(|b| is_passed(b))
                .max_by_key(|b| is_first[b.index()])
        };
        let asking = asks_already.or_else(may_ask).copied();
        for b in barriers.into_iter().filter(|b| !may_have_stopped[b.index()]) {
            debug_assert_eq!(forest.innermost(b), Some(loop_id));
            plan[b.index()] = match asking {
                Some(one) if one != b && !is_first[b.index()] => BarrierPoll::Never,
                _ => BarrierPoll::AfterWork(work),
            };
        }
    }
    plan
}

/// True if a barrier was copied: then threads of a block may meet at different copies, which must ask alike.
fn has_clones(kernel: &Kernel) -> bool {
    let mut seen = BTreeSet::new();
    let probes = kernel.blocks.iter().filter_map(|block| match &block.terminator {
        Terminator::Barrier { probe, .. } => *probe,
        _ => None,
    });
    probes.map(|probe| probe.arrive).any(|arrive| !seen.insert(arrive))
}

/// Where control goes on behind the probes at which a thread may stop.
fn after_probes(kernel: &Kernel, polls: &PollPlan) -> Vec<BbId> {
    let mut after = Vec::new();
    for (id, block) in kernel.iter_blocks() {
        let stops_here = match &block.terminator {
            Terminator::Poll { resume_point, .. } => {
                *resume_point != Kernel::ENTRY_POINT && polls.loop_poll(id) != LoopPoll::LeftOut
            }
            _ => false,
        };
        let asks = |op: &Op| matches!(op, Op::Warp { probe: Some(probe), .. } if probe.poll);
        let warp_stops = polls.warp_poll(id) != WarpPoll::None && block.insts.iter().any(|i| asks(&i.op));
        if stops_here || warp_stops {
            after.extend(block.terminator.successors());
        }
    }
    after
}

/// Basic blocks reached from `work` without passing a barrier.
fn without_barrier_from(kernel: &Kernel, mut work: Vec<BbId>) -> Vec<bool> {
    let mut reached = vec![false; kernel.blocks.len()];
    while let Some(id) = work.pop() {
        if std::mem::replace(&mut reached[id.index()], true) {
            continue;
        }
        let terminator = &kernel.blocks[id.index()].terminator;
        if !matches!(terminator, Terminator::Barrier { .. }) {
            work.extend(terminator.successors());
        }
    }
    reached
}

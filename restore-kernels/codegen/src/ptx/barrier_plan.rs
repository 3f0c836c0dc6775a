//! Which barriers ask whether to stop.
//!
//! A barrier that asks is an or-reduction, which costs more than a plain one, much in a loop that does little else. A
//! plain barrier will do where no thread can have stopped since the last reduction: then all threads of the block are
//! on their way to the same barrier (CUDA C++ Programming Guide, "Synchronization Functions") and all have the same
//! count of work left until the next one that asks. It will not do where a path leads from another probe to the
//! barrier: there a thread may have stopped, and waits at a reduction for the others. The entry probe is such a probe
//! too, but it is passed once: the first barrier that a block comes to always joins.
//!
//! No barrier need look in a loop that a probe outside of it interrupts anyway, or that ends soon by itself. Before
//! such a loop the block joins those who have stopped at its entry, if it has not yet, so that no barrier in it must.

use std::collections::BTreeSet;

use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::analysis::dominators::Dominators;
use hetckpt_ir::analysis::loops::{LoopForest, LoopId};
use hetckpt_ir::analysis::short_loops;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, ResumePointId};
use hetckpt_ir::kernel::Kernel;

use super::chunks::chunked_loop;
use super::poll_plan::{LoopPoll, PollPlan};

/// Instructions of a thread between two looks at the request, by estimate.
pub(super) const BARRIER_BUDGET_INSTS: u32 = 4096;

/// Iterations that a loop inside another is thought to make.
const INNER_ITERATIONS: u64 = 32;

/// What one barrier uses up at most, so that a load has the time to arrive.
const MAX_WORK: u32 = BARRIER_BUDGET_INSTS / 2;

/// How a barrier asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BarrierPoll {
    /// It joins those who have stopped on the way, but does not look itself.
    Joins,
    /// It joins those who have stopped on the way, and looks when the block has used up its budget; it uses up so much.
    JoinsAndLooks(u32),
    /// When the block has used up its budget; the barrier uses up so much.
    AfterWork(u32),
    /// Not at all.
    Never,
}

/// How the barriers of a kernel ask.
#[derive(Clone, Debug)]
pub(super) struct BarrierPlan {
    polls: Vec<BarrierPoll>,
    /// Resume points of the basic blocks before which the block joins those who have stopped at its entry.
    joins_before: Vec<Option<ResumePointId>>,
    /// What the budget is at the start: nothing if a barrier that asks after work may be the first one.
    pub first_budget: u32,
}

impl BarrierPoll {
    /// True if threads that have stopped on the way may wait there.
    pub fn joins(self) -> bool {
        matches!(self, Self::Joins | Self::JoinsAndLooks(_))
    }
}

impl BarrierPlan {
    pub fn new(kernel: &Kernel, polls: &PollPlan) -> Self {
        let cfg = Cfg::new(kernel);
        let dominators = Dominators::new(&cfg);
        let forest = LoopForest::new(&cfg, &dominators);
        let loops = Loops {
            kernel,
            chunks: chunks(kernel, polls, &forest),
            is_short: forest
                .iter()
                .map(|(id, _)| short_loops::is_short(kernel, &dominators, &forest, id))
                .collect(),
            forest: &forest,
        };
        let joins_before = loops.join_before_chunks(&cfg);
        let decides = |id: BbId| {
            is_barrier(kernel, id)
                || polls.loop_poll(id) == Some(LoopPoll::ByBlock)
                || joins_before[id.index()].is_some()
        };
        let is_first = without_decision_from(kernel, vec![Kernel::ENTRY], decides);
        let may_have_stopped = if has_clones(kernel) {
            vec![true; kernel.blocks.len()]
        } else {
            without_decision_from(kernel, after_probes(kernel, polls), decides)
        };
        let mut plan = vec![BarrierPoll::Never; kernel.blocks.len()];
        let barriers: Vec<BbId> = kernel
            .iter_blocks()
            .map(|(id, _)| id)
            .filter(|id| is_barrier(kernel, *id))
            .collect();
        for &id in &barriers {
            let must_join = may_have_stopped[id.index()];
            plan[id.index()] = match loops.asking_loop(id) {
                None if must_join || is_first[id.index()] => BarrierPoll::Joins,
                None => BarrierPoll::Never,
                Some(around) if must_join => BarrierPoll::JoinsAndLooks(loops.work(around)),
                Some(around) => BarrierPoll::AfterWork(loops.work(around)),
            };
        }
        for (loop_id, around) in forest.iter() {
            let of_loop = || {
                barriers
                    .iter()
                    .copied()
                    .filter(|b| loops.asking_loop(*b) == Some(Some(loop_id)))
            };
            // One barrier that each iteration passes may ask for all.
            let is_passed = |b: &BbId| around.latches.iter().all(|latch| dominators.dominates(*b, *latch));
            let asks_already = of_loop().find(|b| is_passed(b) && may_have_stopped[b.index()]);
            let asking = asks_already.or_else(|| of_loop().filter(is_passed).max_by_key(|b| is_first[b.index()]));
            for b in of_loop().filter(|b| asking.is_some_and(|one| one != *b)) {
                if may_have_stopped[b.index()] {
                    plan[b.index()] = BarrierPoll::Joins;
                } else if !is_first[b.index()] {
                    plan[b.index()] = BarrierPoll::Never;
                }
            }
        }
        let is_due_at_once = |b: &&BbId| is_first[b.index()] && matches!(plan[b.index()], BarrierPoll::AfterWork(_));
        let first_budget = if barriers.iter().any(|b| is_due_at_once(&b)) {
            0
        } else {
            BARRIER_BUDGET_INSTS
        };
        Self {
            polls: plan,
            joins_before,
            first_budget,
        }
    }

    /// How the barrier at the end of a basic block asks.
    pub fn of(&self, id: BbId) -> BarrierPoll {
        self.polls[id.index()]
    }

    /// The resume point of a basic block before which the block joins those who have stopped at its entry.
    pub fn joins_before(&self, id: BbId) -> Option<ResumePointId> {
        self.joins_before[id.index()]
    }

    /// True if the block's work is counted.
    pub fn counts(&self) -> bool {
        let counts = |p: &BarrierPoll| matches!(p, BarrierPoll::JoinsAndLooks(_) | BarrierPoll::AfterWork(_));
        self.polls.iter().any(counts)
    }
}

/// What is known of the kernel's loops.
struct Loops<'a> {
    kernel: &'a Kernel,
    forest: &'a LoopForest,
    /// For each loop that a probe outside of it interrupts, by the block, after a number of iterations: where it is
    /// entered.
    chunks: Vec<Option<(BbId, ResumePointId)>>,
    /// Loops that cannot iterate often.
    is_short: Vec<bool>,
}

impl Loops<'_> {
    /// The loop whose barriers must ask so that the barrier of `id` is not passed too often unasked: `None` if there is
    /// no need, `Some(None)` for a cycle that is no loop.
    fn asking_loop(&self, id: BbId) -> Option<Option<LoopId>> {
        let mut around = self.forest.innermost(id);
        while let Some(id) = around {
            if self.chunks[id.0].is_some() {
                return None;
            }
            if !self.is_short[id.0] {
                return Some(Some(id));
            }
            around = self.forest.get(id).parent;
        }
        (!self.forest.is_reducible()).then_some(None)
    }

    /// Instructions of one iteration, by estimate: loops inside iterate [`INNER_ITERATIONS`] times.
    fn work(&self, around: Option<LoopId>) -> u32 {
        let Some(id) = around else { return BARRIER_BUDGET_INSTS };
        let around = self.forest.get(id);
        let work = around.blocks.iter().map(|b| {
            let insts = self.kernel.blocks[b.index()].insts.len() as u64 + 1;
            let depth = self
                .forest
                .innermost(*b)
                .map_or(0, |inner| self.forest.get(inner).depth);
            insts.saturating_mul(INNER_ITERATIONS.saturating_pow(depth.saturating_sub(around.depth)))
        });
        let work = work.fold(0, u64::saturating_add).clamp(1, MAX_WORK.into());
        u32::try_from(work).unwrap_or(MAX_WORK)
    }

    /// Where loops that are interrupted are entered before the block has joined those who have stopped at its entry.
    /// Joining there frees the loop's barriers from it.
    fn join_before_chunks(&self, cfg: &Cfg) -> Vec<Option<ResumePointId>> {
        let mut joins: Vec<Option<ResumePointId>> = vec![None; self.kernel.blocks.len()];
        let has_barrier = |id: usize| {
            let blocks = &self.forest.get(LoopId(id)).blocks;
            blocks.iter().any(|b| is_barrier(self.kernel, *b))
        };
        let mut entered: Vec<(BbId, ResumePointId)> = (0..self.chunks.len())
            .filter(|id| has_barrier(*id))
            .filter_map(|id| self.chunks[id])
            .collect();
        entered.sort_by_key(|(block, _)| cfg.position(*block));
        for (block, point) in entered {
            let decides = |id: BbId| is_barrier(self.kernel, id) || joins[id.index()].is_some();
            if without_decision_from(self.kernel, vec![Kernel::ENTRY], decides)[block.index()] {
                joins[block.index()] = Some(point);
            }
        }
        joins
    }
}

/// Strip-mined loops whose probe the block decides together.
fn chunks(kernel: &Kernel, polls: &PollPlan, forest: &LoopForest) -> Vec<Option<(BbId, ResumePointId)>> {
    let mut chunks = vec![None; forest.len()];
    for (id, block) in kernel.iter_blocks() {
        let Terminator::Poll { resume_point, .. } = block.terminator else {
            continue;
        };
        if polls.loop_poll(id) != Some(LoopPoll::ByBlock) {
            continue;
        }
        if let Some((interrupted, entered_from)) = chunked_loop(kernel, forest, id) {
            chunks[interrupted.0] = Some((entered_from, resume_point));
        }
    }
    chunks
}

fn is_barrier(kernel: &Kernel, id: BbId) -> bool {
    matches!(kernel.blocks[id.index()].terminator, Terminator::Barrier { .. })
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

/// Where control goes on behind the probes at which a part of the block may stop.
fn after_probes(kernel: &Kernel, polls: &PollPlan) -> Vec<BbId> {
    let stops_part = |id: BbId| {
        let how = polls.loop_poll(id);
        how.is_some_and(|how| how != LoopPoll::ByBlock && how != LoopPoll::LeftOut)
    };
    let stopping = kernel.iter_blocks().filter(|(id, _)| stops_part(*id));
    stopping.flat_map(|(_, block)| block.terminator.successors()).collect()
}

/// Basic blocks reached from `work` without passing one at whose end, or before which, the block decides together.
/// Those themselves are reached.
fn without_decision_from(kernel: &Kernel, mut work: Vec<BbId>, decides: impl Fn(BbId) -> bool) -> Vec<bool> {
    let mut reached = vec![false; kernel.blocks.len()];
    while let Some(id) = work.pop() {
        if std::mem::replace(&mut reached[id.index()], true) {
            continue;
        }
        if !decides(id) {
            work.extend(kernel.blocks[id.index()].terminator.successors());
        }
    }
    reached
}

//! Divergent branches before a barrier: what they lead to is predicated.
//!
//! OpenCL C wants all threads at each barrier. So all walk through what such a branch decides, and each instruction
//! there that would show is under a condition, the *mask*: whether the thread has gone this way. There are two kinds.
//! Threads that go to the kernel's end leave the others behind a mask for good; the block ends when none is left.
//! Others come back where the ways join, and need until then what they had: a register that is live where they go on is
//! written under the mask, all others by everyone, which is shorter and gives loop counters to all. What is not written
//! in either form goes in [`super::rounds`].

use std::collections::{BTreeMap, BTreeSet};

use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::analysis::definitions::Definitions;
use hetckpt_ir::analysis::dominators::{Dominators, PostDominators};
use hetckpt_ir::analysis::liveness::Liveness;
use hetckpt_ir::analysis::loops::LoopForest;
use hetckpt_ir::analysis::reg_set::RegSet;
use hetckpt_ir::analysis::short_loops;
use hetckpt_ir::analysis::uniformity::{Divergence, Uniformity};
use hetckpt_ir::basic_block::{BasicBlock, Terminator};
use hetckpt_ir::entity::{BbId, RegId, Span};
use hetckpt_ir::inst::{Address, AddressBase, Inst, Op, Ordering, WarpOp};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Space;

use super::join_barriers::Ways;
use super::structure::{Cut, Structure, is_bare_end};
use crate::ptx::chunks::chunked_loop;

/// What a branch does to the threads of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parting {
    /// Some go on, the others end.
    Ends,
    /// All come to where the ways join, some by a way of their own.
    Joins(BbId),
}

/// How the threads of a block go through a kernel together.
#[derive(Debug)]
pub(super) struct DivergentBranches {
    partings: BTreeMap<BbId, Parting>,
    uniformity: Uniformity,
    /// Places where all threads meet, by basic block.
    is_meeting: Vec<bool>,
    joins: Vec<Option<BbId>>,
    /// A barrier begins these basic blocks.
    is_rejoin: Vec<bool>,
    /// Headers of loops in which threads meet on some ways only.
    fenced: BTreeSet<BbId>,
    /// Barriers at which the block looks whether it is to stop, by basic block.
    looks: Vec<bool>,
    forest: LoopForest,
    liveness: Liveness,
}

impl DivergentBranches {
    /// How threads of `kernel` that are all at the start of a basic block come to all barriers, warp-level operations
    /// and probes together; `None` if they do not.
    pub fn of(kernel: &Kernel, start: BbId) -> Option<Self> {
        if !Structure::new(kernel, start, Cut::Nowhere).is_reducible() {
            return None;
        }
        // What is the same for all threads is so on every way from the kernel's entry.
        let uniformity = Uniformity::new(&with_equal_loads(kernel), &Definitions::new(kernel));
        let kernel = &entered_at(kernel, start);
        let cfg = Cfg::new(kernel);
        let post_dominators = PostDominators::new(&cfg);
        let ids = kernel.iter_blocks().map(|(id, _)| id);
        let dominators = Dominators::new(&cfg);
        let forest = LoopForest::new(&cfg, &dominators);
        let mut divergent = Self {
            partings: BTreeMap::new(),
            uniformity,
            is_meeting: kernel.blocks.iter().map(is_meeting).collect(),
            is_rejoin: vec![false; kernel.blocks.len()],
            joins: ids.map(|id| post_dominators.immediate(id)).collect(),
            fenced: BTreeSet::new(),
            looks: barriers_that_look(kernel, &cfg, &dominators, &forest),
            forest,
            liveness: Liveness::new(kernel),
        };
        for (_, each) in divergent.forest.iter() {
            let mut meetings = each.blocks.iter().filter(|block| divergent.is_meeting[block.index()]);
            let is_always = |block: BbId| each.latches.iter().all(|latch| dominators.dominates(block, *latch));
            if meetings.any(|block| !is_always(*block)) {
                divergent.fenced.insert(each.header);
            }
        }
        // Each rejoin is one more place where all threads meet.
        loop {
            divergent.find_partings(kernel, &cfg, &dominators)?;
            let found = divergent.rejoins(kernel, &cfg);
            let known = divergent.is_rejoin.clone();
            if found
                .iter()
                .zip(&known)
                .all(|(is_found, is_known)| *is_known || !is_found)
            {
                break;
            }
            divergent.is_rejoin = found.iter().zip(&known).map(|(a, b)| *a || *b).collect();
        }
        if divergent.is_rejoin_of_nested_latch() {
            return None;
        }
        Some(divergent)
    }

    /// Finds the branches that part threads; `None` if they do so in a way that has no form.
    fn find_partings(&mut self, kernel: &Kernel, cfg: &Cfg, dominators: &Dominators) -> Option<()> {
        self.partings.clear();
        for &branch in cfg.reverse_post_order() {
            if !self.is_uniform(branch) && self.decides_meetings(cfg, dominators, branch) {
                let parting = self.parting(kernel, (cfg, dominators), branch)?;
                self.partings.insert(branch, parting);
            }
        }
        let mut joining = self.partings.iter().filter(|(_, p)| **p != Parting::Ends);
        let is_alone = |branch: BbId| {
            let inside = self.decided(cfg, branch);
            !inside.iter().any(|block| self.partings.contains_key(block))
        };
        joining.all(|(&branch, _)| is_alone(branch)).then_some(())
    }

    /// Where ways on which all threads meet join others ([`super::join_barriers`]).
    fn rejoins(&self, kernel: &Kernel, cfg: &Cfg) -> Vec<bool> {
        let ends = |id: &BbId| self.partings.get(id) == Some(&Parting::Ends);
        let ids = (0u32..).map(BbId).take(kernel.blocks.len());
        let loses_threads: Vec<bool> = ids.map(|id| ends(&id)).collect();
        let ways = Ways {
            kernel,
            walked: &self.walked(kernel, cfg),
            is_meeting: &self.is_meeting,
            loses_threads: &loses_threads,
            is_uniform: &|id| self.is_uniform(id),
        };
        ways.rejoins()
    }

    /// The ways that all threads of a block walk: along both ways of a branch that parts them, one after the other.
    fn walked(&self, kernel: &Kernel, cfg: &Cfg) -> Cfg {
        let ids = (0u32..).map(BbId).take(cfg.num_blocks());
        let mut successors: Vec<Vec<BbId>> = ids.map(|id| cfg.successors(id).to_vec()).collect();
        for (&branch, parting) in &self.partings {
            let ways = cfg.successors(branch);
            match *parting {
                Parting::Ends => successors[branch.index()].retain(|&way| !is_bare_end(&kernel.blocks[way.index()])),
                Parting::Joins(join) => {
                    let ways: Vec<BbId> = ways.iter().copied().filter(|way| *way != join).collect();
                    successors[branch.index()] = ways[..1.min(ways.len())].to_vec();
                    let [first, second] = ways[..] else { continue };
                    let inside = reached(cfg, first, |_, to| to == join);
                    for block in inside.into_iter().chain([first]) {
                        for to in &mut successors[block.index()] {
                            if *to == join {
                                *to = second;
                            }
                        }
                    }
                }
            }
        }
        Cfg::from_edges(successors)
    }

    /// True if a loop before whose header a barrier stands is gone round from inside another loop: C has no way there
    /// but past the barrier.
    fn is_rejoin_of_nested_latch(&self) -> bool {
        self.forest.iter().any(|(id, each)| {
            let is_nested = |latch: &BbId| self.forest.innermost(*latch) != Some(id);
            self.is_rejoin[each.header.index()] && each.latches.iter().any(is_nested)
        })
    }

    /// True if a barrier begins a basic block, before the loop that it may head.
    pub fn begins_with_barrier(&self, block: BbId) -> bool {
        self.is_rejoin[block.index()]
    }

    /// What the branch at the end of a block does, if it parts threads before they meet.
    pub fn parting_at(&self, block: BbId) -> Option<Parting> {
        self.partings.get(&block).copied()
    }

    /// True if all threads that are left go the same way at the end of a block.
    pub fn is_uniform(&self, block: BbId) -> bool {
        self.uniformity.branch(block) == Divergence::BlockUniform
    }

    /// True if threads meet on some ways through a loop only. PoCL 3.1 then leaves out what stands at the loop's end
    /// unless a barrier does.
    pub fn meets_on_some_ways(&self, header: BbId) -> bool {
        self.fenced.contains(&header)
    }

    /// True if a register has the same value in all threads of the block.
    pub fn is_uniform_register(&self, reg: RegId) -> bool {
        self.uniformity.register(reg) == Divergence::BlockUniform
    }

    /// True if the block looks at the barrier at the end of a basic block whether it is to stop.
    pub fn looks_at(&self, barrier: BbId) -> bool {
        self.looks[barrier.index()]
    }

    /// Where all ways from the end of a block join.
    pub fn join(&self, block: BbId) -> Option<BbId> {
        self.joins[block.index()]
    }

    /// Registers that are live at a block's start.
    pub fn live_in(&self, block: BbId) -> &RegSet {
        self.liveness.live_in(block)
    }

    /// True if no threads meet in the loop that starts at a block.
    pub fn is_loop_without_meeting(&self, header: BbId) -> bool {
        let found = self.forest.iter().find(|(_, each)| each.header == header);
        found.is_some_and(|(_, each)| !each.blocks.iter().any(|block| self.is_meeting[block.index()]))
    }

    /// True if the loop that starts at a block is left to one block only.
    pub fn leaves_loop_to(&self, header: BbId, to: Option<BbId>) -> bool {
        let found = self.forest.iter().find(|(_, each)| each.header == header);
        found.is_some_and(|(_, each)| each.exits.iter().all(|(_, exit)| Some(*exit) == to))
    }

    /// True if an instruction may be run by threads that have not come this way: it shows in nothing but registers that
    /// they do not need. `is_for_good`: they have ended, and some other has not.
    pub fn may_run_anyhow(&self, inst: &Inst, needed: &RegSet, is_for_good: bool) -> bool {
        let is_safe = match &inst.op {
            Op::Store { .. } | Op::Atom { .. } | Op::Opaque { .. } | Op::Warp { .. } => false,
            Op::Load {
                space: Space::Param, ..
            } => true,
            Op::Load {
                space: Space::Local, ..
            } => false,
            Op::Load { ordering, addr, .. } => {
                let is_plain = matches!(ordering, Ordering::Weak | Ordering::NonCoherent);
                is_for_good && is_plain && self.is_uniform_address(addr)
            }
            _ => true,
        };
        let mut is_needed = false;
        inst.for_each_def(|reg| is_needed |= needed.contains(reg));
        is_safe && !is_needed
    }

    fn is_uniform_address(&self, addr: &Address) -> bool {
        match addr.base {
            AddressBase::Reg(reg) => self.is_uniform_register(reg),
            AddressBase::Absolute | AddressBase::Global(_) => true,
        }
    }

    /// Blocks that control may come to after a branch and before the ways join.
    fn decided(&self, cfg: &Cfg, branch: BbId) -> Vec<BbId> {
        let join = self.join(branch);
        reached(cfg, branch, |_, to| Some(to) == join)
    }

    fn decides_meetings(&self, cfg: &Cfg, dominators: &Dominators, branch: BbId) -> bool {
        if cfg.successors(branch).len() < 2 {
            return false;
        }
        let join = self.join(branch);
        // The barrier of a rejoin stands before the loop that the block may head.
        let is_end = |from, to| Some(to) == join || dominators.dominates(to, from);
        let decided = self.decided(cfg, branch);
        decided.iter().any(|block| self.is_meeting[block.index()])
            || (self.is_rejoin.contains(&true)
                && reached(cfg, branch, is_end)
                    .iter()
                    .any(|block| self.is_rejoin[block.index()]))
    }

    fn parting(&self, kernel: &Kernel, (cfg, dominators): (&Cfg, &Dominators), branch: BbId) -> Option<Parting> {
        let join = self.join(branch);
        let is_end = |id: BbId| is_bare_end(&kernel.blocks[id.index()]);
        let ends = cfg.successors(branch).iter().any(|&way| is_end(way));
        if ends && join.is_none_or(is_end) {
            // No other way leads to what those who are left walk through.
            let after = reached(cfg, branch, |_, _| false);
            let is_own = after.iter().all(|&id| is_end(id) || dominators.dominates(branch, id));
            return (is_own && self.forest.innermost(branch).is_none()).then_some(Parting::Ends);
        }
        let join = join?;
        let inside = self.decided(cfg, branch);
        let is_fine = inside.iter().all(|&id| {
            let block = &kernel.blocks[id.index()];
            let meets_lanes_only = !self.is_meeting[id.index()] || is_exchange(block);
            let is_own = id != branch && dominators.dominates(branch, id);
            is_own && meets_lanes_only && !self.decides_meetings(cfg, dominators, id)
        });
        is_fine.then_some(Parting::Joins(join))
    }
}

/// Blocks that control comes to from the end of a block, without going along a way that `is_end` holds for.
fn reached(cfg: &Cfg, from: BbId, is_end: impl Fn(BbId, BbId) -> bool) -> Vec<BbId> {
    let (mut is_reached, mut reached) = (vec![false; cfg.num_blocks()], Vec::new());
    let mut work = vec![from];
    while let Some(block) = work.pop() {
        for &to in cfg.successors(block) {
            if !is_end(block, to) && !std::mem::replace(&mut is_reached[to.index()], true) {
                reached.push(to);
                work.push(to);
            }
        }
    }
    reached
}

/// A way through which only some threads go, while all walk along it.
#[derive(Debug)]
pub(super) struct Mask {
    /// The condition's name.
    pub name: String,
    /// Lanes of the warp that have not ended.
    pub present: Option<String>,
    /// Registers that threads off this way need.
    pub needed: RegSet,
    /// Threads off this way have ended.
    pub is_for_good: bool,
}

/// One barrier of each loop that goes on for long and has no other probe.
fn barriers_that_look(kernel: &Kernel, cfg: &Cfg, dominators: &Dominators, forest: &LoopForest) -> Vec<bool> {
    let mut has_probe = vec![false; forest.len()];
    for (id, block) in kernel.iter_blocks() {
        if !matches!(block.terminator, Terminator::Poll { .. }) {
            continue;
        }
        if let Some((between_chunks, _)) = chunked_loop(kernel, forest, id) {
            has_probe[between_chunks.0] = true;
        } else if let Some(around) = forest.innermost(id) {
            let mut latches = forest.get(around).latches.iter();
            has_probe[around.0] |= latches.all(|latch| dominators.dominates(id, *latch));
        }
    }
    let mut looks = vec![false; kernel.blocks.len()];
    let mut has_barrier = vec![false; forest.len()];
    let barriers = cfg.reverse_post_order().iter();
    for &id in barriers.filter(|id| matches!(kernel.blocks[id.index()].terminator, Terminator::Barrier { .. })) {
        let mut around = forest.around(id);
        let Some(long) = around.find(|l| !short_loops::is_short(kernel, dominators, forest, *l)) else {
            continue;
        };
        if !has_probe[long.0] && !has_barrier[long.0] {
            looks[id.index()] = true;
            let mut latches = forest.get(long).latches.iter();
            has_barrier[long.0] = latches.all(|latch| dominators.dominates(id, *latch));
        }
    }
    looks
}

/// The kernel with another start. Nothing leads to the entry, so its place is free.
fn entered_at(kernel: &Kernel, start: BbId) -> Kernel {
    let mut kernel = kernel.clone();
    if start != Kernel::ENTRY {
        kernel.blocks[Kernel::ENTRY.index()] = BasicBlock {
            insts: Vec::new(),
            terminator: Terminator::Jump(start),
            span: Span::default(),
        };
    }
    kernel
}

fn is_meeting(block: &BasicBlock) -> bool {
    let is_warp_op = |inst: &Inst| matches!(inst.op, Op::Warp { .. });
    let is_poll =
        matches!(block.terminator, Terminator::Poll { resume_point, .. } if resume_point != Kernel::ENTRY_POINT);
    is_poll || matches!(block.terminator, Terminator::Barrier { .. }) || block.insts.iter().any(is_warp_op)
}

/// A block in which lanes meet by exchanging values, and in no other way.
fn is_exchange(block: &BasicBlock) -> bool {
    // Threads that others do not wait for go on in rounds, too.
    let asks_who_is_there = |inst: &Inst| {
        matches!(
            inst.op,
            Op::Warp {
                op: WarpOp::ActiveMask | WarpOp::Step,
                ..
            }
        )
    };
    !matches!(block.terminator, Terminator::Poll { .. } | Terminator::Barrier { .. })
        && !block.insts.iter().any(asks_who_is_there)
}

/// The kernel with weak loads of memory that threads share marked as read-only ones.
fn with_equal_loads(kernel: &Kernel) -> Kernel {
    let mut kernel = kernel.clone();
    for inst in kernel.blocks.iter_mut().flat_map(|block| &mut block.insts) {
        if let Op::Load {
            space: Space::Global | Space::Shared | Space::Generic,
            ordering: ordering @ Ordering::Weak,
            ..
        } = &mut inst.op
        {
            *ordering = Ordering::NonCoherent;
        }
    }
    kernel
}

//! More barriers, where paths with a barrier join others: PoCL's handling of barriers needs them.
//!
//! PoCL cuts kernels at barriers. Behind a barrier that not all ways come to, it copies what other ways come to as
//! well, so that each set of barriers has an end of its own, and it does so edge by edge. If a branch of single threads
//! leads from there by two edges to where the ways join, that branch then decides between two copies. PoCL takes such a
//! branch for one that is the same for the whole block, and lets all threads go where the first one goes. (PoCL 3.1:
//! IsolateRegions keeps a branch whole only where a barrier or the kernel's end follows, BarrierTailReplication copies,
//! WorkitemLoops looks at the first thread.) So a barrier begins the basic block where the ways join, if something
//! behind the one before may part threads, and another ends the way where it is a nested statement, so that one edge
//! leads there. That block's own ways join others in turn.
//!
//! Rejected: code without a `return` before the barriers. Then the kernel's end is more often where ways join, but
//! whatever else follows there brings the defect back.
//!
//! # Source
//! OpenCL C 1.2, section 6.12.8: a barrier in a branch is right if all threads of the block enter the branch.

use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::analysis::dominators::Dominators;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::BbId;
use hetckpt_ir::inst::{AluOp, Inst, Op, WarpOp};
use hetckpt_ir::kernel::Kernel;

use super::structure::is_bare_end;

/// What is known of a kernel's control flow.
pub(super) struct Ways<'a> {
    pub kernel: &'a Kernel,
    /// As the threads of a block walk.
    pub walked: &'a Cfg,
    /// All threads of the block meet in a basic block.
    pub is_meeting: &'a [bool],
    /// Some threads end behind a basic block, and the others meet there.
    pub loses_threads: &'a [bool],
    /// All threads go the same way at the end of a basic block.
    pub is_uniform: &'a dyn Fn(BbId) -> bool,
}

impl Ways<'_> {
    /// True for each basic block that is to begin with a barrier.
    pub fn rejoins(&self) -> Vec<bool> {
        let dominators = Dominators::new(self.walked);
        let mut is_rejoin = vec![false; self.kernel.blocks.len()];
        let order = self.walked.reverse_post_order();
        let is_start = |id: &&BbId| self.is_meeting[id.index()] || self.loses_threads[id.index()];
        let mut work: Vec<BbId> = order.iter().filter(is_start).copied().collect();
        while let Some(meeting) = work.pop() {
            for join in self.joins_behind(meeting, &dominators, &is_rejoin) {
                if !std::mem::replace(&mut is_rejoin[join.index()], true) {
                    work.push(join);
                }
            }
        }
        is_rejoin
    }

    /// Basic blocks that other ways come to as well, behind a meeting with nothing but what may part threads between.
    fn joins_behind(&self, meeting: BbId, dominators: &Dominators, is_rejoin: &[bool]) -> Vec<BbId> {
        let mut may_part = if is_rejoin[meeting.index()] {
            self.may_part(meeting)
        } else {
            self.loses_threads[meeting.index()] || self.meets_lanes(meeting)
        };
        let (mut joins, mut work) = (Vec::new(), vec![meeting]);
        let mut is_seen = vec![false; self.kernel.blocks.len()];
        while let Some(block) = work.pop() {
            for &next in self.walked.successors(block) {
                let i = next.index();
                let is_back_edge = dominators.dominates(next, block);
                if is_back_edge || std::mem::replace(&mut is_seen[i], true) {
                    continue;
                }
                if !dominators.dominates(meeting, next) {
                    joins.push(next);
                } else if !self.is_meeting[i] && !self.loses_threads[i] && !is_rejoin[i] {
                    may_part |= self.may_part(next);
                    work.push(next);
                }
            }
        }
        joins.retain(|join| may_part && !is_bare_end(&self.kernel.blocks[join.index()]));
        joins
    }

    /// True if lanes exchange values in a basic block; they do so in loops of their own.
    fn meets_lanes(&self, block: BbId) -> bool {
        let is_exchange =
            |inst: &Inst| matches!(inst.op, Op::Warp { op, .. } if !matches!(op, WarpOp::Sync | WarpOp::Step));
        self.kernel.blocks[block.index()].insts.iter().any(is_exchange)
    }

    /// True if threads may go different ways in a basic block or at its end.
    fn may_part(&self, id: BbId) -> bool {
        let block = &self.kernel.blocks[id.index()];
        let is_branch = matches!(block.terminator, Terminator::Branch { .. });
        (is_branch && !(self.is_uniform)(id)) || block.insts.iter().any(|inst| !is_straight(inst))
    }
}

/// True if an instruction is written without a branch and without a function that may have one.
fn is_straight(inst: &Inst) -> bool {
    let is_straight = match &inst.op {
        Op::Alu { op, ty, .. } => {
            let is_operator = matches!(
                op,
                AluOp::Add
                    | AluOp::Sub
                    | AluOp::Mul
                    | AluOp::Mad
                    | AluOp::MulWide
                    | AluOp::MadWide
                    | AluOp::And
                    | AluOp::Or
                    | AluOp::Xor
                    | AluOp::Not
            );
            is_operator && !ty.is_float()
        }
        Op::Mov { .. }
        | Op::Pack { .. }
        | Op::Unpack { .. }
        | Op::AddrOf { .. }
        | Op::ReadSpecial { .. }
        | Op::Selp { .. }
        | Op::Load { .. }
        | Op::Store { .. }
        | Op::Membar { .. } => true,
        Op::Setp { ty, .. } => !ty.is_float(),
        _ => false,
    };
    is_straight && inst.guard.is_none()
}

//! What is saved at each resume point holds everything that is read after it.
//!
//! Saved is what liveness analysis calls live there. Here each register is followed on its own, from its reads
//! backwards to the blocks at whose start they can still be reached.

use hetckpt_ir::analysis::liveness::Liveness;
use hetckpt_ir::basic_block::BasicBlock;
use hetckpt_ir::entity::{BbId, RegId, ResumePointId};
use hetckpt_ir::kernel::Kernel;

use super::Violation;

/// What a block does to a register first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Nothing,
    Read,
    Write,
}

/// Registers that some resume point of `probed` should save and does not.
pub fn violations(probed: &Kernel) -> Vec<Violation> {
    let liveness = Liveness::new(probed);
    let mut predecessors = vec![Vec::new(); probed.blocks.len()];
    for (id, block) in probed.iter_blocks() {
        for successor in block.terminator.successors() {
            predecessors[successor.index()].push(id);
        }
    }
    let mut found = Vec::new();
    for reg in (0u32..).map(RegId).take(probed.registers.len()) {
        let needed = needed_at_start(probed, &predecessors, reg);
        let points = (0u32..).map(ResumePointId).zip(&probed.resume_points).skip(1);
        let missing = points.filter(|(_, p)| needed[p.block.index()] && !liveness.live_in(p.block).contains(reg));
        found.extend(missing.map(|(id, _)| Violation::NotSaved(id, reg)));
    }
    found
}

/// Blocks from whose start a read of `reg` can be reached without writing it.
pub fn needed_at_start(kernel: &Kernel, predecessors: &[Vec<BbId>], reg: RegId) -> Vec<bool> {
    let first: Vec<First> = kernel.blocks.iter().map(|block| first_access(block, reg)).collect();
    let mut needed: Vec<bool> = first.iter().map(|f| *f == First::Read).collect();
    let mut work: Vec<BbId> = (0u32..)
        .map(BbId)
        .zip(&needed)
        .filter(|(_, n)| **n)
        .map(|(id, _)| id)
        .collect();
    while let Some(block) = work.pop() {
        for &pred in &predecessors[block.index()] {
            if first[pred.index()] == First::Nothing && !needed[pred.index()] {
                needed[pred.index()] = true;
                work.push(pred);
            }
        }
    }
    needed
}

fn first_access(block: &BasicBlock, reg: RegId) -> First {
    for inst in &block.insts {
        let (mut reads, mut writes) = (false, false);
        inst.for_each_use(|r| reads |= r == reg);
        inst.for_each_def(|r| writes |= r == reg);
        if reads {
            return First::Read;
        }
        // A guarded write may not happen.
        if writes && inst.guard.is_none() {
            return First::Write;
        }
    }
    let mut reads = false;
    block.terminator.for_each_use(|r| reads |= r == reg);
    match (reads, block.terminator.def()) {
        (true, _) => First::Read,
        (false, Some(def)) if def == reg => First::Write,
        _ => First::Nothing,
    }
}

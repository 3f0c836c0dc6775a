//! Control cannot go round without passing a barrier, a poll, or a branch beside a poll.
//!
//! Kernels whose loops may not be probed (operations on part of a warp, asynchronous copies) are let through.

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::BbId;
use hetckpt_ir::inst::{Op, Operand, WarpOp};
use hetckpt_ir::kernel::Kernel;

use super::Violation;

/// A block on each cycle without a probe.
pub fn violations(probed: &Kernel) -> Vec<Violation> {
    if has_partial_warp(probed) {
        return Vec::new();
    }
    let n = probed.blocks.len();
    let is_cut: Vec<bool> = (0u32..).map(BbId).take(n).map(|id| is_probe(probed, id)).collect();
    // Take away blocks without remaining successors again and again; what is left goes round.
    let mut is_left: Vec<bool> = is_cut.iter().map(|cut| !cut).collect();
    let mut changed = true;
    while changed {
        changed = false;
        for (id, block) in probed.iter_blocks() {
            if is_left[id.index()] && !block.terminator.successors().iter().any(|s| is_left[s.index()]) {
                is_left[id.index()] = false;
                changed = true;
            }
        }
    }
    // Blocks that lead to a cycle are left too; report those that can come back to themselves.
    let comes_back = |start: BbId| {
        let mut seen = vec![false; n];
        let mut work = vec![start];
        while let Some(block) = work.pop() {
            for next in probed.blocks[block.index()].terminator.successors() {
                if next == start {
                    return true;
                }
                if is_left[next.index()] && !std::mem::replace(&mut seen[next.index()], true) {
                    work.push(next);
                }
            }
        }
        false
    };
    let left = (0u32..)
        .map(BbId)
        .zip(&is_left)
        .filter(|(_, left)| **left)
        .map(|(id, _)| id);
    left.filter(|&id| comes_back(id))
        .map(Violation::UnprobedCycle)
        .collect()
}

/// True if the block is a barrier or a poll, or may leave for one at once.
fn is_probe(probed: &Kernel, id: BbId) -> bool {
    let is_poll = |id: &BbId| matches!(probed.blocks[id.index()].terminator, Terminator::Poll { .. });
    let terminator = &probed.blocks[id.index()].terminator;
    match terminator {
        Terminator::Barrier { .. } | Terminator::Poll { .. } => true,
        Terminator::Branch { .. } => terminator.successors().iter().any(|next| {
            let beside = &probed.blocks[next.index()];
            let asks_again = matches!(beside.terminator, Terminator::Branch { .. }) && beside.insts.len() <= 1;
            is_poll(next) || (asks_again && beside.terminator.successors().iter().any(is_poll))
        }),
        _ => false,
    }
}

fn has_partial_warp(probed: &Kernel) -> bool {
    probed
        .blocks
        .iter()
        .flat_map(|block| &block.insts)
        .any(|inst| match &inst.op {
            Op::Warp {
                op: WarpOp::ActiveMask, ..
            }
            | Op::Opaque { .. } => true,
            Op::Warp { mask, .. } => *mask != Operand::Imm(0xffff_ffff),
            _ => false,
        })
}

//! Member masks of warp-level operations that are constants.
//!
//! nvcc moves the mask into a register first; that all lanes take part decides where a warp may pause.

use hetckpt_ir::entity::{BbId, RegId};
use hetckpt_ir::inst::{ALL_LANES, Inst, Op, Operand, WarpOp};
use hetckpt_ir::kernel::Kernel;

/// The member mask of the warp-level operation at `position` of `block`, if it is a constant.
pub fn constant_mask(kernel: &Kernel, block: BbId, position: usize) -> Option<u64> {
    let insts = &kernel.blocks[block.index()].insts;
    match &insts[position].op {
        // It has no member mask: which lanes it finds is the whole point.
        Op::Warp {
            op: WarpOp::ActiveMask, ..
        } => None,
        Op::Warp {
            mask: Operand::Imm(mask),
            ..
        } => Some(mask & ALL_LANES),
        Op::Warp {
            mask: Operand::Reg(reg),
            ..
        } => {
            let last_def = insts[..position].iter().rev().find(|inst| defines(inst, *reg));
            match last_def {
                Some(inst) => moved_constant(inst),
                None => only_constant(kernel, *reg),
            }
        }
        _ => None,
    }
}

/// True if all warp-level operations of `kernel` are for all lanes.
pub fn all_full(kernel: &Kernel) -> bool {
    kernel.iter_blocks().all(|(id, block)| {
        block
            .insts
            .iter()
            .enumerate()
            .all(|(i, inst)| !matches!(inst.op, Op::Warp { .. }) || constant_mask(kernel, id, i) == Some(ALL_LANES))
    })
}

fn defines(inst: &Inst, reg: RegId) -> bool {
    let mut found = false;
    inst.for_each_def(|r| found |= r == reg);
    found
}

/// The constant that an unconditional `mov` writes.
fn moved_constant(inst: &Inst) -> Option<u64> {
    match (&inst.op, inst.guard) {
        (
            Op::Mov {
                src: Operand::Imm(value),
                ..
            },
            None,
        ) => Some(value & ALL_LANES),
        _ => None,
    }
}

/// The constant that every write of `reg` in the kernel gives it.
fn only_constant(kernel: &Kernel, reg: RegId) -> Option<u64> {
    let mut constants = kernel
        .blocks
        .iter()
        .flat_map(|block| &block.insts)
        .filter(|inst| defines(inst, reg))
        .map(moved_constant);
    let first = constants.next()??;
    constants.all(|c| c == Some(first)).then_some(first)
}

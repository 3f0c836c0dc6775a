//! Gives each warp-level operation a basic block of its own and the two resume points around it.
//!
//! # Requires
//! The entry probe; barriers split.
//! # Ensures
//! A warp-level operation is the only instruction of its block, which ends in a jump, and has no guard; its probe's
//! `arrive` stands at that block, `leave` at the next. A member mask known to be constant is an immediate.
//! # Leaves alone
//! The operations; `poll` of their probes is false until [`crate::warp_probe_polls`].
//! # Cost
//! None here.
//! # Source
//! PTX ISA, "shfl.sync" to "bar.warp.sync".

use hetckpt_ir::basic_block::{BasicBlock, Terminator};
use hetckpt_ir::entity::{BbId, Span};
use hetckpt_ir::inst::{Inst, Op, Operand, WarpProbe};
use hetckpt_ir::kernel::{Kernel, ResumePoint, ResumePointKind};

use crate::warp_masks::constant_mask;

/// Splits the warp-level operations; how many there are.
pub fn run(kernel: &mut Kernel) -> u32 {
    let mut num_warp_ops = 0;
    let mut index = 0;
    // What follows an operation lands in a new block, which this loop reaches in its turn.
    while index < kernel.blocks.len() {
        let position = kernel.blocks[index]
            .insts
            .iter()
            .position(|i| matches!(i.op, Op::Warp { probe: None, .. }));
        if let Some(position) = position {
            split_at(kernel, BbId::from_index(index), position);
            num_warp_ops += 1;
        }
        index += 1;
    }
    num_warp_ops
}

fn split_at(kernel: &mut Kernel, before: BbId, position: usize) {
    let mask = constant_mask(kernel, before, position);
    let block = &mut kernel.blocks[before.index()];
    let after = BasicBlock {
        insts: block.insts.split_off(position + 1),
        terminator: std::mem::replace(&mut block.terminator, Terminator::Exit),
        span: block.span,
    };
    let Some(Inst {
        op:
            Op::Warp {
                op,
                dst,
                dst_pred,
                srcs,
                mask: given,
                ..
            },
        guard,
        span,
    }) = block.insts.pop()
    else {
        return;
    };
    let after = kernel.add_block(after);
    let alone = BbId::from_index(kernel.blocks.len());
    let arrive = kernel.add_resume_point(ResumePoint {
        kind: ResumePointKind::WarpArrive,
        block: alone,
    });
    let leave = kernel.add_resume_point(ResumePoint {
        kind: ResumePointKind::WarpLeave,
        block: after,
    });
    let probe = Some(WarpProbe {
        arrive,
        leave,
        poll: false,
    });
    let mask = mask.map_or(given, Operand::Imm);
    let inst = Inst {
        op: Op::Warp {
            op,
            dst,
            dst_pred,
            srcs,
            mask,
            probe,
        },
        guard: None,
        span,
    };
    kernel.add_block(BasicBlock {
        insts: vec![inst],
        terminator: Terminator::Jump(after),
        span: Span::default(),
    });
    kernel.blocks[before.index()].terminator = match guard {
        None => Terminator::Jump(alone),
        Some(guard) => Terminator::Branch {
            guard,
            taken: alone,
            not_taken: after,
        },
    };
}

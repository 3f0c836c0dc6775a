//! Gives each barrier a basic block of its own and the two resume points around it.
//!
//! # Requires
//! The entry probe.
//! # Ensures
//! A block that ends in a barrier has no instructions; its probe's `arrive` stands at that block, `leave` at the next.
//! # Leaves alone
//! The barriers themselves: what a pausing barrier looks like is each target's choice.
//! # Cost
//! None here.
//! # Source
//! ARCHITECTURE.md, "The way of a kernel"; PTX ISA, "bar, barrier".

use hetckpt_ir::basic_block::{BarrierProbe, BasicBlock, Terminator};
use hetckpt_ir::entity::BbId;
use hetckpt_ir::kernel::{Kernel, ResumePoint, ResumePointKind};

/// Splits the barriers; how many there are.
pub fn run(kernel: &mut Kernel) -> u32 {
    let mut num_barriers = 0;
    for index in 0..kernel.blocks.len() {
        let block = &kernel.blocks[index];
        let Terminator::Barrier { next, .. } = &block.terminator else {
            continue;
        };
        let next = *next;
        num_barriers += 1;
        let alone = stand_alone(kernel, BbId::from_index(index));
        let arrive = kernel.add_resume_point(ResumePoint {
            kind: ResumePointKind::BarrierArrive,
            block: alone,
        });
        let leave = kernel.add_resume_point(ResumePoint {
            kind: ResumePointKind::BarrierLeave,
            block: next,
        });
        if let Terminator::Barrier { probe, .. } = &mut kernel.blocks[alone.index()].terminator {
            *probe = Some(BarrierProbe { arrive, leave });
        }
    }
    num_barriers
}

/// Moves the terminator of `block` to a block of its own, unless it is alone already; where it stands then.
fn stand_alone(kernel: &mut Kernel, block: BbId) -> BbId {
    if kernel.blocks[block.index()].insts.is_empty() {
        return block;
    }
    let own = &mut kernel.blocks[block.index()];
    let moved = BasicBlock {
        insts: Vec::new(),
        terminator: std::mem::replace(&mut own.terminator, Terminator::Exit),
        span: own.span,
    };
    let alone = kernel.add_block(moved);
    kernel.blocks[block.index()].terminator = Terminator::Jump(alone);
    alone
}

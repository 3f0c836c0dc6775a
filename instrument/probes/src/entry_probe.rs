//! Gives the kernel its first resume point, `rp0`, and the probe that turns a block away before it has done anything.
//!
//! # Requires
//! An unprobed kernel.
//! # Ensures
//! `bb0` has no predecessors and ends in the kernel's only `Poll` of `rp0`; what stands before it only computes
//! registers, of the launch's parameters and the thread's position alone.
//! # Leaves alone
//! The order of instructions; every other basic block.
//! # Cost
//! One poll a thread. It stands as late as may be, so that its load is under way while addresses are computed.
//! # Source
//! ARCHITECTURE.md, "The way of a kernel".

use hetckpt_ir::basic_block::{BasicBlock, Terminator};
use hetckpt_ir::entity::Span;
use hetckpt_ir::inst::Op;
use hetckpt_ir::kernel::{Kernel, ResumePoint, ResumePointKind};
use hetckpt_ir::types::Space;

use crate::edges::{predecessors, redirect};

/// True if nothing but the launch itself decides what the instruction does. What kernels write does not: one before
/// this in its stream may have been stopped before it wrote what a load would read here.
fn only_computes(op: &Op) -> bool {
    match op {
        Op::Load { space, .. } => *space == Space::Param,
        op => !op.has_side_effect(),
    }
}

/// Inserts the entry probe.
pub fn run(kernel: &mut Kernel) {
    let resume_point = kernel.add_resume_point(ResumePoint {
        kind: ResumePointKind::Entry,
        block: Kernel::ENTRY,
    });
    let is_target = !predecessors(kernel, Kernel::ENTRY).is_empty();
    let entry = &mut kernel.blocks[Kernel::ENTRY.index()];
    let split = if is_target {
        0
    } else {
        entry.insts.iter().take_while(|i| only_computes(&i.op)).count()
    };
    let rest = BasicBlock {
        insts: entry.insts.split_off(split),
        terminator: std::mem::replace(&mut entry.terminator, Terminator::Exit),
        span: std::mem::take(&mut entry.span),
    };
    entry.span = Span::default();
    let next = kernel.add_block(rest);
    for pred in predecessors(kernel, Kernel::ENTRY) {
        redirect(kernel, pred, Kernel::ENTRY, next);
    }
    kernel.blocks[Kernel::ENTRY.index()].terminator = Terminator::Poll { resume_point, next };
}

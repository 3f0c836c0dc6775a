//! Makes a loop burn fuel at its back edge and poll when none is left.
//!
//! # Requires
//! The nest's fuel register.
//! # Ensures
//! Every back edge of the loop passes the countdown; fuel is dead at the resume point.
//! # Leaves alone
//! The loop's own code.
//! # Cost
//! A subtraction, a comparison and a branch that is hardly ever taken, per iteration.
//! # Source
//! Measured on one H200: what a countdown costs.

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::BbId;
use hetckpt_ir::kernel::{Kernel, ResumePoint, ResumePointKind};

use crate::edges::{inserted_block, predecessors, redirect};
use crate::fuel::Fuel;
use crate::nest::{LoopId, Nest};

/// Puts the countdown on the loop's back edges; `work` is the estimate of instructions in one iteration.
pub fn run(kernel: &mut Kernel, nest: &mut Nest, id: LoopId, fuel: Fuel, work: u32) {
    let header = nest.header(id);
    let back_edges: Vec<BbId> = predecessors(kernel, header)
        .into_iter()
        .filter(|&p| nest.contains(id, p))
        .collect();
    for block in on_edges(kernel, &back_edges, header, fuel, work) {
        nest.set_home(block, Some(id));
    }
}

/// Puts the countdown on the edges from `sources` to `target`; the blocks added.
pub fn on_edges(kernel: &mut Kernel, sources: &[BbId], target: BbId, fuel: Fuel, work: u32) -> [BbId; 3] {
    let filled = kernel.add_block(inserted_block(vec![fuel.fill()], Terminator::Jump(target)));
    let resume_point = kernel.add_resume_point(ResumePoint {
        kind: ResumePointKind::Loop,
        block: filled,
    });
    let poll = kernel.add_block(inserted_block(
        vec![],
        Terminator::Poll {
            resume_point,
            next: filled,
        },
    ));
    let countdown = fuel.burn_and_test(kernel, fuel.amount(work), poll, target);
    let countdown = kernel.add_block(countdown);
    for &source in sources {
        redirect(kernel, source, target, countdown);
    }
    [filled, poll, countdown]
}

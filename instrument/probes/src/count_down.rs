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
//! design.md §2, the figures for countdowns.

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::BbId;
use hetckpt_ir::kernel::{Kernel, ResumePoint, ResumePointKind};

use crate::edges::{inserted_block, predecessors, redirect};
use crate::fuel::Fuel;
use crate::loop_plan::{LoopId, Nest};

/// Puts the countdown on the loop's back edges; `work` is the estimate of instructions in one iteration.
pub fn run(kernel: &mut Kernel, nest: &mut Nest, id: LoopId, fuel: Fuel, work: u32) {
    let header = nest.header(id);
    let back_edges: Vec<BbId> = predecessors(kernel, header)
        .into_iter()
        .filter(|&p| nest.contains(id, p))
        .collect();
    let poll = poll_block(kernel, nest, id, fuel, header);
    let countdown = fuel.burn_and_test(kernel, fuel.amount(work), poll, header);
    let countdown = kernel.add_block(countdown);
    nest.set_home(countdown, Some(id));
    for latch in back_edges {
        redirect(kernel, latch, header, countdown);
    }
}

/// A poll that fills the fuel up and goes on at `next`.
fn poll_block(kernel: &mut Kernel, nest: &mut Nest, id: LoopId, fuel: Fuel, next: BbId) -> BbId {
    let filled = kernel.add_block(inserted_block(vec![fuel.fill()], Terminator::Jump(next)));
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
    nest.set_home(filled, Some(id));
    nest.set_home(poll, Some(id));
    poll
}

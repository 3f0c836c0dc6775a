//! Repeats the body of a small single-block loop, each copy with its own exit, so that one countdown serves many
//! iterations.
//!
//! # Requires
//! A loop of one basic block that ends in a branch with one edge back to itself.
//! # Ensures
//! The same iterations in the same order; the loop's only back edge starts at the last copy.
//! # Leaves alone
//! Registers: all copies use the same ones, so nothing has to be renamed at the exits.
//! # Cost
//! Code size; per iteration nothing, and often a gain.
//! # Source
//! Measured on one H200: what a countdown per iteration costs, and what is left of it with several bodies.

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::BbId;
use hetckpt_ir::inst::Op;
use hetckpt_ir::kernel::Kernel;

use crate::edges::redirect;
use crate::nest::{LoopId, Nest};

/// Makes `factor` bodies of the loop.
pub fn run(kernel: &mut Kernel, nest: &mut Nest, id: LoopId, factor: u32) {
    let header = nest.header(id);
    let body = kernel.blocks[header.index()].clone();
    let mut last = header;
    for _ in 1..factor {
        let copy = kernel.add_block(body.clone());
        nest.set_home(copy, Some(id));
        redirect(kernel, last, header, copy);
        last = copy;
    }
}

/// How many bodies a loop of `body_insts` instructions should have; 1: leave it as it is.
pub fn factor(body_insts: usize, max_unroll: u32, max_insts: u32) -> u32 {
    let mut factor = max_unroll.max(1);
    while factor > 1 && body_insts.saturating_mul(factor as usize) > max_insts as usize {
        factor /= 2;
    }
    factor
}

/// True if the loop is one block with one edge back to itself and one that leaves.
pub fn is_candidate(kernel: &Kernel, header: BbId) -> bool {
    let block = &kernel.blocks[header.index()];
    let has_exit = matches!(block.terminator, Terminator::Branch { taken, not_taken, .. }
        if (taken == header) != (not_taken == header));
    // Text kept word for word may hold labels, which must not appear twice.
    has_exit && !block.insts.iter().any(|i| matches!(i.op, Op::Opaque { .. }))
}

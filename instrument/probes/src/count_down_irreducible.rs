//! Makes cycles with more than one entry poll: they are no natural loops, so the other loop passes do not see them.
//!
//! # Requires
//! The entry probe; barriers and warp-level operations split; no other loop probes yet.
//! # Ensures
//! Each edge that closes such a cycle passes a countdown.
//! # Leaves alone
//! Reducible kernels, that is all that nvcc makes.
//! # Cost
//! A subtraction, a comparison and a branch per iteration, and a register live all over the kernel.
//! # Source
//! Hecht and Ullman, "Characterizations of Reducible Flow Graphs": every cycle has an edge that goes back in reverse
//! post-order, and those that close no natural loop are the ones listed here.

use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::analysis::dominators::Dominators;
use hetckpt_ir::analysis::loops::LoopForest;
use hetckpt_ir::kernel::Kernel;

use crate::count_down;
use crate::fuel::Fuel;

/// Puts countdowns on the edges; how many there are.
pub fn run(kernel: &mut Kernel, budget: u32) -> u32 {
    let cfg = Cfg::new(kernel);
    let forest = LoopForest::new(&cfg, &Dominators::new(&cfg));
    if forest.is_reducible() {
        return 0;
    }
    let size = kernel.blocks.iter().map(|block| block.insts.len() + 1).sum::<usize>();
    // More than any budget counts as that.
    let work = u32::try_from(size).unwrap_or(u32::MAX);
    let fuel = Fuel::for_kernel(kernel, budget);
    let mut num_edges = 0;
    for &(source, target) in forest.irreducible_edges() {
        count_down::on_edges(kernel, &[source], target, fuel, work);
        num_edges += 1;
    }
    num_edges
}

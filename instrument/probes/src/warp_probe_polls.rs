//! Marks the warp-level operations before which a warp must ask, together, whether one of its lanes has stopped.
//!
//! # Requires
//! All other probes in place.
//! # Ensures
//! `poll` is true exactly where a path from a loop's poll reaches the operation without passing a barrier or another
//! warp-level operation at which all lanes wait for each other: those settle the matter for all lanes.
//! # Leaves alone
//! Everything else.
//! # Cost
//! None in generated code: on GPUs warps stop as wholes, the CPU device lets lanes wait; the interpreter checks it.
//! # Source
//! Forward data flow over the basic blocks; a lane that has stopped does not take part in later operations, and the
//! pause word stays set once it is.

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::inst::{ALL_LANES, Inst, Op, Operand, WarpOp};
use hetckpt_ir::kernel::Kernel;

/// True for an operation that waits for all lanes. At others a lane may be while another one has stopped in a loop that
/// it has left.
fn settles(inst: &Inst) -> bool {
    matches!(
        inst.op,
        Op::Warp {
            op,
            mask: Operand::Imm(ALL_LANES),
            ..
        } if !matches!(op, WarpOp::Step | WarpOp::ActiveMask)
    )
}

/// Sets `poll` of all warp probes.
pub fn run(kernel: &mut Kernel) {
    let mut may_have_polled = vec![false; kernel.blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (id, block) in kernel.iter_blocks() {
            let after = match &block.terminator {
                Terminator::Poll { resume_point, .. } => {
                    *resume_point != Kernel::ENTRY_POINT || may_have_polled[id.index()]
                }
                Terminator::Barrier { .. } => false,
                _ => may_have_polled[id.index()] && !block.insts.iter().any(settles),
            };
            for successor in block.terminator.successors() {
                changed |= after && !may_have_polled[successor.index()];
                may_have_polled[successor.index()] |= after;
            }
        }
    }
    for (block, polled) in kernel.blocks.iter_mut().zip(may_have_polled) {
        if let [
            Inst {
                op: Op::Warp { probe: Some(probe), .. },
                ..
            },
        ] = block.insts.as_mut_slice()
        {
            probe.poll = polled;
        }
    }
}

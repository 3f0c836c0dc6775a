//! Redirecting edges of the control flow graph, with the resume points that stand at their ends.

use hetckpt_ir::basic_block::{BasicBlock, Terminator};
use hetckpt_ir::entity::{BbId, Span};
use hetckpt_ir::inst::{Inst, Op};
use hetckpt_ir::kernel::Kernel;

/// Makes `from` go to `new` wherever it went to `old`. A resume point at the far end of a probe in `from` moves along.
pub fn redirect(kernel: &mut Kernel, from: BbId, old: BbId, new: BbId) {
    let block = &mut kernel.blocks[from.index()];
    if !block.terminator.successors().contains(&old) {
        return;
    }
    block
        .terminator
        .map_successors(|target| if target == old { new } else { target });
    let moved = match (&block.terminator, block.insts.last()) {
        (Terminator::Barrier { probe: Some(probe), .. }, _) => Some(probe.leave),
        (Terminator::Poll { resume_point, .. }, _) if *resume_point != Kernel::ENTRY_POINT => Some(*resume_point),
        (
            Terminator::Jump(_),
            Some(Inst {
                op: Op::Warp { probe: Some(probe), .. },
                ..
            }),
        ) => Some(probe.leave),
        _ => None,
    };
    if let Some(point) = moved {
        kernel.resume_points[point.index()].block = new;
    }
}

/// A basic block that no PTX line stands behind.
pub fn inserted_block(insts: Vec<Op>, terminator: Terminator) -> BasicBlock {
    let insts = insts
        .into_iter()
        .map(|op| Inst {
            op,
            guard: None,
            span: Span::default(),
        })
        .collect();
    BasicBlock {
        insts,
        terminator,
        span: Span::default(),
    }
}

/// Predecessors of a block, each once, in order.
pub fn predecessors(kernel: &Kernel, block: BbId) -> Vec<BbId> {
    kernel
        .iter_blocks()
        .filter(|(_, b)| b.terminator.successors().contains(&block))
        .map(|(id, _)| id)
        .collect()
}

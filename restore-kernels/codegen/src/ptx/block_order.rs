//! The order in which basic blocks are written: what follows a block when no branch is taken comes right after it.

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::BbId;
use hetckpt_ir::kernel::Kernel;

/// All basic blocks, each once, `bb0` first.
pub(super) fn block_order(kernel: &Kernel) -> Vec<BbId> {
    let mut order = Vec::with_capacity(kernel.blocks.len());
    let mut placed = vec![false; kernel.blocks.len()];
    for (start, _) in kernel.iter_blocks() {
        let mut next = Some(start);
        while let Some(id) = next.filter(|id| !std::mem::replace(&mut placed[id.index()], true)) {
            order.push(id);
            next = match &kernel.blocks[id.index()].terminator {
                Terminator::Jump(next) | Terminator::Barrier { next, .. } | Terminator::Poll { next, .. } => {
                    Some(*next)
                }
                Terminator::Branch { taken, not_taken, .. } => {
                    Some(if placed[not_taken.index()] { *taken } else { *not_taken })
                }
                Terminator::Exit | Terminator::Trap => None,
            };
        }
    }
    order
}

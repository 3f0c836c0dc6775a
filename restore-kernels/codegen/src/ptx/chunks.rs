//! Strip-mined loops, told by their shape: behind the probe between two chunks control enters the loop from outside.

use hetckpt_ir::analysis::loops::{LoopForest, LoopId};
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::BbId;
use hetckpt_ir::kernel::Kernel;

/// The loop that the probe at the end of `poll` interrupts between chunks of iterations, and the basic block from which
/// it is entered; `None` if the probe stands in the loop that it interrupts.
pub(crate) fn chunked_loop(kernel: &Kernel, forest: &LoopForest, poll: BbId) -> Option<(LoopId, BbId)> {
    let Terminator::Poll { next, .. } = kernel.blocks[poll.index()].terminator else {
        return None;
    };
    let mut at = next;
    // Longer ways would be cycles.
    for _ in 0..kernel.blocks.len() {
        let Terminator::Jump(to) = kernel.blocks[at.index()].terminator else {
            return None;
        };
        let is_entered = |l: &hetckpt_ir::analysis::loops::Loop| l.header == to && !l.contains(at) && !l.contains(poll);
        if let Some((id, _)) = forest.iter().find(|(_, l)| is_entered(l)) {
            return Some((id, at));
        }
        at = to;
    }
    None
}

//! What about a kernel decides how its probes are written.

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, Span};
use hetckpt_ir::inst::{Op, Operand};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Space;

use super::Error;

/// Facts about one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Facts {
    /// Has resume points.
    pub is_probed: bool,
    /// Launched over a list of blocks.
    pub block_list: bool,
    /// Has a barrier.
    pub has_barrier: bool,
    /// Has a warp-level operation.
    pub has_warp_op: bool,
    /// Touches shared memory.
    pub uses_shared: bool,
    /// A stopping thread must meet the rest of its block before it ends: others may wait at a barrier, and shared memory
    /// can be saved only when nobody writes it any more.
    pub drains: bool,
    /// Single lanes may not stop: in a kernel that drains, a lane waiting for its block would keep its warp's other lanes
    /// waiting at their next warp-level operation, which they must reach first. Such kernels stop at barriers, at
    /// warp-level operations and at the entry.
    pub lanes_stop_together: bool,
    /// Loop probes left out for that reason.
    pub dropped_polls: u32,
}

impl Facts {
    /// Looks at `kernel`.
    ///
    /// # Errors
    /// [`Error::PartialBarrier`].
    pub fn new(kernel: &Kernel, block_list: bool) -> Result<Self, Error> {
        let mut facts = Self {
            is_probed: !kernel.resume_points.is_empty(),
            block_list,
            ..Self::default()
        };
        facts.uses_shared = kernel.shared.static_bytes > 0;
        let mut loop_polls = 0;
        for block in &kernel.blocks {
            for inst in &block.insts {
                facts.has_warp_op |= matches!(inst.op, Op::Warp { .. });
                facts.uses_shared |= touches_shared(&inst.op);
            }
            match &block.terminator {
                Terminator::Barrier { id, count, .. } => {
                    facts.has_barrier = true;
                    if facts.is_probed && (*id != Operand::Imm(0) || count.is_some()) {
                        return Err(Error::PartialBarrier {
                            kernel: kernel.name.clone(),
                            span: block.span,
                        });
                    }
                }
                Terminator::Poll { resume_point, .. } if *resume_point != Kernel::ENTRY_POINT => loop_polls += 1,
                _ => {}
            }
        }
        facts.drains = facts.has_barrier || facts.uses_shared;
        facts.lanes_stop_together = facts.has_warp_op && facts.drains;
        facts.dropped_polls = if facts.lanes_stop_together { loop_polls } else { 0 };
        Ok(facts)
    }
}

fn touches_shared(op: &Op) -> bool {
    matches!(
        op,
        Op::AddrOf {
            space: Space::Shared,
            ..
        } | Op::Load {
            space: Space::Shared,
            ..
        } | Op::Store {
            space: Space::Shared,
            ..
        } | Op::Atom {
            space: Space::Shared,
            ..
        }
    )
}

/// Basic blocks that hold a warp-level operation reachable from a loop probe without another one between: lanes of the
/// warp may have stopped on the way there.
pub(super) fn warp_ops_after_loop_polls(kernel: &Kernel) -> Vec<bool> {
    let has_warp_op = |id: BbId| {
        kernel.blocks[id.index()]
            .insts
            .iter()
            .any(|i| matches!(i.op, Op::Warp { .. }))
    };
    let mut seen = vec![false; kernel.blocks.len()];
    let mut work: Vec<BbId> = kernel
        .blocks
        .iter()
        .filter_map(|b| match b.terminator {
            Terminator::Poll { resume_point, next } if resume_point != Kernel::ENTRY_POINT => Some(next),
            _ => None,
        })
        .collect();
    let mut reached = vec![false; kernel.blocks.len()];
    while let Some(id) = work.pop() {
        if std::mem::replace(&mut seen[id.index()], true) {
            continue;
        }
        if has_warp_op(id) {
            reached[id.index()] = true;
        } else {
            work.extend(kernel.blocks[id.index()].terminator.successors());
        }
    }
    reached
}

/// Where nothing better is known.
pub(super) const NO_SPAN: Span = Span { line: 0 };

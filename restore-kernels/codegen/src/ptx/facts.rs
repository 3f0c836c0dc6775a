//! What about a kernel decides how its probes are written.

use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, Span};
use hetckpt_ir::inst::Op;
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
    /// Is short and has no way round: each of its threads comes to its end soon, and does not need to be asked to stop.
    /// It may be launched without a control block, and has code for that.
    pub ends_soon: bool,
    /// A stopping thread must meet the rest of its block before it ends: others may wait at a barrier, and shared
    /// memory can be saved only when nobody writes it any more.
    pub drains: bool,
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
        for block in &kernel.blocks {
            for inst in &block.insts {
                facts.has_warp_op |= matches!(inst.op, Op::Warp { .. });
                facts.uses_shared |= touches_shared(&inst.op);
            }
            facts.has_barrier |= matches!(block.terminator, Terminator::Barrier { .. });
        }
        if facts.is_probed
            && let Some(span) = kernel.partial_barrier()
        {
            return Err(Error::PartialBarrier {
                kernel: kernel.name.clone(),
                span,
            });
        }
        facts.drains = facts.has_barrier || facts.uses_shared;
        facts.ends_soon = facts.is_probed && !block_list && ends_soon(kernel);
        Ok(facts)
    }
}

/// Instructions of a short kernel. Longer ones lose little time with probes, and compiling them twice takes long.
const FEW_INSTS: usize = 512;

/// True if no thread goes round a loop, or tells by its control block that it has trapped.
fn ends_soon(kernel: &Kernel) -> bool {
    if kernel.blocks.iter().map(|block| block.insts.len()).sum::<usize>() > FEW_INSTS {
        return false;
    }
    let cfg = Cfg::new(kernel);
    let traps = |id: BbId| kernel.blocks[id.index()].terminator == Terminator::Trap;
    let mut reachable = cfg.reverse_post_order().iter();
    reachable.all(|&id| {
        let goes_back = |next: &BbId| cfg.position(*next) <= cfg.position(id);
        !traps(id) && !cfg.successors(id).iter().any(goes_back)
    })
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

/// Where nothing better is known.
pub(super) const NO_SPAN: Span = Span { line: 0 };

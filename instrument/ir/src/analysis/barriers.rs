//! Where threads meet: barriers and warp-level operations, and whether they are of the kinds that can be probed.

use super::definitions::{Definitions, Location};
use crate::basic_block::Terminator;
use crate::entity::BbId;
use crate::inst::{Op, WarpOp};
use crate::kernel::Kernel;

/// Barriers and warp-level operations of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeetingPoints {
    /// Blocks that end in a barrier.
    pub barriers: Vec<BbId>,
    /// Of these, the ones that are not the whole block's barrier 0.
    pub partial_barriers: Vec<BbId>,
    /// Warp-level operations, `activemask` included.
    pub warp_ops: Vec<Location>,
    /// Of these, the ones whose member mask is not known to be all lanes (`activemask` has none and is not among them).
    pub partial_warp_ops: Vec<Location>,
    /// `activemask`: shows the program which lanes run together.
    pub active_masks: Vec<Location>,
    /// Instructions that are not modelled and may be anything.
    pub opaque: Vec<Location>,
}

impl MeetingPoints {
    /// Collects them from `kernel`.
    #[must_use]
    pub fn new(kernel: &Kernel, definitions: &Definitions) -> Self {
        let mut found = Self::default();
        for (id, block) in kernel.iter_blocks() {
            for (index, inst) in block.insts.iter().enumerate() {
                let at = Location { block: id, index };
                match &inst.op {
                    Op::Warp {
                        op: WarpOp::ActiveMask, ..
                    } => {
                        found.warp_ops.push(at);
                        found.active_masks.push(at);
                    }
                    Op::Warp { mask, .. } => {
                        found.warp_ops.push(at);
                        let mask = definitions.constant(kernel, *mask);
                        if mask.is_none_or(|m| m & u64::from(u32::MAX) != u64::from(u32::MAX)) {
                            found.partial_warp_ops.push(at);
                        }
                    }
                    Op::Opaque { .. } => found.opaque.push(at),
                    _ => {}
                }
            }
            if let Terminator::Barrier { id: number, count, .. } = &block.terminator {
                found.barriers.push(id);
                if count.is_some() || definitions.constant(kernel, *number) != Some(0) {
                    found.partial_barriers.push(id);
                }
            }
        }
        found
    }

    /// True if threads of a block wait for one another.
    #[must_use]
    pub fn has_barrier(&self) -> bool {
        !self.barriers.is_empty()
    }

    /// True if lanes of a warp exchange values or wait for one another.
    #[must_use]
    pub fn has_warp_op(&self) -> bool {
        !self.warp_ops.is_empty()
    }

    /// True if every barrier is the whole block's barrier 0.
    #[must_use]
    pub fn all_barriers_are_whole_block(&self) -> bool {
        self.partial_barriers.is_empty()
    }

    /// True if every member mask is the constant −1.
    #[must_use]
    pub fn all_warp_ops_are_whole_warp(&self) -> bool {
        self.partial_warp_ops.is_empty()
    }
}

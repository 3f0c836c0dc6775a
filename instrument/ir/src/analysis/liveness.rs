//! Which registers are live where: backward data flow over the basic blocks.
//!
//! A guarded write does not end a live range (PTX ISA, "Predicated Execution").

use super::cfg::Cfg;
use super::reg_set::RegSet;
use crate::entity::BbId;
use crate::kernel::Kernel;

/// Live-in and live-out sets of each basic block.
#[derive(Clone, Debug)]
pub struct Liveness {
    live_in: Vec<RegSet>,
    live_out: Vec<RegSet>,
}

impl Liveness {
    /// Computes the sets for `kernel`, unreachable blocks included.
    #[must_use]
    pub fn new(kernel: &Kernel) -> Self {
        let n = kernel.blocks.len();
        let mut result = Self {
            live_in: vec![RegSet::with_capacity(kernel.registers.len()); n],
            live_out: vec![RegSet::with_capacity(kernel.registers.len()); n],
        };
        // Successors first: block numbers say nothing about that once passes have added blocks.
        let cfg = Cfg::new(kernel);
        let unreachable = (0u32..).map(BbId).take(n).filter(|id| !cfg.is_reachable(*id));
        let order: Vec<BbId> = cfg
            .reverse_post_order()
            .iter()
            .rev()
            .copied()
            .chain(unreachable)
            .collect();
        let mut changed = true;
        while changed {
            changed = false;
            for &id in &order {
                let (block, id) = (&kernel.blocks[id.index()], id.index());
                for successor in block.terminator.successors() {
                    let live = result.live_in[successor.index()].clone();
                    result.live_out[id].union_with(&live);
                }
                let live = live_before(block, result.live_out[id].clone());
                changed |= result.live_in[id].union_with(&live);
            }
        }
        result
    }

    /// Registers live at the start of a block.
    #[must_use]
    pub fn live_in(&self, block: BbId) -> &RegSet {
        &self.live_in[block.index()]
    }

    /// Registers live at the end of a block (after its terminator).
    #[must_use]
    pub fn live_out(&self, block: BbId) -> &RegSet {
        &self.live_out[block.index()]
    }
}

fn live_before(block: &crate::basic_block::BasicBlock, mut live: RegSet) -> RegSet {
    if let Some(def) = block.terminator.def() {
        live.remove(def);
    }
    block.terminator.for_each_use(|r| {
        live.insert(r);
    });
    for inst in block.insts.iter().rev() {
        if inst.guard.is_none() {
            inst.for_each_def(|r| live.remove(r));
        }
        inst.for_each_use(|r| {
            live.insert(r);
        });
    }
    live
}

//! Where each register is written, and which registers hold a constant.

use crate::entity::{BbId, RegId};
use crate::inst::{Inst, Op, Operand};
use crate::kernel::Kernel;

/// A place in a kernel: an instruction, or (`index` = number of instructions) the block's terminator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The basic block.
    pub block: BbId,
    /// Index into its instructions.
    pub index: usize,
}

impl Location {
    /// The instruction there; `None` at a terminator.
    #[must_use]
    pub fn inst(self, kernel: &Kernel) -> Option<&Inst> {
        kernel.blocks[self.block.index()].insts.get(self.index)
    }
}

/// All writes of each register, in order of blocks and instructions.
#[derive(Clone, Debug)]
pub struct Definitions {
    locations: Vec<Vec<Location>>,
}

impl Definitions {
    /// Collects the writes of `kernel`.
    #[must_use]
    pub fn new(kernel: &Kernel) -> Self {
        let mut locations = vec![Vec::new(); kernel.registers.len()];
        for (id, block) in kernel.iter_blocks() {
            for (index, inst) in block.insts.iter().enumerate() {
                inst.for_each_def(|r| locations[r.index()].push(Location { block: id, index }));
            }
            if let Some(def) = block.terminator.def() {
                locations[def.index()].push(Location {
                    block: id,
                    index: block.insts.len(),
                });
            }
        }
        Self { locations }
    }

    /// Writes of a register, guarded ones included.
    #[must_use]
    pub fn of(&self, reg: RegId) -> &[Location] {
        &self.locations[reg.index()]
    }

    /// The value of an operand that is an immediate or a register whose only write is an unguarded `mov` of a constant
    /// (through any number of such moves).
    #[must_use]
    pub fn constant(&self, kernel: &Kernel, operand: Operand) -> Option<u64> {
        let mut operand = operand;
        // A chain of single definitions that comes back to itself has no value; it is no longer than the registers.
        for _ in 0..=kernel.registers.len() {
            let reg = match operand {
                Operand::Imm(value) => return Some(value),
                Operand::Reg(reg) => reg,
            };
            let [only] = self.of(reg) else { return None };
            match only.inst(kernel) {
                Some(Inst {
                    op: Op::Mov { src, .. },
                    guard: None,
                    ..
                }) => operand = *src,
                _ => return None,
            }
        }
        None
    }
}

//! A thread: registers, local frame, place, state.

use hetckpt_ir::entity::{BbId, RegId, ResumePointId};
use hetckpt_ir::inst::{Guard, Operand};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Width;

use crate::integer::truncate;

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    /// Waits at the barrier that ends its basic block.
    AtBarrier,
    /// Waits at the warp-level operation at its place.
    AtWarpOp,
    Stopped(ResumePointId),
    Finished,
}

/// One thread of a block.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    /// Values, zero-extended from each register's width.
    pub registers: Vec<u64>,
    pub local: Vec<u8>,
    pub block: BbId,
    /// Index of the next instruction; the number of instructions means the terminator.
    pub index: usize,
    pub state: State,
}

impl Thread {
    pub(super) fn new(kernel: &Kernel) -> Self {
        Self {
            registers: vec![0; kernel.registers.len()],
            local: vec![0; kernel.local.size_bytes as usize],
            block: Kernel::ENTRY,
            index: 0,
            state: State::Running,
        }
    }

    pub(super) fn jump(&mut self, to: BbId) {
        self.block = to;
        self.index = 0;
    }

    pub(super) fn get(&self, reg: RegId) -> u64 {
        self.registers[reg.index()]
    }

    pub(super) fn set(&mut self, kernel: &Kernel, reg: RegId, value: u64) {
        let bits = match kernel.width(reg) {
            Width::Pred => 1,
            width => 8 * width.size_bytes(),
        };
        self.registers[reg.index()] = truncate(value, bits);
    }

    pub(super) fn operand(&self, operand: Operand) -> u64 {
        match operand {
            Operand::Reg(reg) => self.get(reg),
            Operand::Imm(value) => value,
        }
    }

    pub(super) fn holds(&self, guard: Guard) -> bool {
        (self.get(guard.pred) != 0) != guard.negated
    }
}

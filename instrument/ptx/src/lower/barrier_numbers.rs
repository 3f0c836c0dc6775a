//! Which of a block's barriers a function names, and how: found before anything is lowered.

use hetckpt_ir::inst::Operand;

use crate::ast::{self, Const, Instruction, Statement};

/// Which of a block's barriers code names, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BarrierNumbers {
    /// A bit for each that threads arrive at.
    arrived_at: u16,
    /// Threads arrive at one that a register names.
    by_register: bool,
    /// A bit for each that the whole block waits at.
    of_block: u16,
    /// A bit for each that a number of threads waits at.
    of_some: u16,
}

impl BarrierNumbers {
    /// Those of a function's body.
    pub(crate) fn of(statements: &[Statement<'_>]) -> Self {
        let mut all = Self::default();
        for statement in statements {
            if let Statement::Instruction(inst) = statement
                && matches!(inst.opcode, "bar" | "barrier")
                && !inst.modifiers.iter().any(|name| matches!(*name, "cluster" | "warp"))
            {
                all.add(inst);
            }
        }
        all
    }

    /// These and `other`.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            arrived_at: self.arrived_at | other.arrived_at,
            by_register: self.by_register | other.by_register,
            of_block: self.of_block | other.of_block,
            of_some: self.of_some | other.of_some,
        }
    }

    fn add(&mut self, inst: &Instruction<'_>) {
        let bit = |number: &ast::Operand<'_>| match number {
            ast::Operand::Const(Const::Int(number @ 0..16)) => Some(1 << number),
            _ => None,
        };
        let has = |name| inst.modifiers.contains(&name);
        match inst.operands.as_slice() {
            [number, ..] if has("arrive") => match bit(number) {
                Some(bit) => self.arrived_at |= bit,
                None => self.by_register = true,
            },
            [number] if has("sync") => self.of_block |= bit(number).unwrap_or(0),
            [_, number, _] if has("red") => self.of_block |= bit(number).unwrap_or(0),
            [number, _] | [_, number, _, _] => self.of_some |= bit(number).unwrap_or(0),
            _ => {}
        }
    }

    /// True if threads arrive at any without waiting.
    pub(crate) const fn has_arrivals(&self) -> bool {
        self.arrived_at != 0 || self.by_register
    }

    /// True if threads may arrive at this barrier without waiting there.
    pub(crate) const fn may_be_arrived_at(&self, number: Operand, is_of_block: bool) -> bool {
        match number {
            Operand::Imm(number) => self.arrived_at >> (number & 15) & 1 == 1 || self.by_register && !is_of_block,
            Operand::Reg(_) => self.has_arrivals(),
        }
    }

    /// A bit for each that stays hetIR's.
    pub(crate) const fn of_ir(&self) -> u64 {
        let of_some = if self.by_register { 0 } else { self.of_some };
        ((self.of_block | of_some) & !self.arrived_at) as u64
    }
}

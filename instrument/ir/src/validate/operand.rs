//! Widths of registers and ranges of immediates.

use super::error::Rule;
use crate::entity::RegId;
use crate::inst::Operand;
use crate::kernel::Kernel;
use crate::types::{Type, Width};

/// Checks operands against the registers of a kernel; ids are in range.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a> {
    pub kernel: &'a Kernel,
}

/// The register width that holds a value of `ty` exactly (8 bits are held by 16).
pub(super) const fn width_of(ty: Type) -> Width {
    match ty {
        Type::Pred => Width::Pred,
        _ => match ty.size_bytes() {
            1 | 2 => Width::W16,
            4 => Width::W32,
            _ => Width::W64,
        },
    }
}

const fn expected(width: Width) -> &'static str {
    match width {
        Width::Pred => "a predicate",
        Width::W16 => "16 bits",
        Width::W32 => "32 bits",
        Width::W64 => "64 bits",
    }
}

impl Operands<'_> {
    pub(super) fn width(self, reg: RegId, width: Width) -> Result<(), Rule> {
        match self.kernel.width(reg) {
            found if found == width => Ok(()),
            found => Err(Rule::RegisterWidth {
                reg,
                found,
                expected: expected(width),
            }),
        }
    }

    pub(super) fn predicate(self, reg: RegId) -> Result<(), Rule> {
        self.width(reg, Width::Pred)
    }

    /// As wide as the type; 8-bit values may be held by any width but a predicate.
    pub(super) fn exact(self, reg: RegId, ty: Type) -> Result<(), Rule> {
        if ty.size_bytes() == 1 && ty != Type::Pred {
            self.at_least(reg, ty)
        } else {
            self.width(reg, width_of(ty))
        }
    }

    /// As wide as the type or wider (PTX ISA, "Operand Size Exceeding Instruction-Type Size").
    pub(super) fn at_least(self, reg: RegId, ty: Type) -> Result<(), Rule> {
        let found = self.kernel.width(reg);
        if ty == Type::Pred {
            return self.predicate(reg);
        }
        if found == Width::Pred || found < width_of(ty) {
            return Err(Rule::RegisterWidth {
                reg,
                found,
                expected: expected(width_of(ty)),
            });
        }
        Ok(())
    }

    /// A source of exactly this type.
    pub(super) fn source(self, operand: Operand, ty: Type) -> Result<(), Rule> {
        match operand {
            Operand::Reg(reg) => self.exact(reg, ty),
            Operand::Imm(value) => immediate(value, ty),
        }
    }

    /// A source of this type in a register that may be wider.
    pub(super) fn wide_source(self, operand: Operand, ty: Type) -> Result<(), Rule> {
        match operand {
            Operand::Reg(reg) => self.at_least(reg, ty),
            Operand::Imm(value) => immediate(value, ty),
        }
    }
}

/// No bits beyond the type.
pub(super) fn immediate(value: u64, ty: Type) -> Result<(), Rule> {
    let bits = if ty == Type::Pred { 1 } else { 8 * ty.size_bytes() };
    let fits = bits == 64 || value >> bits == 0;
    if fits {
        Ok(())
    } else {
        Err(Rule::ImmediateRange { value, ty })
    }
}

pub(super) fn count(found: usize, expected: usize) -> Result<(), Rule> {
    if found == expected {
        Ok(())
    } else {
        Err(Rule::OperandCount { expected, found })
    }
}

//! Integer arithmetic, logic and bit operations (PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift
//! Instructions").
//!
//! Sums and products are those of unsigned numbers, which wrap in C; 16 bits are computed in 32 and cut off.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AluOp, Modifiers, Operand};
use hetckpt_ir::types::Type;

use super::super::Error;
use super::super::writer::Writer;

impl Writer<'_> {
    /// Writes an arithmetic instruction on integers or predicates.
    pub(super) fn integer_alu(
        &mut self,
        op: AluOp,
        ty: Type,
        mods: Modifiers,
        dst: RegId,
        srcs: &[Operand],
    ) -> Result<(), Error> {
        let value = if ty == Type::Pred {
            self.predicate_logic(op, srcs)
        } else {
            self.product_or_quotient(op, ty, mods, srcs)
                .or_else(|| self.bit_operation(op, ty, srcs))
        };
        let value = value.ok_or_else(|| self.malformed("arithmetic instruction"))?;
        self.assign(dst, value);
        Ok(())
    }

    fn predicate_logic(&self, op: AluOp, srcs: &[Operand]) -> Option<String> {
        let src = |i: usize| srcs.get(i).map(|&s| self.bits(Type::Pred, s));
        Some(match op {
            AluOp::And => format!("{} && {}", src(0)?, src(1)?),
            AluOp::Or => format!("{} || {}", src(0)?, src(1)?),
            AluOp::Xor => format!("{} != {}", src(0)?, src(1)?),
            AluOp::Not | AluOp::Cnot => format!("!{}", src(0)?),
            _ => return None,
        })
    }

    /// Arithmetic; `None` for other operations.
    fn product_or_quotient(&self, op: AluOp, ty: Type, mods: Modifiers, srcs: &[Operand]) -> Option<String> {
        let suffix = suffix(ty);
        // Wrapping, and with the type's sign.
        let u = |i: usize| srcs.get(i).map(|&s| self.number(unsigned(ty), s));
        let n = |i: usize| srcs.get(i).map(|&s| self.number(ty, s));
        let is_saturated = mods.sat && ty == Type::S32;
        Some(match op {
            AluOp::Add if is_saturated => format!("add_sat({}, {})", n(0)?, n(1)?),
            AluOp::Sub if is_saturated => format!("sub_sat({}, {})", n(0)?, n(1)?),
            AluOp::Add => format!("{} + {}", u(0)?, u(1)?),
            AluOp::Sub => format!("{} - {}", u(0)?, u(1)?),
            AluOp::Mul => format!("{} * {}", u(0)?, u(1)?),
            AluOp::Mad => format!("{} * {} + {}", u(0)?, u(1)?, u(2)?),
            AluOp::MulHi if ty.size_bytes() == 2 => format!("({} * {}) >> 16", n(0)?, n(1)?),
            AluOp::MulHi => format!("mul_hi({}, {})", n(0)?, n(1)?),
            AluOp::MadHi if ty.size_bytes() == 2 => format!("(({} * {}) >> 16) + {}", n(0)?, n(1)?, n(2)?),
            AluOp::MadHi if is_saturated => format!("add_sat(mul_hi({}, {}), {})", n(0)?, n(1)?, n(2)?),
            AluOp::MadHi if ty.is_signed() => {
                let bits = if ty.size_bytes() == 8 { "as_ulong" } else { "as_uint" };
                format!("{bits}(mul_hi({}, {})) + {}", n(0)?, n(1)?, u(2)?)
            }
            AluOp::MadHi => format!("mul_hi({}, {}) + {}", n(0)?, n(1)?, n(2)?),
            AluOp::MulWide => self.wide_product(ty, srcs)?,
            AluOp::MadWide => {
                let wide = if ty.size_bytes() == 2 { Type::U32 } else { Type::U64 };
                let cast = if wide == Type::U32 { "uint" } else { "ulong" };
                let addend = srcs.get(2).map(|&s| self.number(wide, s))?;
                format!("({cast})({}) + {addend}", self.wide_product(ty, srcs)?)
            }
            AluOp::Div => match srcs.get(1)? {
                Operand::Imm(divisor) if is_plain_divisor(ty, *divisor) => format!("{} / {}", n(0)?, n(1)?),
                _ => format!("ptx_div_{suffix}({}, {})", n(0)?, n(1)?),
            },
            AluOp::Rem => match srcs.get(1)? {
                Operand::Imm(divisor) if is_plain_divisor(ty, *divisor) => format!("{} % {}", n(0)?, n(1)?),
                _ => format!("ptx_rem_{suffix}({}, {})", n(0)?, n(1)?),
            },
            AluOp::Min => format!("min({}, {})", n(0)?, n(1)?),
            AluOp::Max => format!("max({}, {})", n(0)?, n(1)?),
            AluOp::Abs => format!("abs({})", n(0)?),
            AluOp::Neg => format!("{} - {}", if ty.size_bytes() == 8 { "0ul" } else { "0u" }, u(0)?),
            AluOp::Sad => format!("abs_diff({}, {}) + {}", n(0)?, n(1)?, u(2)?),
            _ => return None,
        })
    }

    /// Twice as wide as the type.
    fn wide_product(&self, ty: Type, srcs: &[Operand]) -> Option<String> {
        let n = |i: usize| srcs.get(i).map(|&s| self.number(ty, s));
        let cast = match (ty.size_bytes(), ty.is_signed()) {
            (2, _) => return Some(format!("{} * {}", n(0)?, n(1)?)),
            (_, true) => "(long)",
            (_, false) => "(ulong)",
        };
        Some(format!("{cast}{} * {cast}{}", n(0)?, n(1)?))
    }

    /// Logic, shifts, searches, fields; `None` for other operations.
    fn bit_operation(&self, op: AluOp, ty: Type, srcs: &[Operand]) -> Option<String> {
        let bits = 8 * ty.size_bytes();
        let wide = bits.max(32);
        let u = |i: usize| srcs.get(i).map(|&s| self.number(unsigned(ty), s));
        let n = |i: usize| srcs.get(i).map(|&s| self.number(ty, s));
        let amount = |i: usize| srcs.get(i).map(|&s| self.bits(Type::U32, s));
        let small = |i: usize| match srcs.get(i) {
            Some(Operand::Imm(amount)) if *amount < u64::from(bits) => Some(*amount),
            _ => None,
        };
        Some(match op {
            AluOp::And => format!("{} & {}", u(0)?, u(1)?),
            AluOp::Or => format!("{} | {}", u(0)?, u(1)?),
            AluOp::Xor => format!("{} ^ {}", u(0)?, u(1)?),
            AluOp::Not => format!("~{}", u(0)?),
            AluOp::Cnot => format!("{} == 0 ? 1 : 0", u(0)?),
            AluOp::Shl => match small(1) {
                Some(amount) => format!("{} << {amount}", u(0)?),
                None => format!("ptx_shl_{wide}({}, {})", u(0)?, amount(1)?),
            },
            AluOp::Shr => match small(1) {
                Some(amount) => format!("{} >> {amount}", n(0)?),
                None => format!("ptx_shr_{}({}, {})", suffix(ty), n(0)?, amount(1)?),
            },
            AluOp::ShfLWrap => format!("ptx_shf_l({}, {}, {} & 31)", u(0)?, u(1)?, amount(2)?),
            AluOp::ShfLClamp => format!("ptx_shf_l_clamp({}, {}, {})", u(0)?, u(1)?, amount(2)?),
            AluOp::ShfRWrap => format!("ptx_shf_r_clamp({}, {}, {} & 31)", u(0)?, u(1)?, amount(2)?),
            AluOp::ShfRClamp => format!("ptx_shf_r_clamp({}, {}, {})", u(0)?, u(1)?, amount(2)?),
            AluOp::Popc => format!("popcount({})", u(0)?),
            AluOp::Clz => format!("ptx_clz_{bits}({})", u(0)?),
            AluOp::Brev => format!("ptx_brev_{bits}({})", u(0)?),
            AluOp::Bfind => format!("ptx_bfind_{}({})", suffix(ty), n(0)?),
            AluOp::BfindShiftAmt => {
                let (suffix, n) = (suffix(ty), n(0)?);
                // All ones stay all ones; else the distance from the top.
                format!("ptx_bfind_shiftamt(ptx_bfind_{suffix}({n}), {}u)", bits - 1)
            }
            AluOp::Bfe => format!("ptx_bfe_{}({}, {}, {})", suffix(ty), n(0)?, amount(1)?, amount(2)?),
            AluOp::Bfi => format!("ptx_bfi_{bits}({}, {}, {}, {})", u(0)?, u(1)?, amount(2)?, amount(3)?),
            AluOp::BmskClamp => format!("ptx_bmsk_clamp({}, {})", u(0)?, u(1)?),
            AluOp::BmskWrap => format!("ptx_bmsk_wrap({}, {})", u(0)?, u(1)?),
            AluOp::Prmt => format!("ptx_prmt({}, {}, {})", u(0)?, u(1)?, u(2)?),
            AluOp::Lop3 => format!("ptx_lop3({}, {}, {}, {})", u(0)?, u(1)?, u(2)?, amount(3)?),
            _ => return None,
        })
    }
}

/// A constant that needs no care for zero or for the one quotient that overflows.
fn is_plain_divisor(ty: Type, divisor: u64) -> bool {
    let unused = 64 - 8 * ty.size_bytes();
    let bits = divisor << unused;
    bits != 0 && !(ty.is_signed() && bits.cast_signed() >> unused == -1)
}

/// The type without its sign.
const fn unsigned(ty: Type) -> Type {
    match ty.size_bytes() {
        1 => Type::U8,
        2 => Type::U16,
        4 => Type::U32,
        _ => Type::U64,
    }
}

/// Name of the width that a type is computed in.
const fn suffix(ty: Type) -> &'static str {
    match (ty.size_bytes(), ty.is_signed()) {
        (8, true) => "s64",
        (8, false) => "u64",
        (_, true) => "s32",
        (_, false) => "u32",
    }
}

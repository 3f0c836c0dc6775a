//! Arithmetic, logic and bit operations (PTX ISA, "Instructions").

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AluOp, Modifiers, Operand};
use hetckpt_ir::types::Type;

use super::super::Error;
use super::super::writer::Writer;
use super::modifiers;

impl Writer<'_> {
    /// Writes an arithmetic instruction.
    pub(super) fn alu(
        &mut self,
        guard: &str,
        op: AluOp,
        ty: Type,
        mods: Modifiers,
        dst: RegId,
        srcs: &[Operand],
    ) -> Result<(), Error> {
        if srcs.len() != num_sources(op) {
            return Err(self.malformed("arithmetic instruction"));
        }
        let mut operands = vec![self.reg(dst)];
        for (i, &src) in srcs.iter().enumerate() {
            operands.push(self.operand(source_type(op, ty, i), src));
        }
        let name = mnemonic(op, ty);
        let mods = match op {
            // `fma` has no default rounding.
            AluOp::Fma if mods.rounding.is_none() => modifiers(Modifiers {
                rounding: Some(hetckpt_ir::inst::Rounding::Rn),
                ..mods
            }),
            _ => modifiers(mods),
        };
        self.line(format_args!(
            "{guard}{name}{mods}.{} {}",
            ty.name(),
            operands.join(", ")
        ));
        Ok(())
    }
}

const fn mnemonic(op: AluOp, ty: Type) -> &'static str {
    match op {
        AluOp::Add => "add",
        AluOp::Sub => "sub",
        AluOp::Mul if ty.is_float() => "mul",
        AluOp::Mul => "mul.lo",
        AluOp::MulHi => "mul.hi",
        AluOp::MulWide => "mul.wide",
        AluOp::Mad if ty.is_float() => "mad",
        AluOp::Mad => "mad.lo",
        AluOp::MadHi => "mad.hi",
        AluOp::MadWide => "mad.wide",
        AluOp::Fma => "fma",
        AluOp::Div => "div",
        AluOp::Rem => "rem",
        AluOp::Min => "min",
        AluOp::Max => "max",
        AluOp::Abs => "abs",
        AluOp::Neg => "neg",
        AluOp::Sad => "sad",
        AluOp::And => "and",
        AluOp::Or => "or",
        AluOp::Xor => "xor",
        AluOp::Not => "not",
        AluOp::Cnot => "cnot",
        AluOp::Shl => "shl",
        AluOp::Shr => "shr",
        AluOp::ShfLWrap => "shf.l.wrap",
        AluOp::ShfLClamp => "shf.l.clamp",
        AluOp::ShfRWrap => "shf.r.wrap",
        AluOp::ShfRClamp => "shf.r.clamp",
        AluOp::Popc => "popc",
        AluOp::Clz => "clz",
        AluOp::Brev => "brev",
        AluOp::Bfind => "bfind",
        AluOp::BfindShiftAmt => "bfind.shiftamt",
        AluOp::Bfe => "bfe",
        AluOp::Bfi => "bfi",
        AluOp::BmskClamp => "bmsk.clamp",
        AluOp::BmskWrap => "bmsk.wrap",
        AluOp::Prmt => "prmt",
        AluOp::Lop3 => "lop3",
        AluOp::Rcp => "rcp",
        AluOp::Sqrt => "sqrt",
        AluOp::Rsqrt => "rsqrt",
        AluOp::Sin => "sin",
        AluOp::Cos => "cos",
        AluOp::Lg2 => "lg2",
        AluOp::Ex2 => "ex2",
        AluOp::Tanh => "tanh",
        AluOp::Copysign => "copysign",
    }
}

const fn num_sources(op: AluOp) -> usize {
    match op {
        AluOp::Abs
        | AluOp::Neg
        | AluOp::Not
        | AluOp::Cnot
        | AluOp::Popc
        | AluOp::Clz
        | AluOp::Brev
        | AluOp::Bfind
        | AluOp::BfindShiftAmt
        | AluOp::Rcp
        | AluOp::Sqrt
        | AluOp::Rsqrt
        | AluOp::Sin
        | AluOp::Cos
        | AluOp::Lg2
        | AluOp::Ex2
        | AluOp::Tanh => 1,
        AluOp::Mad
        | AluOp::MadHi
        | AluOp::MadWide
        | AluOp::Fma
        | AluOp::Sad
        | AluOp::ShfLWrap
        | AluOp::ShfLClamp
        | AluOp::ShfRWrap
        | AluOp::ShfRClamp
        | AluOp::Bfe
        | AluOp::Prmt => 3,
        AluOp::Bfi | AluOp::Lop3 => 4,
        _ => 2,
    }
}

/// Type of source `index`.
const fn source_type(op: AluOp, ty: Type, index: usize) -> Type {
    match (op, index) {
        (AluOp::Shl | AluOp::Shr, 1)
        | (AluOp::ShfLWrap | AluOp::ShfLClamp | AluOp::ShfRWrap | AluOp::ShfRClamp, 2)
        | (AluOp::Bfe, 1 | 2)
        | (AluOp::Bfi, 2 | 3) => Type::U32,
        (AluOp::MadWide, 2) => match ty {
            Type::S16 => Type::S32,
            Type::U16 => Type::U32,
            Type::S32 => Type::S64,
            _ => Type::U64,
        },
        _ => ty,
    }
}

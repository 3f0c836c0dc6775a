//! Arithmetic and logic: which family an operation belongs to.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AluOp, Inst, Modifiers, Operand};
use hetckpt_ir::types::Type;

use super::{bit_field, float, integer, unsupported};
use crate::emit::function::FunctionText;
use crate::emit::types::llvm;
use crate::error::CodegenError;

/// Writes an [`hetckpt_ir::inst::Op::Alu`].
pub fn write(
    f: &mut FunctionText<'_>,
    inst: &Inst,
    op: AluOp,
    ty: Type,
    mods: Modifiers,
    dst: RegId,
    srcs: &[Operand],
) -> Result<(), CodegenError> {
    if srcs.len() != num_sources(op) {
        return Err(unsupported(inst, format!("{op:?} with {} operands", srcs.len())));
    }
    if matches!(op, AluOp::And | AluOp::Or | AluOp::Xor | AluOp::Not) {
        logic(f, op, ty, dst, srcs);
        return Ok(());
    }
    if ty.is_float() {
        return float::write(f, inst, op, ty, mods, dst, srcs);
    }
    if ty == Type::Pred {
        return Err(unsupported(inst, format!("{op:?} on predicates")));
    }
    match op {
        AluOp::ShfLWrap
        | AluOp::ShfLClamp
        | AluOp::ShfRWrap
        | AluOp::ShfRClamp
        | AluOp::Popc
        | AluOp::Clz
        | AluOp::Brev
        | AluOp::Bfind
        | AluOp::BfindShiftAmt
        | AluOp::Bfe
        | AluOp::Bfi
        | AluOp::BmskClamp
        | AluOp::BmskWrap
        | AluOp::Prmt
        | AluOp::Lop3 => bit_field::write(f, inst, op, ty, dst, srcs),
        _ => integer::write(f, inst, op, ty, mods, dst, srcs),
    }
}

fn logic(f: &mut FunctionText<'_>, op: AluOp, ty: Type, dst: RegId, srcs: &[Operand]) {
    // Logic on bits: a float type would say nothing.
    let ty = match ty {
        Type::F16 | Type::Bf16 => Type::B16,
        Type::F32 | Type::F16x2 | Type::Bf16x2 => Type::B32,
        Type::F64 => Type::B64,
        other => other,
    };
    let a = f.read(srcs[0], ty);
    let (name, b) = match op {
        AluOp::And => ("and", f.read(srcs[1], ty)),
        AluOp::Or => ("or", f.read(srcs[1], ty)),
        AluOp::Xor => ("xor", f.read(srcs[1], ty)),
        _ => (
            "xor",
            if ty == Type::Pred {
                "true".to_owned()
            } else {
                "-1".to_owned()
            },
        ),
    };
    let value = f.def(format!("{name} {} {a}, {b}", llvm(ty)));
    f.write(dst, ty, value);
}

fn num_sources(op: AluOp) -> usize {
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
        AluOp::Add
        | AluOp::Sub
        | AluOp::Mul
        | AluOp::MulHi
        | AluOp::MulWide
        | AluOp::Div
        | AluOp::Rem
        | AluOp::Min
        | AluOp::Max
        | AluOp::And
        | AluOp::Or
        | AluOp::Xor
        | AluOp::Shl
        | AluOp::Shr
        | AluOp::BmskClamp
        | AluOp::BmskWrap
        | AluOp::Copysign => 2,
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
    }
}

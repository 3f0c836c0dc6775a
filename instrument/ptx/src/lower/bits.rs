//! Logic, shifts and bit fields (PTX ISA, "Logic and Shift Instructions" and the bit instructions among the integer
//! ones).

use hetckpt_ir::inst::{AluOp, Modifiers};
use hetckpt_ir::types::{Type, Width};

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::arithmetic::{Alu, check_type, emit};
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::scope::width_of;

const WORDS: [Type; 2] = [Type::B32, Type::B64];
const FIELDS: [Type; 4] = [Type::U32, Type::U64, Type::S32, Type::S64];

fn only_type(inst: &Instruction<'_>, types: &[&[Type]]) -> Result<Type, Reason> {
    let mut list = ModifierList::new(inst);
    let ty = list.ty()?;
    list.finish()?;
    check_type(ty, types)?;
    Ok(ty)
}

const fn alu(op: AluOp, ty: Type, srcs: &[Type]) -> Alu<'_> {
    let mods = Modifiers {
        rounding: None,
        ftz: false,
        sat: false,
        approx: false,
        full: false,
    };
    Alu {
        op,
        ty,
        mods,
        dst: width_of(ty),
        srcs,
    }
}

/// PTX ISA, "and", "or", "xor", "not", "cnot".
pub(super) fn logic<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    op: AluOp,
    num_srcs: usize,
) -> Result<(), Reason> {
    let pred: &[Type] = if op == AluOp::Cnot { &[] } else { &[Type::Pred] };
    let ty = only_type(inst, &[pred, &[Type::B16], &WORDS])?;
    let srcs = [ty; 2];
    emit(k, inst, &alu(op, ty, srcs.get(..num_srcs).unwrap_or(&srcs)))
}

/// PTX ISA, "shl", "shr". The amount is always 32 bits.
pub(super) fn shift<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>, op: AluOp) -> Result<(), Reason> {
    const ARITHMETIC: [Type; 6] = [Type::U16, Type::U32, Type::U64, Type::S16, Type::S32, Type::S64];
    let more: &[Type] = if op == AluOp::Shr { &ARITHMETIC } else { &[] };
    let ty = only_type(inst, &[&[Type::B16], &WORDS, more])?;
    emit(k, inst, &alu(op, ty, &[ty, Type::U32]))
}

/// PTX ISA, "shf".
pub(super) fn funnel_shift<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let left = list
        .take_from(&[("l", true), ("r", false)])
        .ok_or(Reason::Lacks("a direction"))?;
    let wrap = list
        .take_from(&[("wrap", true), ("clamp", false)])
        .ok_or(Reason::Lacks("`.wrap` or `.clamp`"))?;
    let ty = list.ty()?;
    list.finish()?;
    check_type(ty, &[&[Type::B32]])?;
    let op = match (left, wrap) {
        (true, true) => AluOp::ShfLWrap,
        (true, false) => AluOp::ShfLClamp,
        (false, true) => AluOp::ShfRWrap,
        (false, false) => AluOp::ShfRClamp,
    };
    emit(k, inst, &alu(op, ty, &[ty, ty, Type::U32]))
}

/// PTX ISA, "popc", "clz". The result is 32 bits.
pub(super) fn count<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>, op: AluOp) -> Result<(), Reason> {
    let ty = only_type(inst, &[&WORDS])?;
    emit(
        k,
        inst,
        &Alu {
            dst: Width::W32,
            ..alu(op, ty, &[ty])
        },
    )
}

/// PTX ISA, "brev".
pub(super) fn reverse<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let ty = only_type(inst, &[&WORDS])?;
    emit(k, inst, &alu(AluOp::Brev, ty, &[ty]))
}

/// PTX ISA, "bfind". The result is 32 bits.
pub(super) fn find<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let op = if list.take("shiftamt") {
        AluOp::BfindShiftAmt
    } else {
        AluOp::Bfind
    };
    let ty = list.ty()?;
    list.finish()?;
    check_type(ty, &[&FIELDS])?;
    emit(
        k,
        inst,
        &Alu {
            dst: Width::W32,
            ..alu(op, ty, &[ty])
        },
    )
}

/// PTX ISA, "bfe".
pub(super) fn extract<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let ty = only_type(inst, &[&FIELDS])?;
    emit(k, inst, &alu(AluOp::Bfe, ty, &[ty, Type::U32, Type::U32]))
}

/// PTX ISA, "bfi".
pub(super) fn insert<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let ty = only_type(inst, &[&WORDS])?;
    emit(k, inst, &alu(AluOp::Bfi, ty, &[ty, ty, Type::U32, Type::U32]))
}

/// PTX ISA, "bmsk".
pub(super) fn mask<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let modes = [("clamp", AluOp::BmskClamp), ("wrap", AluOp::BmskWrap)];
    let op = list.take_from(&modes).ok_or(Reason::Lacks("`.clamp` or `.wrap`"))?;
    let ty = list.ty()?;
    list.finish()?;
    check_type(ty, &[&[Type::B32]])?;
    emit(k, inst, &alu(op, ty, &[Type::U32, Type::U32]))
}

/// PTX ISA, "prmt", default mode.
pub(super) fn permute<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let ty = only_type(inst, &[&[Type::B32]])?;
    emit(k, inst, &alu(AluOp::Prmt, ty, &[ty, ty, ty]))
}

/// PTX ISA, "lop3". The truth table is a constant of 8 bits.
pub(super) fn lop3<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let ty = only_type(inst, &[&[Type::B32]])?;
    if let Some(table) = inst.operands.last()
        && !matches!(table, ast::Operand::Const(ast::Const::Int(0..=255)))
    {
        return Err(Reason::Operand {
            expected: "a constant of 8 bits",
            found: table.describe(),
        });
    }
    emit(k, inst, &alu(AluOp::Lop3, ty, &[ty, ty, ty, Type::U32]))
}

//! Logic, shifts and bit fields (PTX ISA, "Logic and Shift Instructions" and the bit instructions among the integer
//! ones).

use hetckpt_ir::inst::{AluOp, Modifiers, Op, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::arithmetic::{Alu, check_type, emit, scratch};
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;
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

/// PTX ISA, "szext": the bits below a place, extended by zeros or the topmost of them.
pub(super) fn extend<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let modes = [("clamp", (AluOp::Min, 32)), ("wrap", (AluOp::And, 31))];
    let (limit, by) = list.take_from(&modes).ok_or(Reason::Lacks("`.clamp` or `.wrap`"))?;
    let ty = list.ty()?;
    list.finish()?;
    check_type(ty, &[&[Type::U32, Type::S32]])?;
    let [dst, src, count] = operands(inst, "3")?;
    let (src, count) = (k.value(src, ty)?, k.value(count, Type::U32)?);
    let dst = k.result(dst, Width::W32)?;
    let limit_ty = if limit == AluOp::And { Type::B32 } else { Type::U32 };
    let count = scratch(k, limit, limit_ty, Width::W32, vec![count, Operand::Imm(by)]);
    k.emit(Op::Alu {
        op: AluOp::Bfe,
        ty,
        mods: Modifiers::default(),
        dst,
        srcs: vec![src, Operand::Imm(0), count],
    });
    Ok(())
}

/// Modes of `prmt`, and what the default mode would be told instead for 0 to 3 in the lowest bits of the third source,
/// 16 bits each.
const MODES: [(&str, [u16; 4]); 6] = [
    ("f4e", [0x3210, 0x4321, 0x5432, 0x6543]),
    ("b4e", [0x5670, 0x6701, 0x7012, 0x0123]),
    ("rc8", [0x0000, 0x1111, 0x2222, 0x3333]),
    ("ecl", [0x3210, 0x3211, 0x3222, 0x3333]),
    ("ecr", [0x0000, 0x1110, 0x2210, 0x3210]),
    ("rc16", [0x1010, 0x3232, 0x1010, 0x3232]),
];

/// PTX ISA, "prmt".
pub(super) fn permute<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let ty = list.ty()?;
    let mode = list.take_from(&MODES);
    list.finish()?;
    check_type(ty, &[&[Type::B32]])?;
    let Some(selectors) = mode else {
        return emit(k, inst, &alu(AluOp::Prmt, ty, &[ty, ty, ty]));
    };
    let [dst, a, b, c] = operands(inst, "4")?;
    let (a, b, c) = (k.value(a, ty)?, k.value(b, ty)?, k.value(c, ty)?);
    let dst = k.result(dst, Width::W32)?;
    let pair = |at: usize| Operand::Imm(u64::from(selectors[at]) | u64::from(selectors[at + 1]) << 16);
    // Bytes 2n and 2n + 1 of the table: the default mode can take them out as well.
    let number = vec![c, Operand::Imm(3)];
    let number = scratch(k, AluOp::And, Type::B32, Width::W32, number);
    let bytes = vec![number, Operand::Imm(0x22), Operand::Imm(0x10)];
    let bytes = scratch(k, AluOp::Mad, Type::U32, Width::W32, bytes);
    let selector = scratch(k, AluOp::Prmt, ty, Width::W32, vec![pair(0), pair(2), bytes]);
    let srcs = vec![a, b, selector];
    let mods = Modifiers::default();
    k.emit(Op::Alu {
        op: AluOp::Prmt,
        ty,
        mods,
        dst,
        srcs,
    });
    Ok(())
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

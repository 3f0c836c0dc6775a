//! Logic, shifts and bit fields (PTX ISA, "Logic and Shift Instructions" and the bit instructions among the integer
//! ones).

use hetckpt_ir::inst::{AluOp, BoolOp, Comparison, Guard, Modifiers, Op, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::arithmetic::{Alu, check_type, emit, scratch};
use crate::lower::halves::compare;
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

/// PTX ISA, "fns": the place of a bit that is set: the first, the second, … from a place upwards, or downwards.
pub(super) fn find_nth<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    only_type(inst, &[&[Type::B32]])?;
    let [dst, mask, base, offset] = operands(inst, "4")?;
    let (mask, base, offset) = (
        k.value(mask, Type::B32)?,
        k.value(base, Type::U32)?,
        k.value(offset, Type::S32)?,
    );
    let dst = k.result(dst, Width::W32)?;
    let word = |k: &mut KernelLowering<'_, 'a>, op, ty, srcs: &[Operand]| scratch(k, op, ty, Width::W32, srcs.to_vec());
    let choose = |k: &mut KernelLowering<'_, 'a>, pred, [a, b]: [Operand; 2]| {
        let dst = k.scratch(Width::W32);
        let ty = Type::B32;
        k.emit_unguarded(Op::Selp { ty, dst, a, b, pred });
        Operand::Reg(dst)
    };
    let zero = Operand::Imm(0);
    // Downwards is upwards in the mask turned round.
    let is_down = compare(k, (Comparison::Lt, Type::S32), offset, zero, None);
    let reversed = word(k, AluOp::Brev, Type::B32, &[mask]);
    let mask = choose(k, is_down, [reversed, mask]);
    let from_above = word(k, AluOp::Sub, Type::U32, &[Operand::Imm(31), base]);
    let from = choose(k, is_down, [from_above, base]);
    let negated = word(k, AluOp::Sub, Type::U32, &[zero, offset]);
    let number = choose(k, is_down, [negated, offset]);
    // None: the bit at that place itself.
    let is_itself = compare(k, (Comparison::Eq, Type::S32), offset, zero, None);
    let itself = word(k, AluOp::Shl, Type::B32, &[Operand::Imm(1), from]);
    let and_above = word(k, AluOp::Shl, Type::B32, &[Operand::Imm(u64::from(u32::MAX)), from]);
    let span = choose(k, is_itself, [itself, and_above]);
    let mask = word(k, AluOp::And, Type::B32, &[mask, span]);
    let number = word(k, AluOp::Max, Type::U32, &[number, Operand::Imm(1)]);
    let (mut left, mut place) = (number, zero);
    for width in [16, 8, 4, 2, 1] {
        let part = word(k, AluOp::Bfe, Type::U32, &[mask, place, Operand::Imm(width)]);
        let count = word(k, AluOp::Popc, Type::B32, &[part]);
        let is_beyond = compare(k, (Comparison::Gt, Type::U32), left, count, None);
        let fewer = word(k, AluOp::Sub, Type::U32, &[left, count]);
        let further = word(k, AluOp::Add, Type::U32, &[place, Operand::Imm(width)]);
        left = choose(k, is_beyond, [fewer, left]);
        place = choose(k, is_beyond, [further, place]);
    }
    let from_below = word(k, AluOp::Sub, Type::U32, &[Operand::Imm(31), place]);
    let place = choose(k, is_down, [from_below, place]);
    let count = word(k, AluOp::Popc, Type::B32, &[mask]);
    let is_there = compare(k, (Comparison::Ge, Type::U32), count, number, None);
    k.emit(Op::Selp {
        ty: Type::B32,
        dst,
        a: place,
        b: Operand::Imm(u64::from(u32::MAX)),
        pred: is_there,
    });
    Ok(())
}

const BOOL_OPS: [(&str, BoolOp); 2] = [("or", BoolOp::Or), ("and", BoolOp::And)];

/// PTX ISA, "lop3". The truth table is a constant of 8 bits. With a second result: whether the first one is not zero,
/// combined with a predicate.
pub(super) fn lop3<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let bool_op = list.take_from(&BOOL_OPS);
    let ty = list.ty()?;
    list.finish()?;
    check_type(ty, &[&[Type::B32]])?;
    if let Some(bool_op) = bool_op {
        return lop3_with_predicate(k, inst, bool_op);
    }
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

fn lop3_with_predicate<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    bool_op: BoolOp,
) -> Result<(), Reason> {
    let [results, a, b, c, table, combined] = operands(inst, "6")?;
    let ast::Operand::Const(ast::Const::Int(table @ 0..=255)) = table else {
        return Err(Reason::Operand {
            expected: "a constant of 8 bits",
            found: table.describe(),
        });
    };
    let ast::Operand::Pair(dst, pred) = results else {
        return Err(Reason::Operand {
            expected: "two results",
            found: results.describe(),
        });
    };
    let Guard {
        pred: combined,
        negated,
    } = k.predicate(combined)?;
    let mut srcs = vec![];
    for src in [a, b, c] {
        srcs.push(k.value(src, Type::B32)?);
    }
    srcs.push(Operand::Imm(*table));
    let value = scratch(k, AluOp::Lop3, Type::B32, Width::W32, srcs);
    let combine = Some((bool_op, combined, negated));
    let is_not_zero = compare(k, (Comparison::Ne, Type::B32), value, Operand::Imm(0), combine);
    let result = k.result(&ast::Operand::Name(pred, None), Width::Pred)?;
    if *dst != "_" {
        let dst = k.result(&ast::Operand::Name(dst, None), Width::W32)?;
        k.emit(Op::Mov {
            ty: Type::B32,
            dst,
            src: value,
        });
    }
    k.emit(Op::Mov {
        ty: Type::Pred,
        dst: result,
        src: Operand::Reg(is_not_zero),
    });
    Ok(())
}

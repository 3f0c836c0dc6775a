//! Conversions to tf32, single precision with 10 bits of mantissa (PTX ISA, "cvt", `.tf32`).

use hetckpt_ir::inst::{AluOp, Comparison, Op, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::ast::Instruction;
use crate::error::Reason;
use crate::lower::arithmetic::{check_type, scratch};
use crate::lower::halves::compare;
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;

/// Bits of single precision's mantissa that tf32 lacks.
const LOST_BITS: u64 = 13;

/// Where a number between two goes.
#[derive(Clone, Copy)]
enum Rounding {
    /// To the nearer one, from the middle away from zero.
    Away,
    /// To the nearer one, from the middle to the even one.
    Even,
    TowardsZero,
}

const ROUNDINGS: [(&str, Rounding); 3] = [
    ("rna", Rounding::Away),
    ("rn", Rounding::Even),
    ("rz", Rounding::TowardsZero),
];

/// True for a conversion that is lowered here.
pub(super) fn has(inst: &Instruction<'_>) -> bool {
    inst.modifiers.contains(&"tf32")
}

/// PTX ISA, "cvt" to `.tf32`.
pub(super) fn cvt<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let rounding = list.take_from(&ROUNDINGS).ok_or(Reason::Lacks("a rounding"))?;
    let (has_relu, is_finite) = (list.take("relu"), list.take("satfinite"));
    list.take("tf32");
    let ty = list.ty()?;
    list.finish()?;
    check_type(ty, &[&[Type::F32]])?;
    let [dst, src] = operands(inst, "2")?;
    let src = k.value(src, ty)?;
    let dst = k.result(dst, Width::W32)?;
    let word =
        |k: &mut KernelLowering<'_, 'a>, op, ty, srcs: [Operand; 2]| scratch(k, op, ty, Width::W32, srcs.to_vec());
    // A carry goes on into the exponent, where it belongs.
    let half = 1 << (LOST_BITS - 1);
    let sum = match rounding {
        Rounding::TowardsZero => src,
        Rounding::Away => word(k, AluOp::Add, Type::U32, [src, Operand::Imm(half)]),
        Rounding::Even => {
            let place = vec![src, Operand::Imm(LOST_BITS), Operand::Imm(1)];
            let is_odd = scratch(k, AluOp::Bfe, Type::U32, Width::W32, place);
            let below = word(k, AluOp::Add, Type::U32, [src, Operand::Imm(half - 1)]);
            word(k, AluOp::Add, Type::U32, [below, is_odd])
        }
    };
    let kept = Operand::Imm(u64::from(u32::MAX << LOST_BITS));
    let mut rounded = word(k, AluOp::And, Type::B32, [sum, kept]);
    if has_relu {
        rounded = word(k, AluOp::Max, Type::S32, [rounded, Operand::Imm(0)]);
    }
    if is_finite {
        rounded = finite(k, rounded);
    }
    let is_nan = compare(k, (Comparison::Nan, Type::F32), src, src, None);
    // What a GPU makes of it.
    let nan = match rounding {
        Rounding::Away => {
            let kept = word(k, AluOp::And, Type::B32, [src, kept]);
            match is_finite {
                // As what is infinite, which the smallest of these become.
                true => word(k, AluOp::Sub, Type::U32, [kept, Operand::Imm(1 << LOST_BITS)]),
                false => kept,
            }
        }
        _ => Operand::Imm(0x7FFF_E000),
    };
    k.emit(Op::Selp {
        ty: Type::B32,
        dst,
        a: nan,
        b: rounded,
        pred: is_nan,
    });
    Ok(())
}

/// What is infinite becomes the largest number of that sign.
fn finite(k: &mut KernelLowering<'_, '_>, src: Operand) -> Operand {
    const INFINITY: u64 = 0x7F80_0000;
    let bits = |k: &mut KernelLowering<'_, '_>, op, ty, by| scratch(k, op, ty, Width::W32, vec![src, Operand::Imm(by)]);
    let magnitude = bits(k, AluOp::And, Type::B32, 0x7FFF_FFFF);
    let is_infinite = compare(k, (Comparison::Eq, Type::U32), magnitude, Operand::Imm(INFINITY), None);
    // The last mantissa bit less, with the exponent that then is the largest.
    let largest = bits(k, AluOp::Sub, Type::U32, 1 << LOST_BITS);
    let dst = k.scratch(Width::W32);
    k.emit_unguarded(Op::Selp {
        ty: Type::B32,
        dst,
        a: largest,
        b: src,
        pred: is_infinite,
    });
    Operand::Reg(dst)
}

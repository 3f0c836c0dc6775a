//! Floating-point numbers of 8 bits, in pairs (PTX ISA, "cvt", `.e4m3x2` and `.e5m2x2`; "OCP 8-bit Floating Point
//! Specification", 5).

use hetckpt_ir::inst::{AluOp, Comparison, Modifiers, Op, Operand, Rounding};
use hetckpt_ir::types::{Type, Width};

use crate::ast::Instruction;
use crate::error::Reason;
use crate::lower::arithmetic::scratch;
use crate::lower::halves::{halves, relu};
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;

/// A format: its bits of mantissa, and the bias of its exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    mantissa: u64,
    bias: u64,
    /// The largest finite number.
    largest: u32,
}

pub(crate) const E4M3: Format = Format {
    mantissa: 3,
    bias: 7,
    largest: 448,
};
pub(crate) const E5M2: Format = Format {
    mantissa: 2,
    bias: 15,
    largest: 57344,
};

const FORMATS: [(&str, Format); 2] = [("e4m3x2", E4M3), ("e5m2x2", E5M2)];
/// NaN in both.
const NAN: u64 = 0x7F;

/// True for a conversion that is lowered here.
pub(super) fn has(inst: &Instruction<'_>) -> bool {
    let mut modifiers = inst.modifiers.iter();
    modifiers.any(|modifier| FORMATS.iter().any(|(name, _)| name == modifier))
}

/// PTX ISA, "cvt" from or to pairs of 8 bits.
pub(super) fn cvt<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let is_result = inst
        .modifiers
        .iter()
        .position(|m| FORMATS.iter().any(|(name, _)| name == m));
    let format = list.take_from(&FORMATS).ok_or(Reason::Lacks("a type"))?;
    let (mods, has_relu) = (list.arithmetic(), list.take("relu"));
    if mods.rounding != Some(Rounding::Rn) {
        return Err(Reason::Lacks("`.rn`"));
    }
    let is_result = is_result.is_some_and(|at| at + 2 == inst.modifiers.len());
    let has_limit = list.take("satfinite");
    let ty = list.ty()?;
    list.finish()?;
    match (is_result, ty) {
        (true, Type::F32 | Type::F16x2) if has_limit => narrow(k, inst, format, ty, has_relu),
        (false, Type::F16x2) if !has_limit => widen(k, inst, format, has_relu),
        _ => Err(Reason::Type(ty.name().to_owned())),
    }
}

/// Emits an operation on 32 bits.
fn word(k: &mut KernelLowering<'_, '_>, op: AluOp, ty: Type, srcs: [Operand; 2]) -> Operand {
    scratch(k, op, ty, Width::W32, srcs.to_vec())
}

fn convert(k: &mut KernelLowering<'_, '_>, src: Operand, (src_ty, dst_ty): (Type, Type)) -> Operand {
    let dst = k.scratch(if dst_ty == Type::F16 || dst_ty == Type::U16 {
        Width::W16
    } else {
        Width::W32
    });
    k.emit_unguarded(Op::Cvt {
        dst_ty,
        src_ty,
        mods: Modifiers::default(),
        dst,
        src,
    });
    Operand::Reg(dst)
}

fn select(k: &mut KernelLowering<'_, '_>, cmp: Comparison, ty: Type, of: [Operand; 2], ways: [Operand; 2]) -> Operand {
    let (pred, dst) = (k.scratch(Width::Pred), k.scratch(Width::W32));
    k.emit_unguarded(Op::Setp {
        cmp,
        ty,
        ftz: false,
        dst: pred,
        dst_not: None,
        a: of[0],
        b: of[1],
        combine: None,
    });
    k.emit_unguarded(Op::Selp {
        ty: Type::B32,
        dst,
        a: ways[0],
        b: ways[1],
        pred,
    });
    Operand::Reg(dst)
}

/// Two numbers into 16 bits, the first source's into the upper ones.
fn narrow<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    format: Format,
    ty: Type,
    has_relu: bool,
) -> Result<(), Reason> {
    let (dst, [low, high]) = if ty == Type::F32 {
        let [dst, high, low] = operands(inst, "3")?;
        (dst, [k.value(low, ty)?, k.value(high, ty)?])
    } else {
        let [dst, src] = operands(inst, "2")?;
        let src = k.value(src, ty)?;
        let parts = halves(k, src).map(Operand::Reg);
        (dst, parts.map(|part| convert(k, part, (Type::F16, Type::F32))))
    };
    let dst = k.result(dst, Width::W16)?;
    let [low, high] = [low, high].map(|number| narrowed(k, format, number, has_relu));
    let high = word(k, AluOp::Shl, Type::B32, [high, Operand::Imm(8)]);
    let both = word(k, AluOp::Or, Type::B32, [low, high]);
    let src = convert(k, both, (Type::U32, Type::U16));
    k.emit(Op::Mov {
        ty: Type::B16,
        dst,
        src,
    });
    Ok(())
}

/// The byte of a number in single precision, rounded to nearest even.
fn narrowed(k: &mut KernelLowering<'_, '_>, format: Format, number: Operand, has_relu: bool) -> Operand {
    const EXPONENT: u64 = 0xFF << 23;
    let number = if has_relu { relu(k, Type::F32, number) } else { number };
    let sign = word(k, AluOp::Shr, Type::U32, [number, Operand::Imm(24)]);
    let sign = word(k, AluOp::And, Type::B32, [sign, Operand::Imm(0x80)]);
    let magnitude = word(k, AluOp::And, Type::B32, [number, Operand::Imm(0x7FFF_FFFF)]);
    let largest = Operand::Imm(u64::from((format.largest as f32).to_bits()));
    let limited = word(k, AluOp::Min, Type::U32, [magnitude, largest]);
    // Added to a power of two so much larger, a number loses the bits that the format has no place for. Below the
    // smallest normal number all have as many behind the point.
    let smallest = 128 - format.bias;
    let exponent = word(k, AluOp::And, Type::B32, [limited, Operand::Imm(EXPONENT)]);
    let exponent = word(k, AluOp::Max, Type::U32, [exponent, Operand::Imm(smallest << 23)]);
    let larger = Operand::Imm((23 - format.mantissa) << 23);
    let power = word(k, AluOp::Add, Type::U32, [exponent, larger]);
    let sum = word(k, AluOp::Add, Type::F32, [limited, power]);
    let rounded = word(k, AluOp::Sub, Type::F32, [sum, power]);
    // Of a normal number exponent and mantissa stand side by side; of others the bits that are left of the sum.
    let normal = word(k, AluOp::Shr, Type::U32, [rounded, Operand::Imm(23 - format.mantissa)]);
    let bias = Operand::Imm((127 - format.bias) << format.mantissa);
    let normal = word(k, AluOp::Sub, Type::U32, [normal, bias]);
    let subnormal = word(k, AluOp::And, Type::B32, [sum, Operand::Imm(0xFF)]);
    let first_normal = Operand::Imm(smallest << 23);
    let byte = select(
        k,
        Comparison::Lo,
        Type::U32,
        [rounded, first_normal],
        [subnormal, normal],
    );
    let byte = word(k, AluOp::Or, Type::B32, [byte, sign]);
    let infinity = Operand::Imm(EXPONENT);
    select(
        k,
        Comparison::Hi,
        Type::U32,
        [magnitude, infinity],
        [Operand::Imm(NAN), byte],
    )
}

/// Two bytes into a pair of halves, which have all such numbers.
fn widen<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    format: Format,
    has_relu: bool,
) -> Result<(), Reason> {
    let [dst, src] = operands(inst, "2")?;
    let src = k.value(src, Type::B16)?;
    let dst = k.result(dst, Width::W32)?;
    let pair = convert(k, src, (Type::U16, Type::U32));
    let srcs = [0, 8].map(|at| {
        let half = widened_part(k, format, pair, at);
        if has_relu { relu(k, Type::F16, half) } else { half }
    });
    k.emit(Op::Pack {
        ty: Type::B32,
        dst,
        srcs: srcs.to_vec(),
    });
    Ok(())
}

/// The two bytes of a register from bit `at` on, as a pair of halves.
pub(crate) fn widened_pair(k: &mut KernelLowering<'_, '_>, format: Format, register: Operand, at: u64) -> Operand {
    let srcs = [at, at + 8].map(|at| widened_part(k, format, register, at));
    let dst = k.scratch(Width::W32);
    k.emit_unguarded(Op::Pack {
        ty: Type::B32,
        dst,
        srcs: srcs.to_vec(),
    });
    Operand::Reg(dst)
}

/// The half of a register's byte from bit `at` on.
fn widened_part(k: &mut KernelLowering<'_, '_>, format: Format, register: Operand, at: u64) -> Operand {
    let place = vec![register, Operand::Imm(at), Operand::Imm(8)];
    let byte = scratch(k, AluOp::Bfe, Type::U32, Width::W32, place);
    widened(k, format, byte)
}

/// The half of a byte.
fn widened(k: &mut KernelLowering<'_, '_>, format: Format, byte: Operand) -> Operand {
    let sign = word(k, AluOp::And, Type::B32, [byte, Operand::Imm(0x80)]);
    let sign = word(k, AluOp::Shl, Type::B32, [sign, Operand::Imm(8)]);
    let rest = word(k, AluOp::And, Type::B32, [byte, Operand::Imm(0x7F)]);
    let bits = word(k, AluOp::Shl, Type::B32, [rest, Operand::Imm(10 - format.mantissa)]);
    // As a half the number is too small by the difference of the biases.
    let half = convert(k, bits, (Type::U32, Type::U16));
    let wide = convert(k, half, (Type::F16, Type::F32));
    let factor = f32::from(1_u16 << (15 - format.bias));
    let wide = word(
        k,
        AluOp::Mul,
        Type::F32,
        [wide, Operand::Imm(u64::from(factor.to_bits()))],
    );
    let dst = k.scratch(Width::W16);
    k.emit_unguarded(Op::Cvt {
        dst_ty: Type::F16,
        src_ty: Type::F32,
        mods: Modifiers {
            rounding: Some(Rounding::Rn),
            ..Modifiers::default()
        },
        dst,
        src: wide,
    });
    let exact = convert(k, Operand::Reg(dst), (Type::U16, Type::U32));
    let signed = word(k, AluOp::Or, Type::B32, [exact, sign]);
    // The first pattern that is no number: only one of the format with fewer, all above infinity of the other.
    let last = if format.bias == 7 { 0x7E } else { 0x7C };
    let nan = Operand::Imm(0x7FFF);
    let result = select(k, Comparison::Hi, Type::U32, [rest, Operand::Imm(last)], [nan, signed]);
    convert(k, result, (Type::U32, Type::U16))
}

//! Products of a row and a column, added up as an H200 was seen to (compared for every kind of element, over all kinds
//! of numbers, to the bit).
//!
//! * f16, bf16 and tf32: all products of an instruction and what they are added to are cut off, towards zero, at one
//!   place: 25 bits below the highest leading bit among them, where the leading bit of a product is that of its
//!   factors' exponents added up, and below 2^-133 at least. Their sum is exact, and then cut off, or rounded to the
//!   nearest f16. Zero is positive; NaNs have all bits but the sign.
//! * f64: fused multiplications and additions, one after the other.
//! * Integers and bits: exact; the sum wraps unless it is limited.

use hetckpt_ir::inst::{AluOp, Comparison, Modifiers, Op, Operand, Rounding};
use hetckpt_ir::types::{Type, Width};

use crate::error::Reason;
use crate::lower::arithmetic::convert;
use crate::lower::eight_bits::widened_pair;
use crate::lower::lowering::KernelLowering;
use crate::lower::matrix::element::{Element, MATCHES, Sum};
use crate::lower::matrix::emit::{choose, long, pack, unpack, word};
use crate::lower::modifiers::ModifierList;

/// Where numbers are cut off: bits below the highest leading one.
const KEPT_BITS: u32 = 25;
/// The lowest place of a leading bit that counts, with twice single precision's bias: 2^-133.
const LEAST_PLACE: u32 = 2 * BIAS - 133;
/// Bias of single precision's exponents.
const BIAS: u32 = 127;
/// The same of double precision.
const LONG_BIAS: u32 = 1023;
/// Bits of single precision's mantissa.
const MANTISSA_BITS: u64 = 23;
/// Bits of double precision's mantissa that are in the upper word.
const LONG_MANTISSA_BITS: u64 = 20;
/// Exponent of zero: below all others, also when another one is added.
const OF_ZERO: u64 = (-2048_i32).cast_unsigned() as u64;
/// What a NaN is as a result.
const NAN: [u64; 2] = [0x7FFF, 0x7FFF_FFFF];
/// 2^128, the first that single precision does not have.
const TOO_LARGE: u64 = 0x47F0_0000_0000_0000;
const ABOVE_SIGN: u64 = i64::MAX.cast_unsigned();
const LONG_INFINITY: u64 = 0x7FF0_0000_0000_0000;

/// A row or column, ready to be multiplied.
pub(crate) enum Factors {
    /// Floats that are added up exactly.
    Numbers(Vec<Number>),
    /// Doubles.
    Doubles(Vec<Operand>),
    /// Integers of 32 bits.
    Ints(Vec<Operand>),
    /// Bits, 32 in each.
    Bits(Vec<Operand>),
}

/// A float.
#[derive(Clone, Copy)]
pub(crate) struct Number {
    /// As double precision.
    value: Operand,
    /// Place of its leading bit, with single precision's bias.
    exponent: Operand,
}

/// How products are added up.
#[derive(Clone, Copy)]
pub(crate) struct Adding {
    pub(crate) sum: Sum,
    /// That of double precision; to the nearest if none is said.
    pub(crate) rounding: Option<Rounding>,
    /// Integers are limited to what 32 bits hold.
    pub(crate) is_limited: bool,
    /// How bits match.
    pub(crate) matches: AluOp,
}

impl Adding {
    /// What the modifiers say but for the types: with [`Sum::F32`] until these are known.
    pub(crate) fn read(list: &mut ModifierList<'_>) -> Result<(Self, bool), Reason> {
        let is_limited = list.take("satfinite");
        let matches = list.take_from(&MATCHES);
        if matches.is_some() && !list.take("popc") {
            return Err(Reason::Lacks("`.popc`"));
        }
        let adding = Self {
            sum: Sum::F32,
            is_limited,
            rounding: list.arithmetic().rounding,
            matches: matches.unwrap_or(AluOp::And),
        };
        Ok((adding, matches.is_some()))
    }
}

/// Takes the registers' content apart.
pub(crate) fn factors(k: &mut KernelLowering<'_, '_>, element: Element, registers: &[Operand]) -> Factors {
    let each = registers.iter().copied();
    match element {
        Element::F64 => Factors::Doubles(each.collect()),
        Element::Bit => Factors::Bits(each.collect()),
        Element::Int { bits, is_signed } => {
            let ty = if is_signed { Type::S32 } else { Type::U32 };
            let parts = each.flat_map(|register| (0..32 / bits).map(move |at| (register, at * bits)));
            let ints = parts.map(|(register, at)| {
                let place = [register, Operand::Imm(at.into()), Operand::Imm(bits.into())];
                word(k, AluOp::Bfe, ty, place)
            });
            Factors::Ints(ints.collect())
        }
        Element::F16 => Factors::Numbers(each.flat_map(|register| of_halves(k, register)).collect()),
        Element::F8(format) => {
            let parts = each.flat_map(|register| [(register, 0), (register, 16)]);
            let numbers = parts.flat_map(|(register, at)| {
                let pair = widened_pair(k, format, register, at);
                of_halves(k, pair)
            });
            Factors::Numbers(numbers.collect())
        }
        Element::Bf16 => {
            let numbers = each.flat_map(|register| {
                let low = word(k, AluOp::Shl, Type::B32, [register, Operand::Imm(16)]);
                let high = word(k, AluOp::And, Type::B32, [register, Operand::Imm(0xFFFF_0000)]);
                [low, high].map(|single| of_single(k, single, 1))
            });
            Factors::Numbers(numbers.collect())
        }
        Element::Tf32 => {
            let numbers = each.map(|register| {
                let kept = word(k, AluOp::And, Type::B32, [register, Operand::Imm(0xFFFF_E000)]);
                of_single(k, kept, 1)
            });
            Factors::Numbers(numbers.collect())
        }
    }
}

/// The two halves of a register.
fn of_halves(k: &mut KernelLowering<'_, '_>, register: Operand) -> [Number; 2] {
    unpack(k, Type::B32, Width::W16, register).map(|half| of_half(k, half))
}

fn of_half(k: &mut KernelLowering<'_, '_>, half: Operand) -> Number {
    let single = convert(k, (Type::F32, Type::F16), None, half);
    // Below the least normal number, 2^-14, the leading bit stays where it is.
    of_single(k, single, u64::from(BIAS - 14))
}

/// Of single precision, of a format whose least normal number has this exponent.
fn of_single(k: &mut KernelLowering<'_, '_>, single: Operand, least: u64) -> Number {
    let place = [single, Operand::Imm(MANTISSA_BITS), Operand::Imm(8)];
    let exponent = word(k, AluOp::Bfe, Type::U32, place);
    let exponent = word(k, AluOp::Max, Type::U32, [exponent, Operand::Imm(least)]);
    let is_zero = (Comparison::Eq, Type::F32, single, Operand::Imm(0));
    Number {
        value: convert(k, (Type::F64, Type::F32), None, single),
        exponent: choose(k, is_zero, Type::B32, (Operand::Imm(OF_ZERO), exponent)),
    }
}

/// The sum of `before`, as a register or half of one has it, of this kind, and the products of a row and a column.
pub(crate) fn dot(
    k: &mut KernelLowering<'_, '_>,
    (row, column): (&Factors, &Factors),
    (before, kind): (Operand, Sum),
    adding: Adding,
) -> Operand {
    match (row, column) {
        (Factors::Doubles(a), Factors::Doubles(b)) => a.iter().zip(b).fold(before, |sum, (&a, &b)| {
            let dst = k.scratch(Width::W64);
            let mods = Modifiers {
                rounding: Some(adding.rounding.unwrap_or(Rounding::Rn)),
                ..Modifiers::default()
            };
            k.emit_unguarded(Op::Alu {
                op: AluOp::Fma,
                ty: Type::F64,
                mods,
                dst,
                srcs: vec![a, b, sum],
            });
            Operand::Reg(dst)
        }),
        (Factors::Ints(a), Factors::Ints(b)) => {
            let sum = a.iter().zip(b).fold(Operand::Imm(0), |sum, (&a, &b)| {
                word(k, AluOp::Mad, Type::S32, [a, b, sum])
            });
            add(k, sum, before, adding.is_limited)
        }
        (Factors::Bits(a), Factors::Bits(b)) => {
            let sum = a.iter().zip(b).fold(Operand::Imm(0), |sum, (&a, &b)| {
                let matching = word(k, adding.matches, Type::B32, [a, b]);
                let count = word(k, AluOp::Popc, Type::B32, [matching]);
                word(k, AluOp::Add, Type::U32, [sum, count])
            });
            add(k, sum, before, adding.is_limited)
        }
        (Factors::Numbers(a), Factors::Numbers(b)) => {
            let before = match kind {
                Sum::F16 => of_half(k, before),
                _ => of_single(k, before, 1),
            };
            of_numbers(k, (a, b), before, adding.sum)
        }
        _ => before,
    }
}

fn add(k: &mut KernelLowering<'_, '_>, sum: Operand, before: Operand, is_limited: bool) -> Operand {
    let dst = k.scratch(Width::W32);
    let mods = Modifiers {
        sat: is_limited,
        ..Modifiers::default()
    };
    k.emit_unguarded(Op::Alu {
        op: AluOp::Add,
        ty: Type::S32,
        mods,
        dst,
        srcs: vec![sum, before],
    });
    Operand::Reg(dst)
}

fn of_numbers(k: &mut KernelLowering<'_, '_>, (a, b): (&[Number], &[Number]), before: Number, sum: Sum) -> Operand {
    // With twice single precision's bias.
    let mut highest = word(k, AluOp::Add, Type::S32, [before.exponent, Operand::Imm(BIAS.into())]);
    highest = word(k, AluOp::Max, Type::S32, [highest, Operand::Imm(LEAST_PLACE.into())]);
    let mut products = vec![];
    for (a, b) in a.iter().zip(b) {
        let exponent = word(k, AluOp::Add, Type::S32, [a.exponent, b.exponent]);
        highest = word(k, AluOp::Max, Type::S32, [highest, exponent]);
        products.push(long(k, AluOp::Mul, Type::F64, [a.value, b.value]));
    }
    // Scaled so that what is cut off are the places behind the point.
    let scale_exponent = Operand::Imm((LONG_BIAS + KEPT_BITS + 2 * BIAS).into());
    let scale_exponent = word(k, AluOp::Sub, Type::S32, [scale_exponent, highest]);
    let scale = power_of_two(k, scale_exponent);
    let back = Operand::Imm((LONG_BIAS - KEPT_BITS - 2 * BIAS).into());
    let back = word(k, AluOp::Add, Type::S32, [back, highest]);
    let back = power_of_two(k, back);
    // Zero, and not the first of them, which may be -0.
    let (mut total, mut unscaled) = (Operand::Imm(0), before.value);
    for (number, &value) in [before.value].iter().chain(&products).enumerate() {
        let scaled = long(k, AluOp::Mul, Type::F64, [value, scale]);
        let kept = convert(k, (Type::F64, Type::F64), Some(Rounding::Rzi), scaled);
        total = long(k, AluOp::Add, Type::F64, [total, kept]);
        if number > 0 {
            // For what infinities and NaNs give.
            unscaled = long(k, AluOp::Add, Type::F64, [unscaled, value]);
        }
    }
    let total = long(k, AluOp::Mul, Type::F64, [total, back]);
    let magnitude = long(k, AluOp::And, Type::B64, [unscaled, Operand::Imm(ABOVE_SIGN)]);
    let is_special = (Comparison::Ge, Type::U64, magnitude, Operand::Imm(LONG_INFINITY));
    let total = choose(k, is_special, Type::B64, (unscaled, total));
    let is_nan = (Comparison::Nan, Type::F64, total, total);
    match sum {
        Sum::F16 => {
            let half = convert(k, (Type::F16, Type::F64), Some(Rounding::Rn), total);
            let half = choose(
                k,
                (Comparison::Eq, Type::F16, half, Operand::Imm(0)),
                Type::B16,
                (Operand::Imm(0), half),
            );
            choose(k, is_nan, Type::B16, (Operand::Imm(NAN[0]), half))
        }
        _ => {
            let cut = convert(k, (Type::F32, Type::F64), Some(Rounding::Rz), total);
            let infinite = convert(k, (Type::F32, Type::F64), Some(Rounding::Rn), total);
            let magnitude = long(k, AluOp::And, Type::B64, [total, Operand::Imm(ABOVE_SIGN)]);
            let is_too_large = (Comparison::Ge, Type::U64, magnitude, Operand::Imm(TOO_LARGE));
            let single = choose(k, is_too_large, Type::B32, (infinite, cut));
            let single = choose(
                k,
                (Comparison::Eq, Type::F32, single, Operand::Imm(0)),
                Type::B32,
                (Operand::Imm(0), single),
            );
            choose(k, is_nan, Type::B32, (Operand::Imm(NAN[1]), single))
        }
    }
}

/// Two to the power of an exponent with double precision's bias.
fn power_of_two(k: &mut KernelLowering<'_, '_>, exponent: Operand) -> Operand {
    let upper = word(k, AluOp::Shl, Type::B32, [exponent, Operand::Imm(LONG_MANTISSA_BITS)]);
    pack(k, Type::B64, [Operand::Imm(0), upper])
}

//! Arithmetic of `f16`, `bf16`, `f32`, `f64` and of the packed types, half by half.
//!
//! # Source
//! PTX ISA 9.0, "Floating-Point Instructions", "Half Precision Floating-Point Instructions". The `.approx` functions
//! are computed in `f64` and rounded, so they are at least as exact as PTX asks, except where NVIDIA's devices are
//! simply something else: [`approximate`].

use std::f64::consts::TAU;

use hetckpt_ir::inst::{AluOp, Modifiers, Rounding};
use hetckpt_ir::types::Type;

use super::exact::{self, Inexact};
use super::format::{self, decode, encode};
use super::wide;

/// The result of a floating-point instruction; `None` if it has no such form.
pub(crate) fn evaluate(op: AluOp, ty: Type, mods: Modifiers, srcs: &[u64]) -> Option<u64> {
    let part = match ty {
        Type::F16x2 => Type::F16,
        Type::Bf16x2 => Type::Bf16,
        _ => return scalar(op, ty, mods, srcs),
    };
    let half = |shift: u32| {
        let srcs: Vec<u64> = srcs.iter().map(|s| s >> shift & 0xffff).collect();
        scalar(op, part, mods, &srcs)
    };
    Some(half(16)? << 16 | half(0)?)
}

fn scalar(op: AluOp, ty: Type, mods: Modifiers, srcs: &[u64]) -> Option<u64> {
    let src = |i: usize| flush(srcs.get(i).copied().unwrap_or(0), ty, mods.ftz);
    match op {
        AluOp::Abs | AluOp::Neg if ty != Type::F64 && decode(src(0), ty).is_nan() => return Some(nan(ty)),
        AluOp::Abs => return Some(src(0) & !sign_bit(ty)),
        AluOp::Neg if decode(src(0), ty).is_nan() => return Some(src(0)),
        AluOp::Neg => return Some(src(0) ^ sign_bit(ty)),
        AluOp::Copysign => return Some(src(1) & !sign_bit(ty) | src(0) & sign_bit(ty)),
        AluOp::Min | AluOp::Max => return Some(saturate(extreme(op, src(0), src(1), ty), ty, mods.sat)),
        _ => {}
    }
    if mods.approx
        && let Some(result) = approximate(op, ty, mods, &[src(0), src(1)])
    {
        return Some(result);
    }
    let x = |i: usize| decode(src(i), ty);
    let result = match op {
        AluOp::Add => exact::add(x(0), x(1)),
        AluOp::Sub => exact::subtract(x(0), x(1)),
        AluOp::Mul => exact::multiply(x(0), x(1)),
        AluOp::Fma | AluOp::Mad => exact::fused(x(0), x(1), x(2)),
        AluOp::Div => exact::divide(x(0), x(1)),
        AluOp::Rcp => exact::divide(1.0, x(0)),
        AluOp::Sqrt => exact::root(x(0)),
        AluOp::Rsqrt => Inexact::exact(1.0 / x(0).sqrt()),
        AluOp::Sin => Inexact::exact(x(0).sin()),
        AluOp::Cos => Inexact::exact(x(0).cos()),
        AluOp::Lg2 => Inexact::exact(x(0).log2()),
        AluOp::Ex2 => Inexact::exact(x(0).exp2()),
        AluOp::Tanh => Inexact::exact(x(0).tanh()),
        _ => return None,
    };
    let rounding = mods.rounding.unwrap_or(Rounding::Rn);
    let addends = match op {
        AluOp::Add => [x(0), x(1)],
        AluOp::Sub => [x(0), -x(1)],
        AluOp::Fma | AluOp::Mad => [x(0) * x(1), x(2)],
        _ => [0.0; 2],
    };
    let result = if rounding == Rounding::Rm {
        downward_zero(result, addends)
    } else {
        result
    };
    let bits = if ty == Type::F64 {
        let [a, b, c] = [x(0), x(1), x(2)];
        directed(op, [a, b, c], rounding).unwrap_or(result.value).to_bits()
    } else if mods.ftz && is_tiny(result, ty, rounding) {
        encode(0.0f64.copysign(result.to_odd()), ty, rounding)
    } else {
        encode(result.to_odd(), ty, rounding)
    };
    Some(saturate(bits, ty, mods.sat))
}

/// True if `.ftz` makes zero of a result, as devices judge it: rounded to the format's precision as if there were no
/// smallest exponent, it is less than the smallest normal number.
fn is_tiny(result: Inexact, ty: Type, rounding: Rounding) -> bool {
    // Its double has that precision wherever the result itself may be rounded up to the smallest normal number.
    let twice = decode(encode(2.0 * result.to_odd(), ty, rounding), ty);
    twice.abs() < 2.0 * smallest_normal(ty)
}

/// The results of `.approx` forms that are not the function's value rounded, as NVIDIA's devices have them.
fn approximate(op: AluOp, ty: Type, mods: Modifiers, srcs: &[u64; 2]) -> Option<u64> {
    /// 1 / 2π in single precision.
    const TURNS: u64 = 0x3e22_f983;
    let [a, b] = srcs.map(|bits| decode(bits, ty));
    match (op, ty) {
        // `a * (1 / b)`, where a reciprocal that is subnormal is zero.
        (AluOp::Div, Type::F32) if b.is_finite() && b.abs() > 2f64.powi(126) => {
            let product = a * 0.0f64.copysign(b);
            Some(encode(product, ty, Rounding::Rn))
        }
        // The argument is turned into turns, rounded to zero; beyond 100π little is left of it. What then is too small
        // is zero.
        (AluOp::Sin | AluOp::Cos, Type::F32) => {
            let turns = decode(encode(a * decode(TURNS, ty), ty, Rounding::Rz), ty);
            let angle = if turns.abs() < smallest_normal(ty) {
                0.0f64.copysign(a)
            } else {
                (turns - turns.round()) * TAU
            };
            let value = if op == AluOp::Sin { angle.sin() } else { angle.cos() };
            Some(encode(value, ty, Rounding::Rn))
        }
        // Of the operand's and the result's words only the high one counts.
        (AluOp::Rcp | AluOp::Rsqrt, Type::F64) if mods.ftz => {
            let high = |bits: u64| flush(bits & !0xffff_ffff, ty, true);
            let a = f64::from_bits(high(srcs[0]));
            let value = if op == AluOp::Rcp { 1.0 / a } else { 1.0 / a.sqrt() };
            Some(match value.is_nan() {
                true => 0x7ff8 << 48,
                false => high(flush(value.to_bits(), ty, true) + 0x8000_0000),
            })
        }
        _ => None,
    }
}

/// The result of `f64` rounded in a direction; `None` where the host's own is right.
fn directed(op: AluOp, [a, b, c]: [f64; 3], rounding: Rounding) -> Option<f64> {
    match op {
        _ if matches!(rounding, Rounding::Rn) => None,
        AluOp::Add => wide::fused(a, 1.0, b, rounding),
        AluOp::Sub => wide::fused(a, 1.0, -b, rounding),
        AluOp::Mul => wide::fused(a, b, 0.0, rounding),
        AluOp::Fma | AluOp::Mad => wide::fused(a, b, c, rounding),
        AluOp::Div => wide::divide(a, b, rounding),
        AluOp::Rcp => wide::divide(1.0, a, rounding),
        AluOp::Sqrt => wide::root(a, rounding),
        _ => None,
    }
}

/// Rounding down, a sum that is exactly zero is −0 unless both addends are +0.
fn downward_zero(sum: Inexact, addends: [f64; 2]) -> Inexact {
    let is_zero = sum.value == 0.0 && sum.error == 0.0;
    if is_zero && addends.iter().any(|x| x.is_sign_negative()) {
        Inexact::exact(-0.0)
    } else {
        sum
    }
}

fn nan(ty: Type) -> u64 {
    format::of(ty).map_or(f64::NAN.to_bits(), |f| f.canonical_nan)
}

fn sign_bit(ty: Type) -> u64 {
    1 << (8 * ty.size_bytes() - 1)
}

/// Subnormal numbers become zero, with their sign; only for types that have `.ftz`.
pub(crate) fn flush(bits: u64, ty: Type, ftz: bool) -> u64 {
    if ftz && decode(bits, ty).abs() < smallest_normal(ty) {
        bits & sign_bit(ty)
    } else {
        bits
    }
}

/// Below it numbers are subnormal; zero for types that have no `.ftz`.
fn smallest_normal(ty: Type) -> f64 {
    match ty {
        Type::F32 => f64::from(f32::MIN_POSITIVE),
        Type::F16 => 2f64.powi(-14),
        Type::F64 => f64::MIN_POSITIVE,
        _ => 0.0,
    }
}

/// `.sat`: clamped to [0, 1]; what is not a number becomes 0.
pub(crate) fn saturate(bits: u64, ty: Type, sat: bool) -> u64 {
    if !sat {
        return bits;
    }
    match decode(bits, ty) {
        x if x >= 1.0 => encode(1.0, ty, Rounding::Rn),
        x if x > 0.0 => bits,
        _ => 0,
    }
}

/// A number wins over what is not one; −0 is less than +0.
fn extreme(op: AluOp, a: u64, b: u64, ty: Type) -> u64 {
    let (x, y) = (decode(a, ty), decode(b, ty));
    match (x.is_nan(), y.is_nan()) {
        (true, true) => nan(ty),
        (true, false) => b,
        (false, true) => a,
        (false, false) => {
            let a_is_less = x < y || (x == y && x.is_sign_negative());
            if a_is_less == (op == AluOp::Min) { a } else { b }
        }
    }
}

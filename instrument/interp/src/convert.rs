//! `cvt`.
//!
//! # Source
//! PTX ISA 9.0, "Data Movement and Conversion Instructions: cvt".

use hetckpt_ir::inst::{Modifiers, Rounding};
use hetckpt_ir::types::Type;

use crate::float::format::{decode, encode};
use crate::float::{flush, from_integer, saturate};
use crate::integer::{low, number, range, truncate};

/// `bits` of `from` as `to`; signed results are sign-extended to 64 bits. `None` if there is no such conversion here.
pub(crate) fn convert(to: Type, from: Type, mods: Modifiers, bits: u64) -> Option<u64> {
    let is_packed = |ty| matches!(ty, Type::F16x2 | Type::Bf16x2 | Type::Pred);
    if is_packed(to) || is_packed(from) || mods.rounding == Some(Rounding::Rna) {
        return None;
    }
    let bits = truncate(bits, 8 * from.size_bytes());
    Some(match (to.is_float(), from.is_float()) {
        (false, false) => {
            let value = number(bits, from);
            let (min, max) = range(to);
            low(number(low(if mods.sat { value.clamp(min, max) } else { value }), to))
        }
        (false, true) => to_integer(to, from, mods, flush(bits, from, mods.ftz)),
        (true, false) => {
            let rounding = mods.rounding.unwrap_or(Rounding::Rn);
            let value = from_integer(number(bits, from), rounding, to != Type::F64);
            saturate(encode(value, to, rounding), to, mods.sat)
        }
        (true, true) => float_to_float(to, from, mods, bits),
    })
}

fn to_integer(to: Type, from: Type, mods: Modifiers, bits: u64) -> u64 {
    let value = decode(bits, from);
    if value.is_nan() {
        let is_zero = from != Type::F64 && to.size_bytes() < 8;
        return if is_zero {
            0
        } else {
            low(number(1 << (8 * to.size_bytes() - 1), to))
        };
    }
    let (min, max) = range(to);
    #[allow(clippy::cast_possible_truncation, reason = "the cast saturates")]
    let rounded = integral(value, mods.rounding.unwrap_or(Rounding::Rzi)) as i128;
    low(rounded.clamp(min, max))
}

fn integral(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Rn | Rounding::Rni | Rounding::Rna => value.round_ties_even(),
        Rounding::Rz | Rounding::Rzi => value.trunc(),
        Rounding::Rm | Rounding::Rmi => value.floor(),
        Rounding::Rp | Rounding::Rpi => value.ceil(),
    }
}

fn float_to_float(to: Type, from: Type, mods: Modifiers, bits: u64) -> u64 {
    // `.ftz` is about f32 only, on whichever side it stands.
    let bits = if from == Type::F32 {
        flush(bits, from, mods.ftz)
    } else {
        bits
    };
    let value = decode(bits, from);
    if value.is_nan()
        && !mods.sat
        && let Some(nan) = carried_nan(to, from, mods, bits)
    {
        return nan;
    }
    let is_integral = matches!(
        mods.rounding,
        Some(Rounding::Rni | Rounding::Rzi | Rounding::Rmi | Rounding::Rpi)
    );
    let rounding = mods.rounding.unwrap_or(Rounding::Rn);
    let value = if is_integral { integral(value, rounding) } else { value };
    let result = encode(value, to, rounding);
    let result = if to == Type::F32 {
        flush(result, to, mods.ftz)
    } else {
        result
    };
    saturate(result, to, mods.sat)
}

/// Between `f64` and shorter formats, and from `bf16` to `f32`, what is not a number keeps its sign and payload, made
/// quiet; flushing forgets the payload.
fn carried_nan(to: Type, from: Type, mods: Modifiers, bits: u64) -> Option<u64> {
    const LOST: u32 = 52 - 23;
    const LOST_OF_HALF: u32 = 52 - 10;
    match (from, to) {
        (Type::F32, Type::F64) => {
            let bits = if mods.ftz { 0x7fff_ffff } else { bits };
            let sign = bits >> 31 << 63;
            Some(sign | 0x7ff8 << 48 | (bits & 0x007f_ffff) << LOST)
        }
        (Type::F64, Type::F32) => Some(bits >> 63 << 31 | 0x7fc0_0000 | (bits >> LOST & 0x007f_ffff)),
        (Type::F16, Type::F64) => Some(bits >> 15 << 63 | 0x7ff8 << 48 | (bits & 0x3ff) << LOST_OF_HALF),
        (Type::F64, Type::F16) => Some(bits >> 63 << 15 | 0x7e00 | (bits >> LOST_OF_HALF & 0x3ff)),
        // Only moved.
        (Type::Bf16, Type::F32) => Some(bits << 16),
        _ => None,
    }
}

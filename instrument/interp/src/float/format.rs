//! Binary floating-point formats up to `f32`, by way of `f64`, which holds all their values exactly; rounding.

use hetckpt_ir::inst::Rounding;
use hetckpt_ir::types::Type;

/// Sizes of the fields of a format.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
    /// What a result that is not a number looks like (PTX ISA, "Floating Point Instructions").
    pub canonical_nan: u64,
}

const F16: Format = Format {
    exponent_bits: 5,
    mantissa_bits: 10,
    canonical_nan: 0x7fff,
};
const BF16: Format = Format {
    exponent_bits: 8,
    mantissa_bits: 7,
    canonical_nan: 0x7fff,
};
const F32: Format = Format {
    exponent_bits: 8,
    mantissa_bits: 23,
    canonical_nan: 0x7fff_ffff,
};

/// The format of a scalar type; `None` for `f64`, which is handled by itself, and for what is no scalar float.
pub(crate) fn of(ty: Type) -> Option<Format> {
    match ty {
        Type::F16 => Some(F16),
        Type::Bf16 => Some(BF16),
        Type::F32 => Some(F32),
        _ => None,
    }
}

/// The value of `bits`.
pub(crate) fn decode(bits: u64, ty: Type) -> f64 {
    let Some(f) = of(ty) else { return f64::from_bits(bits) };
    let mantissa = bits & ((1 << f.mantissa_bits) - 1);
    let exponent = bits >> f.mantissa_bits & ((1 << f.exponent_bits) - 1);
    let is_negative = bits >> (f.mantissa_bits + f.exponent_bits) & 1 == 1;
    let bias = (1i32 << (f.exponent_bits - 1)) - 1;
    let scale = f.mantissa_bits.cast_signed();
    let magnitude = match (exponent, mantissa) {
        (e, 0) if e == (1 << f.exponent_bits) - 1 => f64::INFINITY,
        (e, _) if e == (1 << f.exponent_bits) - 1 => f64::NAN,
        (0, m) => m as f64 * power_of_two(1 - bias - scale),
        (e, m) => (m | 1 << f.mantissa_bits) as f64 * power_of_two(i32::try_from(e).unwrap_or(0) - bias - scale),
    };
    if is_negative { -magnitude } else { magnitude }
}

/// 2 to a power that is a normal number.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(u64::from((exponent + 1023).cast_unsigned()) << 52)
}

/// `value` rounded to a type: to nearest even unless `rounding` says otherwise. For `f64` the value as it is.
pub(crate) fn encode(value: f64, ty: Type, rounding: Rounding) -> u64 {
    let Some(f) = of(ty) else { return value.to_bits() };
    if value.is_nan() {
        return f.canonical_nan;
    }
    let sign = u64::from(value.is_sign_negative()) << (f.mantissa_bits + f.exponent_bits);
    let infinity = ((1 << f.exponent_bits) - 1) << f.mantissa_bits;
    if value.is_infinite() {
        return sign | infinity;
    }
    sign | encode_magnitude(value.abs(), f, upwards(rounding, value.is_sign_negative())).min(infinity)
}

/// How a magnitude is rounded.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Direction {
    Nearest,
    Up,
    Down,
}

/// The direction for a magnitude.
pub(crate) fn upwards(rounding: Rounding, is_negative: bool) -> Direction {
    match rounding {
        Rounding::Rz | Rounding::Rzi => Direction::Down,
        Rounding::Rm | Rounding::Rmi => [Direction::Down, Direction::Up][usize::from(is_negative)],
        Rounding::Rp | Rounding::Rpi => [Direction::Up, Direction::Down][usize::from(is_negative)],
        Rounding::Rn | Rounding::Rni | Rounding::Rna => Direction::Nearest,
    }
}

/// Bits of a finite magnitude; what overflows becomes infinity, or the largest number where it is rounded down.
fn encode_magnitude(value: f64, f: Format, direction: Direction) -> u64 {
    if value == 0.0 {
        return 0;
    }
    let bias = (1i64 << (f.exponent_bits - 1)) - 1;
    let bits = value.to_bits();
    // No result of a narrower format depends on a subnormal double other than as "tiny".
    let exponent = (bits >> 52).cast_signed() - 1023;
    let significand = if bits >> 52 == 0 {
        1
    } else {
        bits & ((1 << 52) - 1) | 1 << 52
    };
    let lowest = 1 - bias;
    // Bits of the significand that do not fit: all below the mantissa, more if the result is subnormal.
    let drop = i64::from(52 - f.mantissa_bits) + (lowest - exponent).max(0);
    let (kept, rest, half) = if drop > 60 {
        (0, 1, 2)
    } else {
        (significand >> drop, significand & ((1 << drop) - 1), 1u64 << (drop - 1))
    };
    let is_up = match direction {
        Direction::Down => false,
        Direction::Up => rest != 0,
        Direction::Nearest => rest > half || (rest == half && kept & 1 == 1),
    };
    // The hidden bit adds one to the exponent field, and so does a carry out of the mantissa.
    let field = (exponent.max(lowest) - lowest).cast_unsigned();
    let result = (field << f.mantissa_bits) + kept + u64::from(is_up);
    let infinity = ((1u64 << f.exponent_bits) - 1) << f.mantissa_bits;
    if result >= infinity && direction == Direction::Down {
        infinity - 1
    } else {
        result
    }
}

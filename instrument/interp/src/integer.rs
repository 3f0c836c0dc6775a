//! Integer and bit instructions.
//!
//! # Source
//! PTX ISA 9.0, "Integer Arithmetic Instructions", "Extended-Precision…", "Logic and Shift Instructions". Division by zero
//! is unspecified there; NVIDIA's devices give all ones, for remainders too.

use hetckpt_ir::inst::{AluOp, Modifiers};
use hetckpt_ir::types::Type;

/// A value's low `bits` bits.
pub(crate) fn truncate(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { value & ((1 << bits) - 1) }
}

/// The low `bits` bits as a signed number.
pub(crate) fn sign_extend(value: u64, bits: u32) -> i64 {
    (value << (64 - bits)).cast_signed() >> (64 - bits)
}

/// The number that `value` is in a type.
pub(crate) fn number(value: u64, ty: Type) -> i128 {
    let bits = 8 * ty.size_bytes();
    if ty.is_signed() {
        sign_extend(value, bits).into()
    } else {
        truncate(value, bits).into()
    }
}

/// The low 64 bits of a number.
pub(crate) fn low(number: i128) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "wrapping is what PTX does"
    )]
    let bits = number as u64;
    bits
}

/// Smallest and largest number of an integer type.
pub(crate) fn range(ty: Type) -> (i128, i128) {
    let bits = 8 * ty.size_bytes();
    if ty.is_signed() {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    }
}

/// The result of an integer instruction, perhaps with bits beyond its width; `None` if it has no integer form.
pub(crate) fn evaluate(op: AluOp, ty: Type, mods: Modifiers, srcs: &[u64]) -> Option<u64> {
    let bits = 8 * ty.size_bytes();
    let src = |i: usize| truncate(srcs.get(i).copied().unwrap_or(0), bits);
    let n = |i: usize| number(src(i), ty);
    let amount = |i: usize| srcs.get(i).copied().unwrap_or(0) & 0xffff_ffff;
    let finish = |value: i128| {
        let (min, max) = range(ty);
        low(if mods.sat { value.clamp(min, max) } else { value })
    };
    use AluOp as A;
    Some(match op {
        A::Add => finish(n(0) + n(1)),
        A::Sub => finish(n(0) - n(1)),
        A::Mul => low(n(0).wrapping_mul(n(1))),
        A::MulWide => low(n(0) * n(1)),
        A::MulHi => high_product(n(0), n(1), bits),
        A::Mad => low(n(0).wrapping_mul(n(1)).wrapping_add(n(2))),
        A::MadWide => low(n(0) * n(1)).wrapping_add(srcs.get(2).copied().unwrap_or(0)),
        A::MadHi => finish(number(high_product(n(0), n(1), bits), ty) + n(2)),
        A::Div if n(1) == 0 => u64::MAX,
        A::Div => low(n(0) / n(1)),
        A::Rem if n(1) == 0 => u64::MAX,
        A::Rem => low(n(0) % n(1)),
        A::Min => low(n(0).min(n(1))),
        A::Max => low(n(0).max(n(1))),
        A::Abs => low(n(0).abs()),
        A::Neg => low(-n(0)),
        A::Sad => low(n(2) + (n(0) - n(1)).abs()),
        A::And => src(0) & src(1),
        A::Or => src(0) | src(1),
        A::Xor => src(0) ^ src(1),
        A::Not => !src(0),
        A::Cnot => u64::from(src(0) == 0),
        A::Shl if amount(1) >= u64::from(bits) => 0,
        A::Shl => src(0) << amount(1),
        A::Shr => low(n(0) >> amount(1).min(127)),
        A::ShfLWrap => funnel(src(0), src(1)) << (amount(2) & 31) >> 32,
        A::ShfLClamp => low(i128::from(funnel(src(0), src(1))) << amount(2).min(32) >> 32),
        A::ShfRWrap => funnel(src(0), src(1)) >> (amount(2) & 31),
        A::ShfRClamp => funnel(src(0), src(1)) >> amount(2).min(32),
        A::Popc => src(0).count_ones().into(),
        A::Clz => (src(0).leading_zeros() - (64 - bits)).into(),
        A::Brev => src(0).reverse_bits() >> (64 - bits),
        A::Bfind => find(src(0), ty).map_or(u64::MAX, u64::from),
        A::BfindShiftAmt => find(src(0), ty).map_or(u64::MAX, |at| u64::from(bits - 1 - at)),
        A::Bfe => extract(src(0), amount(1), amount(2), ty),
        A::Bfi => insert(src(0), src(1), amount(2), amount(3), bits),
        A::BmskClamp => mask(amount(0), amount(1), true),
        A::BmskWrap => mask(amount(0), amount(1), false),
        A::Prmt => permute(src(0), src(1), src(2)),
        A::Lop3 => lut(src(0), src(1), src(2), srcs.get(3).copied().unwrap_or(0)),
        _ => return None,
    })
}

fn high_product(a: i128, b: i128, bits: u32) -> u64 {
    // The product of two unsigned 64-bit numbers does not fit a signed 128-bit one; its high half is the same as of
    // the wrapped product taken as unsigned.
    let product = a.wrapping_mul(b);
    if bits == 64 && a >= 0 && b >= 0 {
        low((product.cast_unsigned() >> 64).cast_signed())
    } else {
        low(product >> bits)
    }
}

fn funnel(low: u64, high: u64) -> u64 {
    high << 32 | low
}

/// Most significant bit that differs from the sign.
fn find(value: u64, ty: Type) -> Option<u32> {
    let bits = 8 * ty.size_bytes();
    let value = if ty.is_signed() && sign_extend(value, bits) < 0 {
        truncate(!value, bits)
    } else {
        value
    };
    value.checked_ilog2()
}

fn extract(value: u64, position: u64, length: u64, ty: Type) -> u64 {
    let bits = u64::from(8 * ty.size_bytes());
    let (position, length) = (position & 0xff, length & 0xff);
    let bit = |i: u64| value >> i & 1;
    let sign = if ty.is_signed() && length != 0 {
        bit((position + length - 1).min(bits - 1))
    } else {
        0
    };
    let result = |i: u64| {
        if i < length && position + i < bits {
            bit(position + i)
        } else {
            sign
        }
    };
    (0..bits).fold(0, |out, i| out | result(i) << i)
}

fn insert(from: u64, into: u64, position: u64, length: u64, bits: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    (0..length)
        .take_while(|i| position + i < u64::from(bits))
        .fold(into, |out, i| {
            let at = position + i;
            out & !(1 << at) | (from >> i & 1) << at
        })
}

fn mask(position: u64, length: u64, clamps: bool) -> u64 {
    let (start, width) = (position & 31, length & 31);
    let from = |bit: u64| u64::from(u32::MAX) << bit & u64::from(u32::MAX);
    let is_beyond = clamps && position >= 32;
    let first = if is_beyond { 0 } else { from(start) };
    let reaches_end = start + width >= 32 || is_beyond || (clamps && length >= 32);
    first & !(if reaches_end { 0 } else { from(start + width) })
}

fn permute(a: u64, b: u64, selector: u64) -> u64 {
    let bytes = (b << 32 | a).to_le_bytes();
    let pick = |i: u32| {
        let select = selector >> (4 * i) & 15;
        let byte = bytes[usize::from(low(i128::from(select & 7)).to_le_bytes()[0])];
        let is_sign = select & 8 != 0;
        u64::from(match (is_sign, byte >= 0x80) {
            (false, _) => byte,
            (true, true) => 0xff,
            (true, false) => 0,
        })
    };
    (0..4).fold(0, |out, i| out | pick(i) << (8 * i))
}

fn lut(a: u64, b: u64, c: u64, table: u64) -> u64 {
    (0..32).fold(0, |out, i| {
        let index = (a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1;
        out | (table >> index & 1) << i
    })
}

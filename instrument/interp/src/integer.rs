//! Integer and bit instructions.
//!
//! # Source
//! PTX ISA 9.0, "Integer Arithmetic Instructions", "Extended-Precision…", "Logic and Shift Instructions". Division by
//! zero is unspecified there; NVIDIA's devices give all ones, for remainders too.

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

/// Positions and lengths are defined up to 255. Beyond, NVIDIA's devices look at 8 bits in the 32-bit forms and at all
/// in the 64-bit forms.
fn field_amount(amount: u64, bits: u64) -> u64 {
    if bits == 64 { amount.min(255) } else { amount & 0xff }
}

fn extract(value: u64, position: u64, length: u64, ty: Type) -> u64 {
    let bits = u64::from(8 * ty.size_bytes());
    let (position, length) = (field_amount(position, bits), field_amount(length, bits));
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
    let (position, length) = (field_amount(position, bits.into()), field_amount(length, bits.into()));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

    use super::*;

    fn op(op: AluOp, ty: Type, srcs: &[u64]) -> u64 {
        truncate(
            evaluate(op, ty, Modifiers::default(), srcs).unwrap(),
            8 * ty.size_bytes(),
        )
    }

    const M1: u64 = u32::MAX as u64;

    #[test]
    fn products() {
        assert_eq!(op(AluOp::MulHi, Type::U64, &[u64::MAX, u64::MAX]), u64::MAX - 1);
        assert_eq!(op(AluOp::MulHi, Type::S64, &[u64::MAX, 5]), u64::MAX);
        assert_eq!(op(AluOp::MulHi, Type::S32, &[0x8000_0000, 0x8000_0000]), 0x4000_0000);
        assert_eq!(
            evaluate(AluOp::MulWide, Type::S32, Modifiers::default(), &[M1, 2]),
            Some(u64::MAX - 1)
        );
        assert_eq!(
            evaluate(AluOp::MulWide, Type::U32, Modifiers::default(), &[M1, 2]),
            Some(0x1_ffff_fffe)
        );
        assert_eq!(
            evaluate(AluOp::MadWide, Type::U16, Modifiers::default(), &[0xffff, 0x10000, 7]),
            Some(7)
        );
        assert_eq!(op(AluOp::Mad, Type::U64, &[u64::MAX, u64::MAX, 1]), 2);
    }

    #[test]
    fn division_by_zero_gives_all_ones() {
        assert_eq!(op(AluOp::Div, Type::U32, &[7, 0]), M1);
        assert_eq!(op(AluOp::Rem, Type::S64, &[7, 0]), u64::MAX);
        assert_eq!(op(AluOp::Div, Type::S32, &[0x8000_0000, M1]), 0x8000_0000);
        assert_eq!(
            op(AluOp::Rem, Type::S32, &[5u32.wrapping_neg().into(), 3]),
            2u32.wrapping_neg().into()
        );
    }

    #[test]
    fn shifts_clamp() {
        assert_eq!(op(AluOp::Shl, Type::B32, &[1, 32]), 0);
        assert_eq!(op(AluOp::Shl, Type::B64, &[1, 0xffff_ffff]), 0);
        assert_eq!(op(AluOp::Shr, Type::S32, &[0x8000_0000, 99]), M1);
        assert_eq!(op(AluOp::Shr, Type::U32, &[0x8000_0000, 31]), 1);
        assert_eq!(op(AluOp::ShfLWrap, Type::B32, &[0x8000_0000, 1, 33]), 3);
        assert_eq!(op(AluOp::ShfLClamp, Type::B32, &[0x1234, 1, 99]), 0x1234);
        assert_eq!(op(AluOp::ShfRWrap, Type::B32, &[0x10, 3, 36]), 0x3000_0001);
        assert_eq!(op(AluOp::ShfRClamp, Type::B32, &[0x10, 3, 99]), 3);
    }

    #[test]
    fn bit_fields() {
        assert_eq!(op(AluOp::Bfe, Type::U32, &[0xabcd_1234, 8, 8]), 0x12);
        assert_eq!(op(AluOp::Bfe, Type::S32, &[0x0000_8000, 8, 8]), 0xffff_ff80);
        assert_eq!(op(AluOp::Bfe, Type::S32, &[0x8000_0000, 28, 99]), 0xffff_fff8);
        assert_eq!(op(AluOp::Bfe, Type::S32, &[M1, 4, 0]), 0);
        assert_eq!(op(AluOp::Bfi, Type::B32, &[0xff, 0x1111_1111, 4, 8]), 0x1111_1ff1);
        assert_eq!(op(AluOp::Bfi, Type::B64, &[3, 0, 63, 2]), 1 << 63);
        assert_eq!(
            op(AluOp::Bfe, Type::U64, &[u64::MAX, 0, 0x1_0008]),
            u64::MAX,
            "as seen on an H200"
        );
        assert_eq!(
            op(AluOp::Bfe, Type::U32, &[M1, 0, 0x1_0008]),
            0xff,
            "as seen on an H200"
        );
        assert_eq!(op(AluOp::BmskClamp, Type::B32, &[4, 8]), 0xff0);
        assert_eq!(op(AluOp::BmskClamp, Type::B32, &[32, 8]), 0);
        assert_eq!(op(AluOp::BmskClamp, Type::B32, &[0, 99]), M1);
        assert_eq!(op(AluOp::BmskWrap, Type::B32, &[33, 1]), 2);
    }

    #[test]
    fn counts_and_searches() {
        assert_eq!(op(AluOp::Clz, Type::B32, &[0]), 32);
        assert_eq!(op(AluOp::Clz, Type::B64, &[1]), 63);
        assert_eq!(op(AluOp::Popc, Type::B64, &[u64::MAX]), 64);
        assert_eq!(op(AluOp::Brev, Type::B32, &[1]), 0x8000_0000);
        assert_eq!(op(AluOp::Bfind, Type::U32, &[0]), M1);
        assert_eq!(op(AluOp::Bfind, Type::S32, &[M1 - 4]), 2);
        assert_eq!(op(AluOp::BfindShiftAmt, Type::U32, &[1]), 31);
    }

    #[test]
    fn tables_and_permutations() {
        let (a, b, c) = (0b1100_1010, 0b1010_0110, 0b0101_0011);
        assert_eq!(op(AluOp::Lop3, Type::B32, &[a, b, c, 0x96]), a ^ b ^ c);
        assert_eq!(op(AluOp::Lop3, Type::B32, &[a, b, c, 0xca]), (a & b) | (!a & c) & M1);
        assert_eq!(
            op(AluOp::Prmt, Type::B32, &[0x3322_1100, 0x7766_5544, 0x7531]),
            0x7755_3311
        );
        assert_eq!(op(AluOp::Prmt, Type::B32, &[0x0000_0080, 0, 0x9988]), 0x0000_ffff);
    }

    #[test]
    fn saturating_sums() {
        let sat = Modifiers {
            sat: true,
            ..Modifiers::default()
        };
        let sum = |a, b| evaluate(AluOp::Add, Type::S32, sat, &[a, b]).map(|v| truncate(v, 32));
        assert_eq!(sum(0x7fff_ffff, 1), Some(0x7fff_ffff));
        assert_eq!(sum(0x8000_0000, M1), Some(0x8000_0000));
    }
}

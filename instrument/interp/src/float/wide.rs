//! `f64` arithmetic by integers as long as it takes, rounded once: exact in all directions, also where a product
//! overflows, or what rounding loses underflows.

use hetckpt_ir::inst::Rounding;

use super::format::{Direction, upwards};

/// Bits below those of the significand's last one, so that a product of two subnormal numbers has its place.
const LOWEST: i32 = -2148;
/// Up to above the product of the two greatest numbers.
const NUM_LIMBS: usize = 68;
const SMALLEST_EXPONENT: i32 = -1074;
const FRACTION_BITS: u32 = 52;
const INFINITY: u64 = 0x7ff << FRACTION_BITS;
/// Of a quotient or a root: enough for all of a result and more.
const QUOTIENT_BITS: i32 = 74;

/// A magnitude `significand * 2^exponent`, and a bit more if `is_cut`.
struct Magnitude {
    significand: u128,
    exponent: i32,
    is_cut: bool,
}

/// `a * b + c`; `None` where the result is zero or no number, or an operand is not finite.
pub(super) fn fused(a: f64, b: f64, c: f64, rounding: Rounding) -> Option<f64> {
    let ((a_negative, a), (b_negative, b), (c_negative, c)) = (parts(a)?, parts(b)?, parts(c)?);
    let product = Wide::new(a.significand * b.significand, a.exponent + b.exponent);
    let addend = Wide::new(c.significand, c.exponent);
    let product_negative = a_negative != b_negative;
    let (negative, sum) = match (product_negative == c_negative, product.is_less_than(&addend)) {
        (true, _) => (c_negative, product.plus(&addend)),
        (false, true) => (c_negative, addend.minus(&product)),
        (false, false) => (product_negative, product.minus(&addend)),
    };
    Some(round(negative, &sum.magnitude()?, rounding))
}

/// `a / b`; `None` as in [`fused`].
pub(super) fn divide(a: f64, b: f64, rounding: Rounding) -> Option<f64> {
    let ((a_negative, a), (b_negative, b)) = (parts(a)?, parts(b)?);
    let (a, b) = (a.normal()?, b.normal()?);
    let dividend = a.significand << QUOTIENT_BITS;
    let quotient = Magnitude {
        significand: dividend / b.significand,
        exponent: a.exponent - b.exponent - QUOTIENT_BITS,
        is_cut: !dividend.is_multiple_of(b.significand),
    };
    Some(round(a_negative != b_negative, &quotient, rounding))
}

/// The root; `None` as in [`fused`].
pub(super) fn root(a: f64, rounding: Rounding) -> Option<f64> {
    let (negative, a) = parts(a)?;
    let a = a.normal().filter(|_| !negative)?;
    // The exponent becomes even.
    let shift = QUOTIENT_BITS - (a.exponent & 1);
    let radicand = a.significand << shift;
    let significand = radicand.isqrt();
    let root = Magnitude {
        significand,
        exponent: (a.exponent - shift) / 2,
        is_cut: significand * significand != radicand,
    };
    Some(round(false, &root, rounding))
}

/// Sign and magnitude of a finite number.
fn parts(x: f64) -> Option<(bool, Magnitude)> {
    let bits = x.abs().to_bits();
    let (field, fraction) = (bits >> FRACTION_BITS, bits & ((1 << FRACTION_BITS) - 1));
    let hidden = u64::from(field > 0) << FRACTION_BITS;
    let magnitude = Magnitude {
        significand: u128::from(fraction | hidden),
        exponent: i32::try_from(field.max(1)).unwrap_or(0) - 1 + SMALLEST_EXPONENT,
        is_cut: false,
    };
    x.is_finite().then_some((x.is_sign_negative(), magnitude))
}

impl Magnitude {
    /// With a significand of 53 bits; `None` for zero.
    fn normal(self) -> Option<Self> {
        let shift = FRACTION_BITS.checked_sub(self.significand.checked_ilog2()?)?;
        Some(Self {
            significand: self.significand << shift,
            exponent: self.exponent - shift.cast_signed(),
            ..self
        })
    }
}

/// The double next to a magnitude other than zero.
fn round(negative: bool, exact: &Magnitude, rounding: Rounding) -> f64 {
    let highest = exact.exponent + exact.significand.ilog2().cast_signed();
    let last = (highest - FRACTION_BITS.cast_signed()).max(SMALLEST_EXPONENT);
    let (kept, rest, half) = match last - exact.exponent {
        drop @ 1..=127 => (
            exact.significand >> drop,
            exact.significand & ((1 << drop) - 1),
            1 << (drop - 1),
        ),
        // Less than half of the smallest number.
        drop if drop > 127 => (0, 1, 2),
        shift => (exact.significand << -shift, 0, 1),
    };
    let is_up = match upwards(rounding, negative) {
        Direction::Down => false,
        Direction::Up => rest != 0 || exact.is_cut,
        Direction::Nearest => rest > half || (rest == half && (exact.is_cut || kept & 1 == 1)),
    };
    // The hidden bit adds one to the exponent's field, and so does a carry.
    let field = u64::from((last - SMALLEST_EXPONENT).cast_unsigned());
    let bits = (field << FRACTION_BITS) + u64::try_from(kept).unwrap_or(0) + u64::from(is_up);
    let bits = match upwards(rounding, negative) {
        Direction::Down => bits.min(INFINITY - 1),
        _ => bits.min(INFINITY),
    };
    f64::from_bits(bits | u64::from(negative) << 63)
}

/// A magnitude as an integer, in units of `2^LOWEST`, lowest limb first.
struct Wide([u64; NUM_LIMBS]);

impl Wide {
    fn new(significand: u128, exponent: i32) -> Self {
        let at = usize::try_from(exponent - LOWEST).unwrap_or(0);
        let mut limbs = [0; NUM_LIMBS];
        for bit in (0..128).filter(|bit| significand >> bit & 1 == 1) {
            limbs[(at + bit) / 64] |= 1 << ((at + bit) % 64);
        }
        Self(limbs)
    }

    fn is_less_than(&self, other: &Self) -> bool {
        self.0.iter().rev().lt(other.0.iter().rev())
    }

    fn plus(mut self, other: &Self) -> Self {
        let mut carries = false;
        for (limb, more) in self.0.iter_mut().zip(other.0) {
            let (sum, over) = limb.overflowing_add(more);
            let (sum, over_too) = sum.overflowing_add(u64::from(carries));
            (*limb, carries) = (sum, over || over_too);
        }
        self
    }

    /// Less one that is not greater.
    fn minus(mut self, other: &Self) -> Self {
        let mut borrows = false;
        for (limb, less) in self.0.iter_mut().zip(other.0) {
            let (rest, under) = limb.overflowing_sub(less);
            let (rest, under_too) = rest.overflowing_sub(u64::from(borrows));
            (*limb, borrows) = (rest, under || under_too);
        }
        self
    }

    /// Its highest 65 bits or more; `None` for zero.
    fn magnitude(&self) -> Option<Magnitude> {
        let top = self.0.iter().rposition(|limb| *limb != 0)?;
        let low = top.saturating_sub(1);
        let high = if top > low { self.0[top] } else { 0 };
        Some(Magnitude {
            significand: u128::from(high) << 64 | u128::from(self.0[low]),
            exponent: i32::try_from(low * 64).unwrap_or(0) + LOWEST,
            is_cut: self.0[..low].iter().any(|limb| *limb != 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type ByIntegers<'a> = &'a dyn Fn(Rounding) -> Option<f64>;

    /// Numbers of all sizes, many of them with few bits, so that sums and products come to ties and cancel.
    fn random(state: &mut u64) -> f64 {
        *state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let bits = *state ^ *state >> 29;
        let fraction = match bits % 4 {
            0 => 0,
            1 => bits & 0xf_8000_0000_001f,
            _ => bits & 0xf_ffff_ffff_ffff,
        };
        let field = match bits >> 8 & 3 {
            0 => bits >> 20 & 3,
            1 => 2046 - (bits >> 20 & 3),
            2 => 1023 - 512 + (bits >> 20 & 1023),
            _ => bits >> 20 & 2047,
        };
        f64::from_bits(fraction | field.min(2046) << FRACTION_BITS | bits & 1 << 63)
    }

    #[test]
    fn nearest_numbers_are_the_hosts_and_directed_ones_around_them() {
        let mut state = 5;
        let mut num_inexact = 0;
        for _ in 0..100_000 {
            let [a, b, c] = [0; 3].map(|_| random(&mut state));
            // Half of the sums cancel, up to what the product has lost.
            let c = if state >> 40 & 1 == 0 { c } else { -(a * b) };
            let c = if c.is_finite() { c } else { f64::MAX };
            let cases: [(f64, ByIntegers<'_>); 5] = [
                (a + b, &|r| fused(a, 1.0, b, r)),
                (a * b, &|r| fused(a, b, 0.0, r)),
                (a.mul_add(b, c), &|r| fused(a, b, c, r)),
                (a / b, &|r| divide(a, b, r)),
                (a.sqrt(), &|r| root(a, r)),
            ];
            for (i, (host, by_integers)) in cases.into_iter().enumerate() {
                let Some(near) = by_integers(Rounding::Rn) else {
                    assert!(host == 0.0 || !host.is_finite(), "{i}: {host:e} of {a:e}, {b:e}, {c:e}");
                    continue;
                };
                assert_eq!(
                    near.to_bits(),
                    host.to_bits(),
                    "{i}: {near:e}, not {host:e}, of {a:e}, {b:e}, {c:e}"
                );
                let [down, up, to_zero] =
                    [Rounding::Rm, Rounding::Rp, Rounding::Rz].map(|r| by_integers(r).unwrap_or(f64::NAN));
                let are_neighbours = down == near && up == near || down.next_up() == up && (near == down || near == up);
                assert!(are_neighbours, "{i}: {down:e} and {up:e} of {a:e}, {b:e}, {c:e}");
                let inner = if near.is_sign_negative() { up } else { down };
                assert_eq!(to_zero.to_bits(), inner.to_bits(), "{i} of {a:e}, {b:e}, {c:e}");
                num_inexact += u32::from(down < up);
            }
        }
        assert!(num_inexact > 100_000, "{num_inexact}");
    }

    #[test]
    fn products_beyond_the_range_and_rests_below_it_count() {
        let (great, tiny) = (f64::MAX, f64::from_bits(1));
        // The product alone is beyond; the sum is a little more than the greatest number's neighbour.
        let sum = fused(great, 2.0, -great, Rounding::Rm);
        assert_eq!(sum, Some(great));
        assert_eq!(fused(great, 2.0, -great.next_down(), Rounding::Rz), Some(great));
        assert_eq!(fused(great, 2.0, -great.next_down(), Rounding::Rp), Some(f64::INFINITY));
        assert_eq!(fused(tiny, tiny, 1.0, Rounding::Rp), Some(1.0f64.next_up()));
        assert_eq!(fused(tiny, -tiny, 1.0, Rounding::Rz), Some(1.0f64.next_down()));
        assert_eq!(
            divide(3.0 * tiny, 7.0 * tiny, Rounding::Rp),
            Some((3.0f64 / 7.0).next_up())
        );
    }
}

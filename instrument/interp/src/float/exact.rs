//! Sums, products, quotients and roots with the sign of what rounding them to `f64` lost, and what follows from it:
//! rounding to odd, so that rounding again to a narrower format is exact. The operands are of such a format, or
//! integers: what is lost of greater and smaller numbers may be below the smallest `f64` (for them: [`super::wide`]).

use hetckpt_ir::inst::Rounding;

/// A value and whether the exact result is greater (> 0), less (< 0) or equal (0).
#[derive(Clone, Copy)]
pub(super) struct Inexact {
    pub value: f64,
    pub error: f64,
}

pub(super) fn add(a: f64, b: f64) -> Inexact {
    let value = a + b;
    if !value.is_finite() {
        return beyond(value, a.is_finite() && b.is_finite());
    }
    let b_part = value - a;
    let error = (a - (value - b_part)) + (b - b_part);
    Inexact { value, error }
}

pub(super) fn subtract(a: f64, b: f64) -> Inexact {
    // `a + -b` would turn the sign of a `b` that is not a number.
    if b.is_nan() { Inexact::exact(a - b) } else { add(a, -b) }
}

pub(super) fn multiply(a: f64, b: f64) -> Inexact {
    let value = a * b;
    if !value.is_finite() {
        return beyond(value, a.is_finite() && b.is_finite());
    }
    Inexact {
        value,
        error: a.mul_add(b, -value),
    }
}

/// A result that is not finite: if the operands are, the exact one is a number nearer to zero.
fn beyond(value: f64, from_finite: bool) -> Inexact {
    let is_overflow = value.is_infinite() && from_finite;
    Inexact {
        value,
        error: if is_overflow { -value.signum() } else { 0.0 },
    }
}

pub(super) fn fused(a: f64, b: f64, c: f64) -> Inexact {
    let value = a.mul_add(b, c);
    if !value.is_finite() {
        return beyond(value, a.is_finite() && b.is_finite() && c.is_finite());
    }
    let product = multiply(a, b);
    let sum = add(product.value, c);
    Inexact {
        value,
        error: (sum.value - value) + (sum.error + product.error),
    }
}

pub(super) fn divide(a: f64, b: f64) -> Inexact {
    let value = a / b;
    if !value.is_finite() || !b.is_finite() {
        return beyond(value, a.is_finite() && b != 0.0);
    }
    let remainder = (-value).mul_add(b, a);
    Inexact {
        value,
        error: if b < 0.0 { -remainder } else { remainder },
    }
}

pub(super) fn root(a: f64) -> Inexact {
    let value = a.sqrt();
    let error = if value.is_finite() {
        (-value).mul_add(value, a)
    } else {
        0.0
    };
    Inexact { value, error }
}

impl Inexact {
    pub(super) fn exact(value: f64) -> Self {
        Self { value, error: 0.0 }
    }

    /// Of the two doubles around the exact result the one with an odd last bit; the result itself if it is a double.
    pub(super) fn to_odd(self) -> f64 {
        let is_odd = self.value.to_bits() & 1 == 1;
        match self.error {
            e if is_odd || !self.value.is_finite() || e == 0.0 => self.value,
            e if e > 0.0 => self.value.next_up(),
            _ => self.value.next_down(),
        }
    }

    /// The double next to the exact result in a direction.
    fn rounded(self, rounding: Rounding) -> f64 {
        let (value, error) = (self.value, self.error);
        let towards_zero = if value > 0.0 { error < 0.0 } else { error > 0.0 };
        match rounding {
            Rounding::Rz if towards_zero && value > 0.0 => value.next_down(),
            Rounding::Rz if towards_zero && value < 0.0 => value.next_up(),
            Rounding::Rm if error < 0.0 => value.next_down(),
            Rounding::Rp if error > 0.0 => value.next_up(),
            _ => value,
        }
    }
}

/// An integer of up to 64 bits and sign as the nearest odd double: rounding it again to `f32` or less is exact.
pub(crate) fn from_integer(n: i128, rounding: Rounding, to_odd: bool) -> f64 {
    let half = |n: i128| f64::from(u32::try_from(n & 0xffff_ffff).unwrap_or(0));
    let magnitude = n.abs();
    let sum = add(half(magnitude >> 32) * 4_294_967_296.0, half(magnitude));
    let signed = if n < 0 {
        Inexact {
            value: -sum.value,
            error: -sum.error,
        }
    } else {
        sum
    };
    if to_odd {
        signed.to_odd()
    } else {
        signed.rounded(rounding)
    }
}

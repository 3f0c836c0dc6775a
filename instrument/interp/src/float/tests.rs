#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use hetckpt_ir::inst::{AluOp, Modifiers, Rounding};
use hetckpt_ir::types::Type;

use super::evaluate;
use super::format::{decode, encode};
use crate::convert::convert;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Floats of all kinds; often of like size, so that sums cancel.
fn random_f32(state: &mut u64) -> u32 {
    let bits = random(state);
    let bits32 = (bits >> 32) as u32;
    match bits % 8 {
        0 => [
            0,
            1,
            0x8000_0000,
            0x7f80_0000,
            0x7f80_0001,
            0x7f7f_ffff,
            0x0080_0000,
            0x007f_ffff,
        ][(bits32 % 8) as usize],
        1 => bits32 & 0x807f_ffff,
        2..=4 => bits32 & 0x81ff_ffff | 0x3e00_0000,
        _ => bits32,
    }
}

fn f32_op(op: AluOp, mods: Modifiers, srcs: &[u32]) -> u32 {
    let srcs: Vec<u64> = srcs.iter().map(|s| u64::from(*s)).collect();
    u32::try_from(evaluate(op, Type::F32, mods, &srcs).unwrap()).unwrap()
}

fn is_same(got: u32, expected: f32) -> bool {
    if expected.is_nan() {
        got == 0x7fff_ffff
    } else {
        got == expected.to_bits()
    }
}

/// The host rounds to nearest even.
#[test]
fn nearest_f32_is_the_hosts() {
    let mut state = 1;
    for _ in 0..200_000 {
        let bits = [random_f32(&mut state), random_f32(&mut state), random_f32(&mut state)];
        let [a, b, c] = bits.map(f32::from_bits);
        for (op, expected) in [
            (AluOp::Add, a + b),
            (AluOp::Sub, a - b),
            (AluOp::Mul, a * b),
            (AluOp::Div, a / b),
            (AluOp::Fma, a.mul_add(b, c)),
            (AluOp::Sqrt, a.sqrt()),
            (AluOp::Rcp, 1.0 / a),
        ] {
            let got = f32_op(op, Modifiers::default(), &bits);
            assert!(
                is_same(got, expected),
                "{op:?} of {bits:x?}: {got:#x}, not {:#x}",
                expected.to_bits()
            );
        }
    }
}

/// Directed results are neighbours around the exact one, or equal where it is exact, and nearest is one of them.
#[test]
fn directed_f32_brackets_the_nearest() {
    let mut state = 2;
    let mut inexact = 0;
    for _ in 0..100_000 {
        let bits = [random_f32(&mut state), random_f32(&mut state), random_f32(&mut state)];
        for op in [AluOp::Add, AluOp::Mul, AluOp::Div, AluOp::Fma, AluOp::Sqrt] {
            let with = |r| {
                f32::from_bits(f32_op(
                    op,
                    Modifiers {
                        rounding: Some(r),
                        ..Modifiers::default()
                    },
                    &bits,
                ))
            };
            let (down, up, zero, near) = (
                with(Rounding::Rm),
                with(Rounding::Rp),
                with(Rounding::Rz),
                with(Rounding::Rn),
            );
            if near.is_nan() {
                assert!(down.is_nan() && up.is_nan() && zero.is_nan());
                continue;
            }
            assert!(near == down || near == up, "{op:?} of {bits:x?}");
            assert!(up == down || up == down.next_up(), "{op:?} of {bits:x?}: {down} {up}");
            assert_eq!(
                zero,
                if near.is_sign_positive() { down } else { up },
                "{op:?} of {bits:x?}"
            );
            inexact += usize::from(up != down);
        }
    }
    assert!(inexact > 1000);
}

#[test]
fn directed_f64_brackets_the_nearest() {
    let mut state = 3;
    for _ in 0..50_000 {
        let bits = [0, 1].map(|_| random(&mut state) & 0x801f_ffff_ffff_ffff | 0x3fe0_0000_0000_0000);
        for op in [AluOp::Add, AluOp::Mul, AluOp::Div, AluOp::Sqrt] {
            let with = |r| {
                let mods = Modifiers {
                    rounding: Some(r),
                    ..Modifiers::default()
                };
                f64::from_bits(evaluate(op, Type::F64, mods, &bits).unwrap())
            };
            let (down, up, near) = (with(Rounding::Rm), with(Rounding::Rp), with(Rounding::Rn));
            if !near.is_nan() {
                assert!(
                    (near == down || near == up) && (up == down || up == down.next_up()),
                    "{op:?} of {bits:x?}"
                );
            }
        }
    }
}

#[test]
fn formats_round_trip() {
    for bits in 0..0x1_0000u64 {
        for (ty, infinity) in [(Type::F16, 0x7c00), (Type::Bf16, 0x7f80)] {
            let is_nan = bits & 0x7fff > infinity;
            let expected = if is_nan { 0x7fff } else { bits };
            assert_eq!(
                encode(decode(bits, ty), ty, Rounding::Rn),
                expected,
                "{bits:#x} as {}",
                ty.name()
            );
        }
    }
}

#[test]
fn halves_round_to_nearest_even() {
    let half = |x: f64| encode(x, Type::F16, Rounding::Rn);
    assert_eq!(half(1.0), 0x3c00);
    assert_eq!(half(1.0 + 2f64.powi(-11)), 0x3c00, "a tie goes to even");
    assert_eq!(half(1.0 + 3.0 * 2f64.powi(-11)), 0x3c02, "a tie goes to even");
    assert_eq!(half(65519.9), 0x7bff);
    assert_eq!(half(65520.0), 0x7c00, "overflow");
    assert_eq!(half(2f64.powi(-25)), 0, "half of the smallest is a tie");
    assert_eq!(half(1.5 * 2f64.powi(-25)), 1);
    assert_eq!(encode(65520.0, Type::F16, Rounding::Rz), 0x7bff);
    assert_eq!(encode(-2f64.powi(-40), Type::F16, Rounding::Rm), 0x8001);
}

#[test]
fn modifiers_flush_and_saturate() {
    let ftz = Modifiers {
        ftz: true,
        ..Modifiers::default()
    };
    let sat = Modifiers {
        sat: true,
        ..Modifiers::default()
    };
    assert_eq!(f32_op(AluOp::Add, ftz, &[0x8000_0001, 0]), 0, "-0 + 0");
    assert_eq!(
        f32_op(AluOp::Mul, ftz, &[0x0080_0000, 0xbf00_0000]),
        0x8000_0000,
        "a subnormal result"
    );
    assert_eq!(
        f32_op(AluOp::Mul, Modifiers::default(), &[0x0080_0000, 0x3f00_0000]),
        0x0040_0000
    );
    assert_eq!(f32_op(AluOp::Add, sat, &[0x4000_0000, 0]), 0x3f80_0000);
    assert_eq!(f32_op(AluOp::Add, sat, &[0xc000_0000, 0]), 0);
    assert_eq!(f32_op(AluOp::Add, sat, &[0x7fc0_0000, 0]), 0, "not a number");
}

#[test]
fn minimum_prefers_numbers_and_orders_zeros() {
    let min = |a, b| f32_op(AluOp::Min, Modifiers::default(), &[a, b]);
    assert_eq!(min(0x7fc0_0000, 0x3f80_0000), 0x3f80_0000);
    assert_eq!(min(0x7fc0_0000, 0xffc0_0000), 0x7fff_ffff);
    assert_eq!(min(0, 0x8000_0000), 0x8000_0000);
    assert_eq!(f32_op(AluOp::Max, Modifiers::default(), &[0x8000_0000, 0]), 0);
}

#[test]
fn packed_halves_are_computed_apart() {
    let sum = evaluate(
        AluOp::Add,
        Type::F16x2,
        Modifiers::default(),
        &[0x3c00_4000, 0x3c00_c000],
    )
    .unwrap();
    assert_eq!(sum, 0x4000_0000);
}

#[test]
fn floats_to_integers_saturate() {
    let rz = Modifiers {
        rounding: Some(Rounding::Rzi),
        ..Modifiers::default()
    };
    let from = |to, x: f32| convert(to, Type::F32, rz, u64::from(x.to_bits())).unwrap();
    assert_eq!(from(Type::S32, -2.7) as u32, 2u32.wrapping_neg());
    assert_eq!(from(Type::S32, 3e9), 0x7fff_ffff);
    assert_eq!(from(Type::U32, -1.0), 0);
    assert_eq!(from(Type::U8, 300.0), 255);
    assert_eq!(from(Type::S32, f32::NAN), 0);
    assert_eq!(from(Type::U64, f32::NAN), 1 << 63);
    let ties = Modifiers {
        rounding: Some(Rounding::Rni),
        ..Modifiers::default()
    };
    assert_eq!(convert(Type::S32, Type::F64, ties, 2.5f64.to_bits()), Some(2));
}

#[test]
fn integers_to_floats_are_the_hosts() {
    let mut state = 4;
    for _ in 0..50_000 {
        let n = random(&mut state) >> (random(&mut state) % 64);
        let near = Modifiers {
            rounding: Some(Rounding::Rn),
            ..Modifiers::default()
        };
        let to = |ty, from| convert(ty, from, near, n).unwrap();
        assert_eq!(to(Type::F32, Type::U64), u64::from((n as f32).to_bits()), "{n}");
        assert_eq!(
            to(Type::F32, Type::S64),
            u64::from((n.cast_signed() as f32).to_bits()),
            "{n}"
        );
        assert_eq!(to(Type::F64, Type::S64), (n.cast_signed() as f64).to_bits(), "{n}");
        assert_eq!(to(Type::F32, Type::S32), u64::from((n as i32 as f32).to_bits()), "{n}");
    }
}

#[test]
fn integers_are_extended_and_clamped() {
    let plain = Modifiers::default();
    let sat = Modifiers { sat: true, ..plain };
    assert_eq!(convert(Type::S32, Type::S8, plain, 0x80), Some(0xffff_ffff_ffff_ff80));
    assert_eq!(convert(Type::U32, Type::U8, plain, 0x180), Some(0x80));
    assert_eq!(convert(Type::S8, Type::S32, plain, 0x80), Some(0xffff_ffff_ffff_ff80));
    assert_eq!(convert(Type::S8, Type::S32, sat, 0x80), Some(0x7f));
    assert_eq!(convert(Type::U8, Type::S32, sat, 0xffff_ffff), Some(0));
}

/// As seen on an H200 (driver 580).
#[test]
fn special_values_are_the_devices() {
    let down = Modifiers {
        rounding: Some(Rounding::Rm),
        ..Modifiers::default()
    };
    let zero = Modifiers {
        rounding: Some(Rounding::Rz),
        ..Modifiers::default()
    };
    assert_eq!(
        f32_op(AluOp::Add, down, &[0x8080_0000, 0x0080_0000]),
        0x8000_0000,
        "an exact zero, rounded down"
    );
    assert_eq!(f32_op(AluOp::Add, down, &[0, 0]), 0);
    assert_eq!(f32_op(AluOp::Neg, Modifiers::default(), &[0x7fac_7144]), 0x7fff_ffff);
    let f64_op = |op, mods, a, b| evaluate(op, Type::F64, mods, &[a, b]).unwrap();
    let (nan, max) = (0x7ff8 << 48, f64::MAX.to_bits());
    assert_eq!(f64_op(AluOp::Sub, Modifiers::default(), 1, nan), nan, "the sign stays");
    assert_eq!(f64_op(AluOp::Add, zero, max, max), max);
    assert_eq!(
        f64_op(AluOp::Add, Modifiers::default(), max, max),
        f64::INFINITY.to_bits()
    );
    let narrow = |bits| convert(Type::F32, Type::F64, Modifiers::default(), bits).unwrap();
    assert_eq!(narrow(nan), 0x7fc0_0000);
    let wide = |bits| convert(Type::F64, Type::F32, Modifiers::default(), bits).unwrap();
    assert_eq!(wide(0xffac_7144), 0xfffd_8e28_8000_0000);
}

/// The device rounds a result to the format's precision, not yet to the bits that a subnormal number has, and looks at
/// that. As seen on an H100.
#[test]
fn results_are_flushed_that_are_below_the_smallest_normal_number_in_full_precision() {
    let rounded = |rounding| Modifiers {
        rounding: Some(rounding),
        ftz: true,
        ..Modifiers::default()
    };
    let ftz = rounded(Rounding::Rn);
    let (smallest, below_one) = (0x0080_0000, 0x3f7f_ffff);
    assert_eq!(
        f32_op(AluOp::Mul, Modifiers::default(), &[smallest, below_one]),
        smallest
    );
    assert_eq!(f32_op(AluOp::Mul, ftz, &[smallest, below_one]), 0);
    assert_eq!(f32_op(AluOp::Mul, ftz, &[0x8080_0000, below_one]), 0x8000_0000);
    assert_eq!(f32_op(AluOp::Mul, ftz, &[smallest, 0x3f80_0000]), smallest);
    assert_eq!(f32_op(AluOp::Fma, ftz, &[smallest, below_one, 0]), 0);
    assert_eq!(f32_op(AluOp::Div, ftz, &[smallest, 0x3f80_0001]), 0);
    // Less than half of the last bit below it.
    let [a, b] = [0x2d65_a1ae, 0x928e_b2ba];
    assert_eq!(f32_op(AluOp::Mul, ftz, &[a, b]), 0x8080_0000);
    assert_eq!(f32_op(AluOp::Fma, ftz, &[a, b, 0]), 0x8080_0000);
    assert_eq!(f32_op(AluOp::Mul, rounded(Rounding::Rm), &[a, b]), 0x8080_0000);
    assert_eq!(f32_op(AluOp::Mul, rounded(Rounding::Rp), &[a, b]), 0x8000_0000);
    assert_eq!(f32_op(AluOp::Mul, rounded(Rounding::Rz), &[a, b]), 0x8000_0000);
    // The half of the last bit below it, and a little more: to the even one, and not.
    let two_to_minus_24 = 0x3380_0000;
    assert_eq!(
        f32_op(AluOp::Fma, ftz, &[two_to_minus_24, 0x8040_0000, smallest]),
        smallest
    );
    let [a, b] = [0x1a80_0000, 0x9900_0001];
    assert_eq!(f32_op(AluOp::Fma, ftz, &[a, b, smallest]), 0);
    assert_eq!(f32_op(AluOp::Fma, rounded(Rounding::Rp), &[a, b, smallest]), smallest);
    let half = |op, srcs: &[u64]| evaluate(op, Type::F16, ftz, srcs).unwrap();
    assert_eq!(half(AluOp::Fma, &[0x0400, 0x3bff, 0]), 0);
    assert_eq!(half(AluOp::Mul, &[0x0400, 0x3c00]), 0x0400);
    assert_eq!(half(AluOp::Mul, &[0x1ffe, 0xa001]), 0x8400);
    assert_eq!(half(AluOp::Fma, &[0x1ffe, 0xa001, 0]), 0x8400);
}

#[test]
fn approximate_functions_have_the_devices_special_cases() {
    let approx = Modifiers {
        approx: true,
        ..Modifiers::default()
    };
    let (two_to_127, infinity, nan) = (0x7f00_0000, 0x7f80_0000, 0x7fff_ffff);
    assert_eq!(f32_op(AluOp::Div, approx, &[two_to_127, two_to_127]), 0);
    assert_eq!(f32_op(AluOp::Div, approx, &[0xff00_0000, two_to_127]), 0x8000_0000);
    assert_eq!(f32_op(AluOp::Div, approx, &[infinity, two_to_127]), nan);
    assert_eq!(f32_op(AluOp::Div, approx, &[0x7e80_0000, 0x7e80_0000]), 0x3f80_0000);
    assert_eq!(
        f32_op(AluOp::Sin, approx, &[0x8000_0001]),
        0x8000_0000,
        "a subnormal operand"
    );
    assert_eq!(f32_op(AluOp::Cos, approx, &[1]), 0x3f80_0000);
    assert_eq!(
        f32_op(AluOp::Cos, approx, &[0x4e6e_6b28]),
        0x3f80_0000,
        "a billion has no fraction of turns"
    );
    assert_eq!(f32_op(AluOp::Sin, approx, &[infinity]), nan);
    let near = |op, a: f32, seen: u32| {
        let (x, y) = (f32::from_bits(f32_op(op, approx, &[a.to_bits()])), f32::from_bits(seen));
        assert!((x - y).abs() < 3e-7, "{op:?} of {a}: {x}, not {y}");
    };
    near(AluOp::Sin, 256.5, 0xbf65_5ebd);
    near(AluOp::Cos, 256.5, 0x3ee3_6126);
    let gross = Modifiers { ftz: true, ..approx };
    let f64_op = |op, a: u64| evaluate(op, Type::F64, gross, &[a]).unwrap();
    assert_eq!(f64_op(AluOp::Rcp, 3.0f64.to_bits()), 0x3fd5_5555 << 32, "no low word");
    assert_eq!(f64_op(AluOp::Rcp, 1), f64::INFINITY.to_bits());
    assert_eq!(f64_op(AluOp::Rcp, 1 << 63 | 1), f64::NEG_INFINITY.to_bits());
    assert_eq!(f64_op(AluOp::Rcp, f64::MAX.to_bits()), 0);
    assert_eq!(f64_op(AluOp::Rsqrt, 4.0f64.to_bits() | 1), 0.5f64.to_bits());
    assert_eq!(f64_op(AluOp::Rsqrt, 1 << 63), f64::NEG_INFINITY.to_bits());
}

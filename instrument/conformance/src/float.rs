//! Floating-point arithmetic.

use hetckpt_ir::inst::{AluOp, Modifiers, Rounding};
use hetckpt_ir::types::Type;

use crate::bench::Bench;
use crate::implementation::Implementation;
use crate::operands::{Random, floats, operands, operands_from};

pub fn floating_point(tested: &dyn Implementation) {
    let modes = [
        None,
        Some(Rounding::Rn),
        Some(Rounding::Rz),
        Some(Rounding::Rm),
        Some(Rounding::Rp),
    ];
    for ty in [Type::F32, Type::F64] {
        let mut bench = Bench::new(tested);
        for rounding in modes {
            for (ftz, sat) in [(false, false), (true, false), (false, true), (true, true)] {
                if ty == Type::F64 && (ftz || sat) {
                    continue;
                }
                let mods = Modifiers {
                    rounding,
                    ftz,
                    sat,
                    ..Modifiers::default()
                };
                for op in [AluOp::Add, AluOp::Sub, AluOp::Mul] {
                    bench.alu(op, ty, mods, 2);
                }
                bench.alu(AluOp::Fma, ty, mods, 3);
                if !sat && rounding.is_some() {
                    bench.alu(AluOp::Div, ty, mods, 2);
                    bench.alu(AluOp::Rcp, ty, mods, 1);
                    bench.alu(AluOp::Sqrt, ty, mods, 1);
                }
            }
        }
        for ftz in [false, true] {
            let mods = Modifiers {
                ftz: ftz && ty == Type::F32,
                ..Modifiers::default()
            };
            bench.alu(AluOp::Min, ty, mods, 2);
            bench.alu(AluOp::Max, ty, mods, 2);
            bench.alu(AluOp::Abs, ty, mods, 1);
            bench.alu(AluOp::Neg, ty, mods, 1);
        }
        bench.alu(AluOp::Copysign, ty, Modifiers::default(), 2);
        // Of f64 those that a GPU has been recorded with; `directed` has all sizes.
        let is_usual = |v: &u64| ty == Type::F32 || *v << 1 == 0 || (200..1800).contains(&(v >> 52 & 0x7ff));
        let mut values: Vec<u64> = floats(ty).into_iter().filter(is_usual).collect();
        if ty == Type::F64 {
            let mut random = Random(3);
            values.extend((0..2000).map(|_| random.next() >> 6 | 0x3c << 56 ^ random.next() << 63));
        }
        bench.check(&operands(&values));
    }
}

pub fn half_precision(tested: &dyn Implementation) {
    for ty in [Type::F16, Type::F16x2, Type::Bf16, Type::Bf16x2] {
        let mut bench = Bench::new(tested);
        let none = Modifiers::default();
        bench.alu(AluOp::Fma, ty, none, 3);
        for op in [AluOp::Add, AluOp::Sub, AluOp::Mul, AluOp::Min, AluOp::Max] {
            bench.alu(op, ty, none, 2);
        }
        bench.alu(AluOp::Abs, ty, none, 1);
        bench.alu(AluOp::Neg, ty, none, 1);
        bench.check(&operands(&floats(ty)));
    }
}

/// Relative error in units of the last place, roughly; for functions that PTX only bounds.
fn is_close(tested: &dyn Implementation, got: u64, want: u64, ty: Type) -> bool {
    let value = |bits: u64| match ty {
        Type::F32 => f64::from(f32::from_bits(u32::try_from(bits).unwrap())),
        _ => f64::from_bits(bits),
    };
    let (got, want) = (value(got), value(want));
    let tolerance = if ty == Type::F32 { tested.approximation() } else { 1e-14 };
    (got.is_nan() && want.is_nan())
        || got == want
        || (got - want).abs() <= tolerance * want.abs().max(tested.near_zero())
}

pub fn approximate_functions(tested: &dyn Implementation) {
    let approx = Modifiers {
        approx: true,
        ..Modifiers::default()
    };
    let mut bench = Bench::new(tested);
    bench.compare = Box::new(|got, want, ty| is_close(tested, got, want, ty));
    for op in [
        AluOp::Rcp,
        AluOp::Sqrt,
        AluOp::Rsqrt,
        AluOp::Sin,
        AluOp::Cos,
        AluOp::Lg2,
        AluOp::Ex2,
        AluOp::Tanh,
    ] {
        bench.alu(op, Type::F32, approx, 1);
    }
    bench.alu(AluOp::Div, Type::F32, approx, 2);
    bench.alu(
        AluOp::Div,
        Type::F32,
        Modifiers {
            full: true,
            ..Modifiers::default()
        },
        2,
    );
    let mut random = Random(11);
    let values: Vec<u64> = (0..500)
        .map(|i| {
            u64::from(
                (((random.next() >> 40) as f32 / 65536.0 - 128.0) * if i % 2 == 0 { 1.0 } else { 0.01 }).to_bits(),
            )
        })
        .collect();
    bench.check(&operands_from(&values));
}

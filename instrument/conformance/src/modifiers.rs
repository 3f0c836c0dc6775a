//! Conversions, comparisons and arithmetic of halves with the modifiers and types that the other tests leave out: bf16,
//! `.ftz`, `.sat`.

use hetckpt_ir::inst::{AluOp, Comparison, Modifiers, Op, Operand, Rounding};
use hetckpt_ir::types::{Type, Width};

use crate::bench::{Bench, IntoOperand, width_of};
use crate::implementation::Implementation;
use crate::operands::{floats, integers, operands};

const INTEGERS: [Type; 8] = [
    Type::U8,
    Type::S8,
    Type::U16,
    Type::S16,
    Type::U32,
    Type::S32,
    Type::U64,
    Type::S64,
];
const TO_INTEGERS: [Rounding; 4] = [Rounding::Rni, Rounding::Rzi, Rounding::Rmi, Rounding::Rpi];
const NARROWING: [Rounding; 4] = [Rounding::Rn, Rounding::Rz, Rounding::Rm, Rounding::Rp];
const NONE: Modifiers = Modifiers {
    rounding: None,
    approx: false,
    full: false,
    ftz: false,
    sat: false,
};

fn rounded(rounding: Rounding) -> Modifiers {
    Modifiers {
        rounding: Some(rounding),
        ..NONE
    }
}

fn convert(bench: &mut Bench, to: Type, from: Type, mods: Modifiers) {
    let src = bench.operand(0, from).into_operand();
    let dst = bench.kernel.add_register(width_of(to));
    bench.push(Op::Cvt {
        dst_ty: to,
        src_ty: from,
        mods,
        dst,
        src,
    });
    bench.result(format!("cvt.{}.{} {mods:?}", to.name(), from.name()), dst, to);
}

pub fn conversions_of_bf16(tested: &dyn Implementation) {
    for from in INTEGERS {
        let mut bench = Bench::new(tested);
        for rounding in NARROWING {
            convert(&mut bench, Type::Bf16, from, rounded(rounding));
        }
        bench.check(&operands(&integers()));
    }
    let mut bench = Bench::new(tested);
    for to in INTEGERS {
        for rounding in TO_INTEGERS {
            convert(&mut bench, to, Type::Bf16, rounded(rounding));
        }
    }
    for to in [Type::F32, Type::F64] {
        convert(&mut bench, to, Type::Bf16, NONE);
    }
    bench.check(&operands(&floats(Type::Bf16)));
    for from in [Type::F16, Type::F32, Type::F64] {
        let mut bench = Bench::new(tested);
        for rounding in [Rounding::Rn, Rounding::Rz] {
            convert(&mut bench, Type::Bf16, from, rounded(rounding));
        }
        bench.check(&operands(&floats(from)));
    }
}

/// Subnormal numbers of `f32` are zero, on whichever side; those of other types are not.
pub fn conversions_that_flush(tested: &dyn Implementation) {
    let flushing = |mods: Modifiers| [false, true].map(|sat| Modifiers { ftz: true, sat, ..mods });
    let mut bench = Bench::new(tested);
    for to in INTEGERS {
        for mods in TO_INTEGERS.map(rounded) {
            convert(&mut bench, to, Type::F32, Modifiers { ftz: true, ..mods });
        }
    }
    for mods in TO_INTEGERS.map(rounded).into_iter().flat_map(flushing) {
        convert(&mut bench, Type::F32, Type::F32, mods);
    }
    for mods in [NONE].into_iter().flat_map(flushing) {
        convert(&mut bench, Type::F32, Type::F32, mods);
        convert(&mut bench, Type::F64, Type::F32, mods);
    }
    for mods in NARROWING.map(rounded) {
        convert(&mut bench, Type::F16, Type::F32, Modifiers { ftz: true, ..mods });
    }
    bench.check(&operands(&floats(Type::F32)));
    let mut bench = Bench::new(tested);
    for mods in NARROWING.map(rounded).into_iter().flat_map(flushing) {
        convert(&mut bench, Type::F32, Type::F64, mods);
    }
    bench.check(&operands(&floats(Type::F64)));
    let mut bench = Bench::new(tested);
    for mods in [NONE].into_iter().flat_map(flushing) {
        convert(&mut bench, Type::F32, Type::F16, mods);
    }
    bench.check(&operands(&floats(Type::F16)));
}

pub fn conversions_that_clamp(tested: &dyn Implementation) {
    for from in [Type::F16, Type::F32, Type::F64] {
        let mut bench = Bench::new(tested);
        for to in INTEGERS {
            for mods in TO_INTEGERS.map(rounded) {
                convert(&mut bench, to, from, Modifiers { sat: true, ..mods });
            }
        }
        bench.check(&operands(&floats(from)));
    }
    for from in INTEGERS {
        let mut bench = Bench::new(tested);
        for to in [Type::F16, Type::F32, Type::F64] {
            for mods in NARROWING.map(rounded) {
                convert(&mut bench, to, from, Modifiers { sat: true, ..mods });
            }
        }
        bench.check(&operands(&integers()));
    }
}

pub fn comparisons_of_bf16_and_such_that_flush(tested: &dyn Implementation) {
    use Comparison as C;
    let all = [
        C::Eq,
        C::Ne,
        C::Lt,
        C::Le,
        C::Gt,
        C::Ge,
        C::Equ,
        C::Neu,
        C::Ltu,
        C::Leu,
        C::Gtu,
        C::Geu,
        C::Num,
        C::Nan,
    ];
    for (ty, ftz) in [(Type::Bf16, false), (Type::F16, true), (Type::F32, true)] {
        let mut bench = Bench::new(tested);
        for cmp in all {
            let (a, b) = (bench.operand(0, ty).into_operand(), bench.operand(1, ty).into_operand());
            let (dst, word, mask) = (
                bench.kernel.add_register(Width::Pred),
                bench.kernel.add_register(Width::W32),
                bench.kernel.add_register(Width::W32),
            );
            bench.push(Op::Setp {
                cmp,
                ty,
                ftz,
                dst,
                dst_not: None,
                a,
                b,
                combine: None,
            });
            bench.push(Op::Selp {
                ty: Type::B32,
                dst: word,
                a: Operand::Imm(5),
                b: Operand::Imm(9),
                pred: dst,
            });
            bench.result(format!("setp.{cmp:?}.{}", ty.name()), word, Type::B32);
            bench.push(Op::Set {
                cmp,
                dst_ty: Type::U32,
                ty,
                ftz,
                dst: mask,
                a,
                b,
            });
            bench.result(format!("set.{cmp:?}.{}", ty.name()), mask, Type::B32);
        }
        bench.check(&operands(&floats(ty)));
    }
}

pub fn halves_that_flush_and_clamp(tested: &dyn Implementation) {
    for ty in [Type::F16, Type::F16x2] {
        let mut bench = Bench::new(tested);
        for (ftz, sat) in [(false, true), (true, false), (true, true)] {
            let mods = Modifiers {
                rounding: Some(Rounding::Rn),
                ftz,
                sat,
                ..NONE
            };
            for op in [AluOp::Add, AluOp::Sub, AluOp::Mul] {
                bench.alu(op, ty, mods, 2);
            }
            bench.alu(AluOp::Fma, ty, mods, 3);
        }
        let mods = Modifiers { ftz: true, ..NONE };
        for op in [AluOp::Min, AluOp::Max] {
            bench.alu(op, ty, mods, 2);
        }
        for op in [AluOp::Abs, AluOp::Neg] {
            bench.alu(op, ty, mods, 1);
        }
        bench.check(&operands(&floats(ty)));
    }
}

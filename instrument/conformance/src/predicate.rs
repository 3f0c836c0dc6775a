//! Comparisons, predicates and guards.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AluOp, BoolOp, Comparison, Guard, Modifiers, Op, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::bench::{Bench, IntoOperand};
use crate::implementation::Implementation;
use crate::operands::{floats, integers, operands};

pub fn comparisons(tested: &dyn Implementation) {
    use Comparison as C;
    let ordered = [C::Eq, C::Ne, C::Lt, C::Le, C::Gt, C::Ge];
    let float_only = [C::Equ, C::Neu, C::Ltu, C::Leu, C::Gtu, C::Geu, C::Num, C::Nan];
    for ty in [
        Type::U16,
        Type::S16,
        Type::U32,
        Type::S32,
        Type::U64,
        Type::S64,
        Type::F16,
        Type::F32,
        Type::F64,
    ] {
        let mut bench = Bench::new(tested);
        let extra: &[C] = if ty.is_float() {
            &float_only
        } else {
            &[C::Lo, C::Ls, C::Hi, C::Hs]
        };
        let extra = if ty.is_signed() { &[] } else { extra };
        for &cmp in ordered.iter().chain(extra) {
            let (a, b) = (bench.operand(0, ty).into_operand(), bench.operand(1, ty).into_operand());
            let dst = bench.kernel.add_register(Width::Pred);
            // PTX has no second predicate for half precision, and no mask of type f32.
            let is_half = ty == Type::F16;
            let dst_not = (!is_half).then(|| bench.kernel.add_register(Width::Pred));
            bench.push(Op::Setp {
                cmp,
                ty,
                ftz: false,
                dst,
                dst_not,
                a,
                b,
                combine: None,
            });
            for (pred, what) in std::iter::once((dst, "setp")).chain(dst_not.map(|dst| (dst, "setp|q"))) {
                let word = bench.kernel.add_register(Width::W32);
                bench.push(Op::Selp {
                    ty: Type::B32,
                    dst: word,
                    a: Operand::Imm(5),
                    b: Operand::Imm(9),
                    pred,
                });
                bench.result(format!("{what}.{cmp:?}.{}", ty.name()), word, Type::B32);
            }
            let masks = [Type::U32, Type::F32];
            for dst_ty in masks.into_iter().take(if is_half { 1 } else { 2 }) {
                let word = bench.kernel.add_register(Width::W32);
                bench.push(Op::Set {
                    cmp,
                    dst_ty,
                    ty,
                    ftz: false,
                    dst: word,
                    a,
                    b,
                });
                bench.result(format!("set.{cmp:?}.{}.{}", dst_ty.name(), ty.name()), word, dst_ty);
            }
        }
        let cases = if ty.is_float() { floats(ty) } else { integers() };
        bench.check(&operands(&cases));
    }
}

pub fn predicates(tested: &dyn Implementation) {
    let mut bench = Bench::new(tested);
    let pred = |bench: &mut Bench, index: u64| {
        let dst = bench.kernel.add_register(Width::Pred);
        let a = bench.operand(index, Type::B32).into_operand();
        let cmp = Comparison::Gt;
        let b = Operand::Imm(40);
        bench.push(Op::Setp {
            cmp,
            ty: Type::U32,
            ftz: false,
            dst,
            dst_not: None,
            a,
            b,
            combine: None,
        });
        dst
    };
    let show = |bench: &mut Bench, name: String, pred: RegId| {
        let word = bench.kernel.add_register(Width::W64);
        bench.push(Op::Selp {
            ty: Type::B64,
            dst: word,
            a: Operand::Imm(u64::MAX),
            b: Operand::Imm(1),
            pred,
        });
        bench.result(name, word, Type::B64);
    };
    let (p, q) = (pred(&mut bench, 0), pred(&mut bench, 1));
    for op in [AluOp::And, AluOp::Or, AluOp::Xor, AluOp::Not] {
        let dst = bench.kernel.add_register(Width::Pred);
        let srcs = if op == AluOp::Not {
            vec![Operand::Reg(p)]
        } else {
            vec![Operand::Reg(p), Operand::Reg(q)]
        };
        bench.push(Op::Alu {
            op,
            ty: Type::Pred,
            mods: Modifiers::default(),
            dst,
            srcs,
        });
        show(&mut bench, format!("{op:?}.pred"), dst);
    }
    for op in [BoolOp::And, BoolOp::Or, BoolOp::Xor] {
        for negated in [false, true] {
            let (dst, dst_not) = (
                bench.kernel.add_register(Width::Pred),
                bench.kernel.add_register(Width::Pred),
            );
            let (a, b) = (
                bench.operand(2, Type::S32).into_operand(),
                bench.operand(3, Type::S32).into_operand(),
            );
            let combine = Some((op, q, negated));
            let (cmp, ty, ftz) = (Comparison::Lt, Type::S32, false);
            bench.push(Op::Setp {
                cmp,
                ty,
                ftz,
                dst,
                dst_not: Some(dst_not),
                a,
                b,
                combine,
            });
            show(&mut bench, format!("setp.{op:?} {negated}"), dst);
            show(&mut bench, format!("setp|q.{op:?} {negated}"), dst_not);
        }
    }
    // A guarded write leaves the register as it was where the guard fails.
    for negated in [false, true] {
        let word = bench.operand(2, Type::B32);
        let dst = bench.alu_into(
            AluOp::Add,
            Type::U32,
            Width::W32,
            &[word.into_operand(), Operand::Imm(1)],
        );
        bench.push(Op::Mov {
            ty: Type::B32,
            dst,
            src: Operand::Imm(99),
        });
        bench.insts.last_mut().unwrap().guard = Some(Guard { pred: p, negated });
        bench.result(format!("guarded {negated}"), dst, Type::B32);
    }
    bench.check(&operands(&integers()));
}

//! Integer arithmetic, logic and bit fields.

use hetckpt_ir::inst::{AluOp, Modifiers, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::bench::{Bench, IntoOperand};
use crate::implementation::Implementation;
use crate::operands::{integers, operands};

const SIGNED_AND_NOT: [Type; 6] = [Type::U16, Type::U32, Type::U64, Type::S16, Type::S32, Type::S64];

pub fn integer_arithmetic(tested: &dyn Implementation) {
    let none = Modifiers::default();
    let sat = Modifiers { sat: true, ..none };
    let mut bench = Bench::new(tested);
    for ty in SIGNED_AND_NOT {
        for op in [
            AluOp::Add,
            AluOp::Sub,
            AluOp::Mul,
            AluOp::MulHi,
            AluOp::Div,
            AluOp::Rem,
            AluOp::Min,
            AluOp::Max,
        ] {
            bench.alu(op, ty, none, 2);
        }
        for op in [AluOp::Mad, AluOp::MadHi, AluOp::Sad] {
            bench.alu(op, ty, none, 3);
        }
        if ty.is_signed() {
            bench.alu(AluOp::Abs, ty, none, 1);
            bench.alu(AluOp::Neg, ty, none, 1);
        }
        if ty.size_bytes() < 8 {
            bench.alu(AluOp::MulWide, ty, none, 2);
            bench.alu(AluOp::MadWide, ty, none, 3);
        }
        bench.alu(AluOp::Shr, ty, none, 2);
    }
    bench.alu(AluOp::Add, Type::S32, sat, 2);
    bench.alu(AluOp::Sub, Type::S32, sat, 2);
    bench.alu(AluOp::MadHi, Type::S32, sat, 3);
    bench.check(&operands(&integers()));
}

pub fn logic_and_bit_fields(tested: &dyn Implementation) {
    let none = Modifiers::default();
    let mut bench = Bench::new(tested);
    for ty in [Type::B16, Type::B32, Type::B64] {
        for op in [AluOp::And, AluOp::Or, AluOp::Xor, AluOp::Shl] {
            bench.alu(op, ty, none, 2);
        }
        bench.alu(AluOp::Not, ty, none, 1);
        bench.alu(AluOp::Cnot, ty, none, 1);
    }
    for ty in [Type::B32, Type::B64] {
        for op in [AluOp::Popc, AluOp::Clz, AluOp::Brev] {
            bench.alu(op, ty, none, 1);
        }
        bench.alu(AluOp::Bfi, ty, none, 4);
    }
    for ty in [Type::U32, Type::S32, Type::U64, Type::S64] {
        for op in [AluOp::Bfind, AluOp::BfindShiftAmt] {
            bench.alu(op, ty, none, 1);
        }
        bench.alu(AluOp::Bfe, ty, none, 3);
    }
    for op in [
        AluOp::ShfLWrap,
        AluOp::ShfLClamp,
        AluOp::ShfRWrap,
        AluOp::ShfRClamp,
        AluOp::Prmt,
    ] {
        bench.alu(op, Type::B32, none, 3);
    }
    bench.alu(AluOp::BmskClamp, Type::B32, none, 2);
    bench.alu(AluOp::BmskWrap, Type::B32, none, 2);
    for table in 0..256 {
        let mut srcs: Vec<Operand> = (0..3).map(|i| bench.operand(i, Type::B32).into_operand()).collect();
        srcs.push(Operand::Imm(table));
        let dst = bench.alu_into(AluOp::Lop3, Type::B32, Width::W32, &srcs);
        bench.result(format!("lop3 {table:#x}"), dst, Type::B32);
    }
    bench.check(&operands(&integers()));
}

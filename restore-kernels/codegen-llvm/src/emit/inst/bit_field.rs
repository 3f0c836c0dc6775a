//! Bits inside words: funnel shifts, counts, fields, bytes, truth tables (PTX ISA, "Integer Arithmetic Instructions",
//! "Logic and Shift Instructions", "prmt").

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AluOp, Inst, Operand};
use hetckpt_ir::types::Type;

use super::unsupported;
use crate::emit::function::{FunctionText, Value};
use crate::emit::types::{bits, llvm};
use crate::error::CodegenError;

/// Writes one of these operations.
pub fn write(
    f: &mut FunctionText<'_>,
    inst: &Inst,
    op: AluOp,
    ty: Type,
    dst: RegId,
    srcs: &[Operand],
) -> Result<(), CodegenError> {
    let is_word = bits(ty) == 32;
    let value = match op {
        AluOp::Popc | AluOp::Clz | AluOp::Bfind | AluOp::BfindShiftAmt => {
            let a = f.read(srcs[0], ty);
            let value = count(f, op, ty, &a);
            f.write(dst, Type::U32, value);
            return Ok(());
        }
        AluOp::Brev => {
            let a = f.read(srcs[0], ty);
            f.call(
                llvm(ty),
                &format!("llvm.bitreverse.{}", llvm(ty)),
                &[format!("{} {a}", llvm(ty))],
            )
        }
        AluOp::Bfe => extract_field(f, ty, srcs),
        AluOp::Bfi => insert_field(f, ty, srcs),
        AluOp::ShfLWrap | AluOp::ShfLClamp | AluOp::ShfRWrap | AluOp::ShfRClamp if is_word => funnel(f, op, srcs),
        AluOp::BmskClamp | AluOp::BmskWrap if is_word => mask(f, op, srcs),
        AluOp::Prmt if is_word => permute(f, srcs),
        AluOp::Lop3 if is_word => {
            let Operand::Imm(table) = srcs[3] else {
                return Err(unsupported(inst, "lop3 with a truth table that is not a constant"));
            };
            truth_table(f, srcs, table)
        }
        _ => return Err(unsupported(inst, format!("{op:?} on {}", ty.name()))),
    };
    f.write(dst, ty, value);
    Ok(())
}

fn count(f: &mut FunctionText<'_>, op: AluOp, ty: Type, a: &str) -> Value {
    let (t, n) = (llvm(ty), bits(ty));
    let mut a = a.to_owned();
    if op == AluOp::Popc {
        let ones = f.call(t, &format!("llvm.ctpop.{t}"), &[format!("{t} {a}")]);
        return f.resize(ones, n, 32, false);
    }
    if op != AluOp::Clz && ty.is_signed() {
        // The highest bit that differs from the sign.
        let sign = f.def(format!("ashr {t} {a}, {}", n - 1));
        a = f.def(format!("xor {t} {a}, {sign}"));
    }
    let zeros = f.call(
        t,
        &format!("llvm.ctlz.{t}"),
        &[format!("{t} {a}"), "i1 false".to_owned()],
    );
    let zeros = f.resize(zeros, n, 32, false);
    if op == AluOp::Clz {
        return zeros;
    }
    let position = if op == AluOp::Bfind {
        f.def(format!("sub i32 {}, {zeros}", n - 1))
    } else {
        zeros
    };
    let none = f.def(format!("icmp eq {t} {a}, 0"));
    f.def(format!("select i1 {none}, i32 -1, i32 {position}"))
}

/// `amount` bits of ones at the bottom of a word of `ty`; all of it from the width on.
fn low_ones(f: &mut FunctionText<'_>, ty: Type, amount: &str) -> Value {
    let (t, n) = (llvm(ty), bits(ty));
    let all = f.def(format!("icmp uge i32 {amount}, {n}"));
    let inside = f.def(format!("and i32 {amount}, {}", n - 1));
    let inside = f.resize(inside, 32, n, false);
    let power = f.def(format!("shl {t} 1, {inside}"));
    let ones = f.def(format!("add {t} {power}, -1"));
    f.def(format!("select i1 {all}, {t} -1, {t} {ones}"))
}

/// `value << amount`, 0 from the width on.
fn shift_left(f: &mut FunctionText<'_>, ty: Type, value: &str, amount: &str) -> Value {
    let (t, n) = (llvm(ty), bits(ty));
    let gone = f.def(format!("icmp uge i32 {amount}, {n}"));
    let inside = f.def(format!("and i32 {amount}, {}", n - 1));
    let inside = f.resize(inside, 32, n, false);
    let shifted = f.def(format!("shl {t} {value}, {inside}"));
    f.def(format!("select i1 {gone}, {t} 0, {t} {shifted}"))
}

/// Position and length. They are defined up to 255; beyond, NVIDIA's devices look at the low eight bits in the 32-bit
/// forms and at all of them in the 64-bit forms.
fn field_bounds(f: &mut FunctionText<'_>, ty: Type, position: Operand, length: Operand) -> (Value, Value) {
    let mut bound = |operand: Operand| {
        let value = f.read(operand, Type::U32);
        if bits(ty) == 64 {
            value
        } else {
            f.def(format!("and i32 {value}, 255"))
        }
    };
    (bound(position), bound(length))
}

fn extract_field(f: &mut FunctionText<'_>, ty: Type, srcs: &[Operand]) -> Value {
    let (t, n) = (llvm(ty), bits(ty));
    let a = f.read(srcs[0], ty);
    let (position, length) = field_bounds(f, ty, srcs[1], srcs[2]);
    let beyond = f.def(format!("icmp ugt i32 {position}, {}", n - 1));
    let clamped = f.def(format!("select i1 {beyond}, i32 {}, i32 {position}", n - 1));
    let clamped = f.resize(clamped, 32, n, false);
    if !ty.is_signed() {
        let moved = f.def(format!("lshr {t} {a}, {clamped}"));
        let moved = f.def(format!("select i1 {beyond}, {t} 0, {t} {moved}"));
        let ones = low_ones(f, ty, &length);
        return f.def(format!("and {t} {moved}, {ones}"));
    }
    // Bits beyond the word are copies of its sign, which the arithmetic shift brings in.
    let moved = f.def(format!("ashr {t} {a}, {clamped}"));
    let whole = f.def(format!("icmp uge i32 {length}, {n}"));
    let empty = f.def(format!("icmp eq i32 {length}, 0"));
    let spare = f.def(format!("sub i32 {n}, {length}"));
    let spare = f.def(format!("and i32 {spare}, {}", n - 1));
    let spare = f.resize(spare, 32, n, false);
    let up = f.def(format!("shl {t} {moved}, {spare}"));
    let down = f.def(format!("ashr {t} {up}, {spare}"));
    let field = f.def(format!("select i1 {whole}, {t} {moved}, {t} {down}"));
    f.def(format!("select i1 {empty}, {t} 0, {t} {field}"))
}

fn insert_field(f: &mut FunctionText<'_>, ty: Type, srcs: &[Operand]) -> Value {
    let t = llvm(ty);
    let (inserted, into) = (f.read(srcs[0], ty), f.read(srcs[1], ty));
    let (position, length) = field_bounds(f, ty, srcs[2], srcs[3]);
    let ones = low_ones(f, ty, &length);
    let mask = shift_left(f, ty, &ones, &position);
    let moved = shift_left(f, ty, &inserted, &position);
    let field = f.def(format!("and {t} {moved}, {mask}"));
    let outside = f.def(format!("xor {t} {mask}, -1"));
    let kept = f.def(format!("and {t} {into}, {outside}"));
    f.def(format!("or {t} {kept}, {field}"))
}

fn funnel(f: &mut FunctionText<'_>, op: AluOp, srcs: &[Operand]) -> Value {
    let (low, high) = (f.read(srcs[0], Type::B32), f.read(srcs[1], Type::B32));
    let amount = f.read(srcs[2], Type::U32);
    let is_left = matches!(op, AluOp::ShfLWrap | AluOp::ShfLClamp);
    let name = if is_left { "llvm.fshl.i32" } else { "llvm.fshr.i32" };
    // Both take the amount modulo 32, as the wrapping forms do.
    let shifted = f.call(
        "i32",
        name,
        &[format!("i32 {high}"), format!("i32 {low}"), format!("i32 {amount}")],
    );
    if matches!(op, AluOp::ShfLWrap | AluOp::ShfRWrap) {
        return shifted;
    }
    let whole = f.def(format!("icmp uge i32 {amount}, 32"));
    let moved_in = if is_left { low } else { high };
    f.def(format!("select i1 {whole}, i32 {moved_in}, i32 {shifted}"))
}

fn mask(f: &mut FunctionText<'_>, op: AluOp, srcs: &[Operand]) -> Value {
    let (mut position, mut length) = (f.read(srcs[0], Type::U32), f.read(srcs[1], Type::U32));
    if op == AluOp::BmskWrap {
        position = f.def(format!("and i32 {position}, 31"));
        length = f.def(format!("and i32 {length}, 31"));
    }
    let ones = low_ones(f, Type::B32, &length);
    shift_left(f, Type::B32, &ones, &position)
}

/// Each nibble of the selector names a byte of `b:a`, its top bit asks for that byte's sign instead.
fn permute(f: &mut FunctionText<'_>, srcs: &[Operand]) -> Value {
    let (a, b) = (f.read(srcs[0], Type::B32), f.read(srcs[1], Type::B32));
    let selector = f.read(srcs[2], Type::B32);
    let low = f.def(format!("zext i32 {a} to i64"));
    let high = f.def(format!("zext i32 {b} to i64"));
    let high = f.def(format!("shl i64 {high}, 32"));
    let bytes = f.def(format!("or i64 {low}, {high}"));
    let mut result = "0".to_owned();
    for i in 0..4 {
        let nibble = f.def(format!("lshr i32 {selector}, {}", i * 4));
        let index = f.def(format!("and i32 {nibble}, 7"));
        let shift = f.def(format!("shl i32 {index}, 3"));
        let shift = f.def(format!("zext i32 {shift} to i64"));
        let byte = f.def(format!("lshr i64 {bytes}, {shift}"));
        let byte = f.def(format!("trunc i64 {byte} to i8"));
        let sign = f.def(format!("ashr i8 {byte}, 7"));
        let wants_sign = f.def(format!("and i32 {nibble}, 8"));
        let wants_sign = f.def(format!("icmp ne i32 {wants_sign}, 0"));
        let byte = f.def(format!("select i1 {wants_sign}, i8 {sign}, i8 {byte}"));
        let wide = f.def(format!("zext i8 {byte} to i32"));
        let placed = f.def(format!("shl i32 {wide}, {}", i * 8));
        result = f.def(format!("or i32 {result}, {placed}"));
    }
    result
}

/// A function of three bits as the exclusive or of products of them (its algebraic normal form): at most seven terms,
/// and the usual tables (`a ^ b ^ c`, `a & b & c`, …) come out as what they are.
fn truth_table(f: &mut FunctionText<'_>, srcs: &[Operand], table: u64) -> Value {
    let inputs: Vec<Value> = srcs[..3].iter().map(|s| f.read(*s, Type::B32)).collect();
    // Bit `i` of the table is the value at a = bit 2, b = bit 1, c = bit 0 of `i`.
    let mut coefficients: [bool; 8] = std::array::from_fn(|i| table >> i & 1 != 0);
    for variable in [1, 2, 4] {
        for i in 0..8 {
            if i & variable != 0 {
                coefficients[i] ^= coefficients[i ^ variable];
            }
        }
    }
    let mut result = if coefficients[0] { "-1" } else { "0" }.to_owned();
    for (i, _) in coefficients.iter().enumerate().skip(1).filter(|(_, wanted)| **wanted) {
        let mut product = "-1".to_owned();
        for (input, bit) in inputs.iter().zip([4, 2, 1]) {
            if i & bit != 0 {
                product = f.def(format!("and i32 {product}, {input}"));
            }
        }
        result = f.def(format!("xor i32 {result}, {product}"));
    }
    result
}

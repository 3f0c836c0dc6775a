//! Integer arithmetic and shifts (PTX ISA, "Integer Arithmetic Instructions", "shl", "shr").

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AluOp, Inst, Modifiers, Operand};
use hetckpt_ir::types::Type;

use super::unsupported;
use crate::emit::function::{FunctionText, Value};
use crate::emit::types::{bits, llvm, widened};
use crate::error::CodegenError;

/// Writes an integer operation.
pub fn write(
    f: &mut FunctionText<'_>,
    inst: &Inst,
    op: AluOp,
    ty: Type,
    mods: Modifiers,
    dst: RegId,
    srcs: &[Operand],
) -> Result<(), CodegenError> {
    let t = llvm(ty);
    let a = f.read(srcs[0], ty);
    let value = match op {
        AluOp::Add | AluOp::Sub => {
            let b = f.read(srcs[1], ty);
            add_or_sub(f, ty, op == AluOp::Sub, mods.sat, &a, &b)
        }
        AluOp::Mul => binary(f, "mul", ty, &a, srcs[1]),
        AluOp::Mad => {
            let product = binary(f, "mul", ty, &a, srcs[1]);
            binary(f, "add", ty, &product, srcs[2])
        }
        AluOp::MulHi => {
            let b = f.read(srcs[1], ty);
            high_product(f, ty, &a, &b)
        }
        AluOp::MadHi => {
            let (b, c) = (f.read(srcs[1], ty), f.read(srcs[2], ty));
            let product = high_product(f, ty, &a, &b);
            add_or_sub(f, ty, false, mods.sat, &product, &c)
        }
        AluOp::MulWide | AluOp::MadWide => {
            let wide = widened(ty).ok_or_else(|| unsupported(inst, format!("{op:?} on {}", ty.name())))?;
            let b = f.read(srcs[1], ty);
            let (a, b) = (
                f.resize(a, bits(ty), bits(wide), ty.is_signed()),
                f.resize(b, bits(ty), bits(wide), ty.is_signed()),
            );
            let flags = if ty.is_signed() { "nsw" } else { "nuw" };
            let mut value = f.def(format!("mul {flags} {} {a}, {b}", llvm(wide)));
            if op == AluOp::MadWide {
                value = binary(f, "add", wide, &value, srcs[2]);
            }
            f.write(dst, wide, value);
            return Ok(());
        }
        AluOp::Div | AluOp::Rem => {
            let b = f.read(srcs[1], ty);
            divide(f, ty, op == AluOp::Rem, &a, &b)
        }
        AluOp::Min | AluOp::Max => {
            let b = f.read(srcs[1], ty);
            min_or_max(f, ty, op == AluOp::Max, &a, &b)
        }
        AluOp::Abs => f.call(
            t,
            &format!("llvm.abs.{t}"),
            &[format!("{t} {a}"), "i1 false".to_owned()],
        ),
        AluOp::Neg => f.def(format!("sub {t} 0, {a}")),
        AluOp::Sad => {
            let b = f.read(srcs[1], ty);
            let (high, low) = (min_or_max(f, ty, true, &a, &b), min_or_max(f, ty, false, &a, &b));
            let distance = f.def(format!("sub {t} {high}, {low}"));
            binary(f, "add", ty, &distance, srcs[2])
        }
        AluOp::Cnot => {
            let zero = f.def(format!("icmp eq {t} {a}, 0"));
            f.def(format!("zext i1 {zero} to {t}"))
        }
        AluOp::Shl | AluOp::Shr => {
            let amount = f.read(srcs[1], Type::U32);
            shift(f, ty, op == AluOp::Shr, &a, &amount)
        }
        _ => return Err(unsupported(inst, format!("{op:?} on {}", ty.name()))),
    };
    f.write(dst, ty, value);
    Ok(())
}

fn binary(f: &mut FunctionText<'_>, name: &str, ty: Type, a: &str, b: Operand) -> Value {
    let b = f.read(b, ty);
    f.def(format!("{name} {} {a}, {b}", llvm(ty)))
}

fn add_or_sub(f: &mut FunctionText<'_>, ty: Type, is_sub: bool, sat: bool, a: &str, b: &str) -> Value {
    let t = llvm(ty);
    let name = if is_sub { "sub" } else { "add" };
    if sat {
        let sign = if ty.is_signed() { 's' } else { 'u' };
        return f.call(
            t,
            &format!("llvm.{sign}{name}.sat.{t}"),
            &[format!("{t} {a}"), format!("{t} {b}")],
        );
    }
    f.def(format!("{name} {t} {a}, {b}"))
}

fn high_product(f: &mut FunctionText<'_>, ty: Type, a: &str, b: &str) -> Value {
    let n = bits(ty);
    let wide = format!("i{}", n * 2);
    let extend = if ty.is_signed() { "sext" } else { "zext" };
    let a = f.def(format!("{extend} {} {a} to {wide}", llvm(ty)));
    let b = f.def(format!("{extend} {} {b} to {wide}", llvm(ty)));
    let product = f.def(format!("mul {wide} {a}, {b}"));
    let high = f.def(format!("lshr {wide} {product}, {n}"));
    f.def(format!("trunc {wide} {high} to {}", llvm(ty)))
}

/// PTX leaves division by zero unspecified but does not trap, unlike the processor; the same holds for the one signed
/// quotient that overflows. As on NVIDIA's hardware, both quotient
/// and remainder by zero are all ones.
fn divide(f: &mut FunctionText<'_>, ty: Type, is_rem: bool, a: &str, b: &str) -> Value {
    let t = llvm(ty);
    let by_zero = f.def(format!("icmp eq {t} {b}, 0"));
    let sign = if ty.is_signed() { 's' } else { 'u' };
    let name = if is_rem { "rem" } else { "div" };
    if !ty.is_signed() {
        let safe = f.def(format!("select i1 {by_zero}, {t} 1, {t} {b}"));
        let result = f.def(format!("{sign}{name} {t} {a}, {safe}"));
        return f.def(format!("select i1 {by_zero}, {t} -1, {t} {result}"));
    }
    let by_minus_one = f.def(format!("icmp eq {t} {b}, -1"));
    let special = f.def(format!("or i1 {by_zero}, {by_minus_one}"));
    let safe = f.def(format!("select i1 {special}, {t} 1, {t} {b}"));
    let result = f.def(format!("{sign}{name} {t} {a}, {safe}"));
    let negated = if is_rem {
        "0".to_owned()
    } else {
        f.def(format!("sub {t} 0, {a}"))
    };
    let result = f.def(format!("select i1 {by_minus_one}, {t} {negated}, {t} {result}"));
    f.def(format!("select i1 {by_zero}, {t} -1, {t} {result}"))
}

fn min_or_max(f: &mut FunctionText<'_>, ty: Type, is_max: bool, a: &str, b: &str) -> Value {
    let t = llvm(ty);
    let sign = if ty.is_signed() { 's' } else { 'u' };
    let name = if is_max { "max" } else { "min" };
    f.call(
        t,
        &format!("llvm.{sign}{name}.{t}"),
        &[format!("{t} {a}"), format!("{t} {b}")],
    )
}

/// Amounts are 32 bits and clamp at the width; LLVM's are as wide as the value and must be below it.
fn shift(f: &mut FunctionText<'_>, ty: Type, is_right: bool, a: &str, amount: &str) -> Value {
    let (t, n) = (llvm(ty), bits(ty));
    let too_far = f.def(format!("icmp ugt i32 {amount}, {}", n - 1));
    if is_right && ty.is_signed() {
        let clamped = f.def(format!("select i1 {too_far}, i32 {}, i32 {amount}", n - 1));
        let amount = f.resize(clamped, 32, n, false);
        return f.def(format!("ashr {t} {a}, {amount}"));
    }
    let inside = f.def(format!("and i32 {amount}, {}", n - 1));
    let inside = f.resize(inside, 32, n, false);
    let name = if is_right { "lshr" } else { "shl" };
    let shifted = f.def(format!("{name} {t} {a}, {inside}"));
    f.def(format!("select i1 {too_far}, {t} 0, {t} {shifted}"))
}

//! Floating-point arithmetic (PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions").
//!
//! No fast-math flag is ever set, so LLVM contracts, reorders and approximates nothing: only `fma` is fused. The
//! `.approx` functions are computed by the C library or the processor, to better than PTX's error bounds
//! ([`super::approx`] has those that are something else on GPUs). What is not a number gets the GPU's form as
//! [`crate::emit::float_facts`] says; double precision has the processor's, which is the GPU's too.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AluOp, Inst, Modifiers, Operand, Rounding};
use hetckpt_ir::types::Type;

use super::flush::{SMALLEST_SINGLE, flush, read_flushed, zero_if};
use super::{approx, half, unsupported};
use crate::emit::directed;
use crate::emit::function::{FunctionText, Value, constant, unary};
use crate::emit::types::{llvm, suffix};
use crate::error::CodegenError;

/// Writes a floating-point operation.
pub fn write(
    f: &mut FunctionText<'_>,
    inst: &Inst,
    op: AluOp,
    ty: Type,
    mods: Modifiers,
    dst: RegId,
    srcs: &[Operand],
) -> Result<(), CodegenError> {
    if op == AluOp::Copysign {
        return copysign(f, ty, dst, srcs);
    }
    let args: Vec<Value> = srcs.iter().map(|src| read_flushed(f, *src, ty, mods.ftz)).collect();
    let element = match ty {
        Type::Bf16x2 => Some(Type::Bf16),
        // Vectors of `half` are LLVM's, except where their results are not PTX's.
        Type::F16x2 if op == AluOp::Fma || (op == AluOp::Mul && mods.ftz) => Some(Type::F16),
        _ => None,
    };
    let value = match element {
        Some(element) => element_wise(f, inst, op, ty, element, mods, &args)?,
        None => scalar(f, inst, op, ty, mods, &args)?,
    };
    match ty {
        Type::F32 if op == AluOp::Sqrt => {
            let value = f.settle_root(&value);
            f.write_result(dst, value);
        }
        Type::F32 => f.write_result(dst, value),
        Type::F64 => f.write(dst, ty, value),
        _ => {
            let value = half::settle(f, ty, value);
            f.write(dst, ty, value);
        }
    }
    Ok(())
}

/// PTX: the sign of the first operand, the magnitude of the second. Bits, whatever they mean.
fn copysign(f: &mut FunctionText<'_>, ty: Type, dst: RegId, srcs: &[Operand]) -> Result<(), CodegenError> {
    let t = llvm(ty);
    let (sign, magnitude) = (f.read_bits(srcs[0], ty), f.read_bits(srcs[1], ty));
    let name = format!("llvm.copysign.{}", suffix(ty));
    let value = f.call(t, &name, &[format!("{t} {magnitude}"), format!("{t} {sign}")]);
    f.write(dst, ty, value);
    Ok(())
}

fn element_wise(
    f: &mut FunctionText<'_>,
    inst: &Inst,
    op: AluOp,
    ty: Type,
    element: Type,
    mods: Modifiers,
    args: &[Value],
) -> Result<Value, CodegenError> {
    let (t, e) = (llvm(ty), llvm(element));
    let mut result = "poison".to_owned();
    for i in 0..2 {
        let parts: Vec<Value> = args
            .iter()
            .map(|a| f.def(format!("extractelement {t} {a}, i32 {i}")))
            .collect();
        let part = scalar(f, inst, op, element, mods, &parts)?;
        result = f.def(format!("insertelement {t} {result}, {e} {part}, i32 {i}"));
    }
    Ok(result)
}

fn scalar(
    f: &mut FunctionText<'_>,
    inst: &Inst,
    op: AluOp,
    ty: Type,
    mods: Modifiers,
    args: &[Value],
) -> Result<Value, CodegenError> {
    if op == AluOp::Fma && matches!(ty, Type::F16 | Type::Bf16) {
        let value = half::fma(f, ty, args, mods.ftz);
        return Ok(if mods.sat { saturate(f, ty, value) } else { value });
    }
    if mods.approx
        && let Some(value) = approx::write(f, op, ty, mods, args)
    {
        return Ok(value);
    }
    if ty == Type::Bf16 {
        match op {
            AluOp::Abs => return Ok(f.def(format!("and i16 {}, 32767", args[0]))),
            AluOp::Neg => return Ok(f.def(format!("xor i16 {}, -32768", args[0]))),
            _ => {}
        }
        // One rounding to 24 bits and one to 8 are as good as one for these operations.
        let wide: Vec<Value> = args.iter().map(|a| half::widen_bf16(f, a)).collect();
        let value = operation(f, inst, op, Type::F32, mods, &wide)?;
        let value = if mods.sat { saturate(f, Type::F32, value) } else { value };
        return Ok(half::narrow_bf16(f, &value, None));
    }
    let value = operation(f, inst, op, ty, mods, args)?;
    let value = if mods.ftz {
        flush_result(f, op, ty, mods, args, value)
    } else {
        value
    };
    Ok(if mods.sat { saturate(f, ty, value) } else { value })
}

/// `.ftz` on a result, which the GPU judges rounded to its precision, but not yet to the bits that a subnormal number
/// has: processors bring up to the smallest normal number what is less than that. Sums alone are exact there, and need
/// no such care.
fn flush_result(f: &mut FunctionText<'_>, op: AluOp, ty: Type, mods: Modifiers, args: &[Value], value: Value) -> Value {
    match (op, ty) {
        // Results of flushed operands.
        (AluOp::Min | AluOp::Max | AluOp::Abs | AluOp::Neg, _) => value,
        // Nothing is brought up.
        _ if matches!(mods.rounding, Some(Rounding::Rz)) => flush(f, ty, value),
        (AluOp::Mul, Type::F16) => {
            let wide: Vec<Value> = args.iter().map(|a| half::widen(f, ty, a)).collect();
            // Exact.
            let product = f.def(format!("fmul float {}, {}", wide[0], wide[1]));
            half::flush_if_tiny(f, ty, &product, value)
        }
        (AluOp::Mul, Type::F32) => {
            let a = scaled(f, &args[0]);
            let product = rounded(f, "fmul", ty, mods, &[a, args[1].clone()]);
            zero_if_scaled_is_tiny(f, &product, value)
        }
        (AluOp::Fma, Type::F32) => {
            let (a, c) = (scaled(f, &args[0]), scaled(f, &args[2]));
            let sum = rounded(f, "fma", ty, mods, &[a, args[1].clone(), c]);
            zero_if_scaled_is_tiny(f, &sum, value)
        }
        (AluOp::Div, Type::F32) if !mods.approx && !mods.full => flush_quotient(f, &args[0], &args[1], value),
        // To nearest, there is a number between a reciprocal and the smallest normal number.
        (AluOp::Rcp, Type::F32) if directed::mode(mods.rounding).is_some() => {
            flush_quotient(f, &one(ty), &args[0], value)
        }
        _ => flush(f, ty, value),
    }
}

/// `.ftz` on `a / b`, whose precision never brings it up to the smallest normal number: in it, the number next to that
/// is no less than any quotient below it.
fn flush_quotient(f: &mut FunctionText<'_>, a: &str, b: &str, value: Value) -> Value {
    let ty = Type::F32;
    // |a| - |b| * smallest, whose last bit is that of a subnormal number.
    let (a, b) = (unary(f, "fabs", ty, a), unary(f, "fabs", ty, b));
    let typed = [b, constant(SMALLEST_SINGLE | 1 << 31, ty), a].map(|t| format!("float {t}"));
    let difference = f.call("float", "llvm.fma.f32", &typed);
    let is_tiny = f.def(format!("fcmp olt float {difference}, 0.0"));
    zero_if(f, ty, &is_tiny, value)
}

/// An operand in a range where numbers as small as subnormal ones have full precision. Where it overflows there,
/// products with it and sums of those are not that small, or zero.
fn scaled(f: &mut FunctionText<'_>, operand: &str) -> Value {
    f.def(format!("fmul float {operand}, {}", constant(SCALE, Type::F32)))
}

/// `value`, or zero with its sign if the same in that range is less than the smallest normal number.
fn zero_if_scaled_is_tiny(f: &mut FunctionText<'_>, scaled: &str, value: Value) -> Value {
    let ty = Type::F32;
    let magnitude = unary(f, "fabs", ty, scaled);
    let is_tiny = f.def(format!("fcmp olt float {magnitude}, {}", constant(SCALED_SMALLEST, ty)));
    zero_if(f, ty, &is_tiny, value)
}

/// Bits of 2^60, and of 2^60 times the smallest normal number.
const SCALE: u64 = 0x5d80_0000;
const SCALED_SMALLEST: u64 = 0x1e80_0000;
fn operation(
    f: &mut FunctionText<'_>,
    inst: &Inst,
    op: AluOp,
    ty: Type,
    mods: Modifiers,
    args: &[Value],
) -> Result<Value, CodegenError> {
    let t = llvm(ty);
    let one = one(ty);
    let arg = |i: usize| args[i].clone();
    Ok(match op {
        AluOp::Add => rounded(f, "fadd", ty, mods, &[arg(0), arg(1)]),
        AluOp::Sub => rounded(f, "fsub", ty, mods, &[arg(0), arg(1)]),
        AluOp::Mul => rounded(f, "fmul", ty, mods, &[arg(0), arg(1)]),
        AluOp::Div => rounded(f, "fdiv", ty, mods, &[arg(0), arg(1)]),
        AluOp::Rcp => rounded(f, "fdiv", ty, mods, &[one, arg(0)]),
        AluOp::Fma => rounded(f, "fma", ty, mods, args),
        AluOp::Sqrt => rounded(f, "sqrt", ty, mods, args),
        AluOp::Rsqrt => {
            let root = unary(f, "sqrt", ty, &args[0]);
            f.def(format!("fdiv {t} {one}, {root}"))
        }
        AluOp::Min => numeric_extreme(f, ty, false, &args[0], &args[1]),
        AluOp::Max => numeric_extreme(f, ty, true, &args[0], &args[1]),
        AluOp::Abs => unary(f, "fabs", ty, &args[0]),
        AluOp::Neg => f.def(format!("fneg {t} {}", args[0])),
        AluOp::Sin | AluOp::Cos | AluOp::Lg2 | AluOp::Ex2 | AluOp::Tanh => {
            transcendental(f, op, ty, &args[0]).ok_or_else(|| unsupported(inst, format!("{op:?} on {}", ty.name())))?
        }
        _ => return Err(unsupported(inst, format!("{op:?} on {}", ty.name()))),
    })
}

/// 1.0 in each element.
fn one(ty: Type) -> Value {
    match ty {
        Type::F16 => constant(0x3c00, ty),
        Type::F16x2 => constant(0x3c00_3c00, ty),
        Type::Bf16 => constant(0x3f80, ty),
        Type::Bf16x2 => constant(0x3f80_3f80, ty),
        Type::F32 => constant(0x3f80_0000, ty),
        _ => constant(0x3ff0_0000_0000_0000, ty),
    }
}

/// An operation that exists as an LLVM instruction or intrinsic and, under directed rounding, in constrained form.
fn rounded(f: &mut FunctionText<'_>, name: &str, ty: Type, mods: Modifiers, args: &[Value]) -> Value {
    let t = llvm(ty);
    if let Some(rounding) = directed::mode(mods.rounding) {
        let typed: Vec<(&str, Value)> = args.iter().map(|a| (t, a.clone())).collect();
        return directed::call(f, name, suffix(ty), rounding, t, &typed);
    }
    if matches!(name, "fma" | "sqrt") {
        let typed: Vec<String> = args.iter().map(|a| format!("{t} {a}")).collect();
        return f.call(t, &format!("llvm.{name}.{}", suffix(ty)), &typed);
    }
    f.def(format!("{name} {t} {}, {}", args[0], args[1]))
}

/// The smaller or larger; a number wins over NaN, and -0 is below +0.
fn numeric_extreme(f: &mut FunctionText<'_>, ty: Type, is_max: bool, a: &str, b: &str) -> Value {
    let name = if is_max { "maximumnum" } else { "minimumnum" };
    let t = llvm(ty);
    f.call(
        t,
        &format!("llvm.{name}.{}", suffix(ty)),
        &[format!("{t} {a}"), format!("{t} {b}")],
    )
}

fn transcendental(f: &mut FunctionText<'_>, op: AluOp, ty: Type, a: &str) -> Option<Value> {
    let name = match op {
        AluOp::Sin => "sin",
        AluOp::Cos => "cos",
        AluOp::Lg2 => "log2",
        AluOp::Ex2 => "exp2",
        _ => "tanh",
    };
    match ty {
        Type::F32 | Type::F64 => Some(unary(f, name, ty, a)),
        Type::F16 | Type::Bf16 => {
            let wide = half::widen(f, ty, a);
            let value = unary(f, name, Type::F32, &wide);
            Some(half::narrow(f, ty, &value))
        }
        Type::F16x2 => {
            let element = Type::F16;
            let mut result = "poison".to_owned();
            for i in 0..2 {
                let part = f.def(format!("extractelement {} {a}, i32 {i}", llvm(ty)));
                let part = transcendental(f, op, element, &part)?;
                result = f.def(format!(
                    "insertelement {} {result}, {} {part}, i32 {i}",
                    llvm(ty),
                    llvm(element)
                ));
            }
            Some(result)
        }
        _ => None,
    }
}

/// `.sat`: clamped to [0, 1]; NaN becomes 0.
pub fn saturate(f: &mut FunctionText<'_>, ty: Type, value: Value) -> Value {
    if ty == Type::Bf16 {
        let wide = half::widen_bf16(f, &value);
        let clamped = saturate(f, Type::F32, wide);
        return half::narrow_bf16(f, &clamped, None);
    }
    let at_least_zero = numeric_extreme(f, ty, true, &value, &constant(0, ty));
    numeric_extreme(f, ty, false, &at_least_zero, &one(ty))
}

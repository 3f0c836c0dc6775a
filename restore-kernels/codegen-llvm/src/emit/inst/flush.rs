//! `.ftz`: subnormals become zero (PTX ISA, "Floating Point Instructions").

use hetckpt_ir::inst::Operand;
use hetckpt_ir::types::Type;

use crate::emit::function::{FunctionText, Value, constant, unary};
use crate::emit::types::{llvm, suffix};

/// Bits of 2^-126, the smallest normal number of single precision.
pub const SMALLEST_SINGLE: u64 = 0x0080_0000;

/// An operand, flushed if `ftz` says so and it may need it.
pub fn read_flushed(f: &mut FunctionText<'_>, operand: Operand, ty: Type, ftz: bool) -> Value {
    let value = f.read(operand, ty);
    if !ftz || (ty == Type::F32 && f.facts.never_subnormal(operand)) {
        value
    } else {
        flush(f, ty, value)
    }
}

/// `.ftz`: a subnormal becomes zero of the same sign. Single and half precision have it, in conversions the former
/// alone.
pub fn flush(f: &mut FunctionText<'_>, ty: Type, value: Value) -> Value {
    let smallest = match ty {
        Type::F32 => SMALLEST_SINGLE,
        Type::F16 => 0x0400,
        Type::F16x2 => 0x0400_0400,
        _ => return value,
    };
    let magnitude = unary(f, "fabs", ty, &value);
    let is_tiny = f.def(format!("fcmp olt {} {magnitude}, {}", llvm(ty), constant(smallest, ty)));
    zero_if(f, ty, &is_tiny, value)
}

/// Zero with the sign of `value`, or `value`.
pub fn zero_if(f: &mut FunctionText<'_>, ty: Type, condition: &str, value: Value) -> Value {
    let t = llvm(ty);
    let kind = if ty == Type::F16x2 { "<2 x i1>" } else { "i1" };
    let zero = f.call(
        t,
        &format!("llvm.copysign.{}", suffix(ty)),
        &[format!("{t} {}", constant(0, ty)), format!("{t} {value}")],
    );
    f.def(format!("select {kind} {condition}, {t} {zero}, {t} {value}"))
}

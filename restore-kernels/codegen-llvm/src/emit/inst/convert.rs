//! Conversions, and words taken apart and put together (PTX ISA, "cvt", "mov").

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Inst, Modifiers, Op, Operand, Rounding};
use hetckpt_ir::types::Type;

use super::float::saturate;
use super::flush::{flush, read_flushed};
use super::{half, unsupported};
use crate::emit::directed;
use crate::emit::function::{FunctionText, Value};
use crate::emit::types::{bits, int, int_of_bits, llvm, suffix};
use crate::error::CodegenError;

/// Writes an [`Op::Cvt`].
pub fn cvt(f: &mut FunctionText<'_>, inst: &Inst) -> Result<(), CodegenError> {
    let Op::Cvt {
        dst_ty,
        src_ty,
        mods,
        dst,
        src,
    } = &inst.op
    else {
        return Err(unsupported(inst, "a conversion"));
    };
    let (to, from, mods) = (*dst_ty, *src_ty, *mods);
    let is_scalar = |ty: Type| !matches!(ty, Type::Pred | Type::F16x2 | Type::Bf16x2);
    if !is_scalar(to) || !is_scalar(from) {
        return Err(unsupported(inst, format!("cvt.{}.{}", to.name(), from.name())));
    }
    let value = match (from, to) {
        // What is not a number keeps its bits, which flushing forgets.
        (Type::F32, Type::F64) if !mods.ftz => f.read_bits(*src, from),
        (Type::F32, Type::F64) => {
            let value = read_flushed(f, *src, from, true);
            f.settle(&value)
        }
        // Between numbers single precision alone has `.ftz`.
        _ => read_flushed(f, *src, from, mods.ftz && (from == Type::F32 || !to.is_float())),
    };
    let value = match (from.is_float(), to.is_float()) {
        (false, false) => int_to_int(f, to, from, mods.sat, value),
        (false, true) => {
            let value = match to {
                Type::Bf16 => int_to_bf16(f, from, mods.rounding, &value),
                _ => int_to_float(f, to, from, mods, &value),
            };
            if mods.sat { saturate(f, to, value) } else { value }
        }
        (true, false) => float_to_int(f, to, from, mods, value),
        (true, true) => float_to_float(f, to, from, mods, value),
    };
    match (to, from) {
        // These carry what is not a number over; all others make the GPU's own of it.
        (Type::F32, Type::F64 | Type::Bf16) | (_, Type::F64) => f.write(*dst, to, value),
        (Type::F32, _) => f.write_result(*dst, value),
        (Type::F16 | Type::Bf16, _) if from.is_float() => {
            let value = half::settle(f, to, value);
            f.write(*dst, to, value);
        }
        _ => f.write(*dst, to, value),
    }
    Ok(())
}

/// With `.sat` clamped to the result's range. A wider register gets the result extended by `write`.
fn int_to_int(f: &mut FunctionText<'_>, to: Type, from: Type, sat: bool, value: Value) -> Value {
    if !sat {
        return f.resize(value, bits(from), bits(to), from.is_signed());
    }
    // Both ranges fit into 128 bits with room for the sign.
    let wide = if from.is_signed() { "sext" } else { "zext" };
    let mut value = f.def(format!("{wide} {} {value} to i128", int(from)));
    let (low, high) = if to.is_signed() {
        (-(1i128 << (bits(to) - 1)), (1i128 << (bits(to) - 1)) - 1)
    } else {
        (0, (1i128 << bits(to)) - 1)
    };
    for (name, bound) in [("smax", low), ("smin", high)] {
        value = f.call(
            "i128",
            &format!("llvm.{name}.i128"),
            &[format!("i128 {value}"), format!("i128 {bound}")],
        );
    }
    f.def(format!("trunc i128 {value} to {}", int(to)))
}

fn int_to_float(f: &mut FunctionText<'_>, to: Type, from: Type, mods: Modifiers, value: &str) -> Value {
    let name = if from.is_signed() { "sitofp" } else { "uitofp" };
    if let Some(rounding) = directed::mode(mods.rounding) {
        let overload = format!("{}.{}", suffix(to), llvm(from));
        return directed::call(
            f,
            name,
            &overload,
            rounding,
            llvm(to),
            &[(llvm(from), value.to_owned())],
        );
    }
    f.def(format!("{name} {} {value} to {}", llvm(from), llvm(to)))
}

/// By way of longer formats with an odd last bit where they are not exact: LLVM's own is a call to a function that is
/// not there.
fn int_to_bf16(f: &mut FunctionText<'_>, from: Type, rounding: Option<Rounding>, value: &str) -> Value {
    let to_zero = Modifiers {
        rounding: Some(Rounding::Rz),
        ..Modifiers::default()
    };
    let near = int_to_float(f, Type::F64, from, to_zero, value);
    let name = if from.is_signed() { "fptosi" } else { "fptoui" };
    let t = llvm(from);
    let back = f.def(format!("{name} double {near} to {t}"));
    let is_inexact = f.def(format!("icmp ne {t} {back}, {value}"));
    let last = f.def(format!("zext i1 {is_inexact} to i64"));
    let bits = f.def(format!("bitcast double {near} to i64"));
    let odd = f.def(format!("or i64 {bits}, {last}"));
    let odd = f.def(format!("bitcast i64 {odd} to double"));
    let single = half::double_to_odd_float(f, &odd);
    half::narrow_bf16(f, &single, rounding)
}

fn round_to_integral(f: &mut FunctionText<'_>, ty: Type, rounding: Rounding, value: &str) -> Value {
    if ty == Type::Bf16 {
        // Exact in both directions: what has a fraction has fewer bits before the point than `bf16` keeps.
        let single = half::widen_bf16(f, value);
        let rounded = round_to_integral(f, Type::F32, rounding, &single);
        return half::narrow_bf16(f, &rounded, None);
    }
    let name = match rounding {
        Rounding::Rz | Rounding::Rzi => "trunc",
        Rounding::Rm | Rounding::Rmi => "floor",
        Rounding::Rp | Rounding::Rpi => "ceil",
        Rounding::Rn | Rounding::Rni => "roundeven",
        Rounding::Rna => "round",
    };
    f.call(
        llvm(ty),
        &format!("llvm.{name}.{}", suffix(ty)),
        &[format!("{} {value}", llvm(ty))],
    )
}

/// Always clamped to the result's range (PTX ISA, "cvt": "float-to-integer conversions"). NaN gives 0, but the top bit
/// alone where the source is f64 or the result has 64 bits.
fn float_to_int(f: &mut FunctionText<'_>, to: Type, from: Type, mods: Modifiers, value: Value) -> Value {
    let (from, value) = match from {
        Type::Bf16 => (Type::F32, half::widen_bf16(f, &value)),
        _ => (from, value),
    };
    let rounded = match mods.rounding.unwrap_or(Rounding::Rzi) {
        Rounding::Rz | Rounding::Rzi => value.clone(),
        other => round_to_integral(f, from, other, &value),
    };
    // Exact. From `half`, LLVM 22 makes -32768 of NaN on processors with AVX512-FP16.
    let (source, rounded) = match from {
        Type::F16 => (Type::F32, f.def(format!("fpext half {rounded} to float"))),
        _ => (from, rounded),
    };
    let name = if to.is_signed() { "fptosi" } else { "fptoui" };
    let result = f.call(
        int(to),
        &format!("llvm.{name}.sat.{}.{}", int(to), suffix(source)),
        &[format!("{} {rounded}", llvm(source))],
    );
    if from != Type::F64 && bits(to) != 64 {
        return result;
    }
    let is_nan = f.def(format!("fcmp uno {t} {value}, {value}", t = llvm(from)));
    let top_bit = 1u64 << (bits(to) - 1);
    f.def(format!("select i1 {is_nan}, {t} {top_bit}, {t} {result}", t = int(to)))
}

fn float_to_float(f: &mut FunctionText<'_>, to: Type, from: Type, mods: Modifiers, value: Value) -> Value {
    let flushes = |ty: Type| mods.ftz && ty == Type::F32;
    let value = match bits(from).cmp(&bits(to)) {
        _ if from == to => match mods.rounding {
            Some(rounding) => round_to_integral(f, from, rounding, &value),
            None => value,
        },
        std::cmp::Ordering::Less if from == Type::Bf16 => {
            let single = half::widen_bf16(f, &value);
            if to == Type::F32 {
                single
            } else {
                f.def(format!("fpext float {single} to {}", llvm(to)))
            }
        }
        std::cmp::Ordering::Less => f.def(format!("fpext {} {value} to {}", llvm(from), llvm(to))),
        // Between the two 16-bit formats, by way of single precision.
        std::cmp::Ordering::Equal => {
            let single = half::widen(f, from, &value);
            narrow_float(f, to, mods, single)
        }
        std::cmp::Ordering::Greater if to == Type::F32 => round_to(f, to, from, mods, value),
        std::cmp::Ordering::Greater => {
            let single = if from == Type::F64 {
                half::double_to_odd_float(f, &value)
            } else {
                value
            };
            narrow_float(f, to, mods, single)
        }
    };
    let value = if flushes(to) { flush(f, to, value) } else { value };
    if mods.sat { saturate(f, to, value) } else { value }
}

/// Single to half precision.
fn narrow_float(f: &mut FunctionText<'_>, to: Type, mods: Modifiers, value: Value) -> Value {
    match directed::mode(mods.rounding) {
        Some(_) if to == Type::Bf16 => half::narrow_bf16(f, &value, mods.rounding),
        Some(_) => round_to(f, to, Type::F32, mods, value),
        None => half::narrow(f, to, &value),
    }
}

fn round_to(f: &mut FunctionText<'_>, to: Type, from: Type, mods: Modifiers, value: Value) -> Value {
    if let Some(rounding) = directed::mode(mods.rounding) {
        let overload = format!("{}.{}", suffix(to), suffix(from));
        return directed::call(f, "fptrunc", &overload, rounding, llvm(to), &[(llvm(from), value)]);
    }
    f.def(format!("fptrunc {} {value} to {}", llvm(from), llvm(to)))
}

/// Writes an [`Op::Pack`].
pub fn pack(f: &mut FunctionText<'_>, inst: &Inst, ty: Type, dst: RegId, srcs: &[Operand]) -> Result<(), CodegenError> {
    let (word, part) = parts(inst, ty, srcs.len())?;
    let t = llvm(word);
    let mut result = "0".to_owned();
    for (i, src) in srcs.iter().enumerate() {
        let value = f.read(*src, part);
        let wide = f.resize(value, bits(part), bits(word), false);
        let placed = f.def(format!("shl {t} {wide}, {}", i as u32 * bits(part)));
        result = f.def(format!("or {t} {result}, {placed}"));
    }
    f.write(dst, word, result);
    Ok(())
}

/// Writes an [`Op::Unpack`].
pub fn unpack(
    f: &mut FunctionText<'_>,
    inst: &Inst,
    ty: Type,
    dsts: &[Option<RegId>],
    src: Operand,
) -> Result<(), CodegenError> {
    let (word, part) = parts(inst, ty, dsts.len())?;
    let value = f.read(src, word);
    let t = llvm(word);
    for (i, dst) in dsts.iter().enumerate() {
        if let Some(dst) = dst {
            let moved = f.def(format!("lshr {t} {value}, {}", i as u32 * bits(part)));
            let cut = f.def(format!("trunc {t} {moved} to {}", int_of_bits(bits(part))));
            f.write(*dst, part, cut);
        }
    }
    Ok(())
}

/// Types of the word and of each of its `count` parts.
fn parts(inst: &Inst, ty: Type, count: usize) -> Result<(Type, Type), CodegenError> {
    let by_bytes = |bytes: usize| match bytes {
        1 => Some(Type::B8),
        2 => Some(Type::B16),
        4 => Some(Type::B32),
        8 => Some(Type::B64),
        _ => None,
    };
    let size = ty.size_bytes() as usize;
    let part = if count >= 2 && size.is_multiple_of(count) {
        by_bytes(size / count)
    } else {
        None
    };
    match (by_bytes(size), part) {
        (Some(word), Some(part)) => Ok((word, part)),
        _ => Err(unsupported(inst, format!("{count} parts of {}", ty.name()))),
    }
}

//! Half precision (`f16`, `bf16`) by way of single precision, where processors and LLVM do not give PTX's results:
//! their `bf16` instructions flush subnormals, a `f16` fma is done in single precision and so rounded twice, and `f64`
//! to `f16` is a call to a function that not every C library has.
//!
//! Rounding to *odd* in between makes two roundings give what one would: a result that is not exact gets an odd last
//! bit, so that it is never halfway between two shorter numbers (Boldo and Melquiond, "Emulation of FMA and Correctly
//! Rounded Sums: Proved Algorithms Using Rounding to Odd").

use hetckpt_ir::inst::Rounding;
use hetckpt_ir::types::Type;

use super::flush::zero_if;
use crate::emit::function::{FunctionText, Value, constant, unary};
use crate::emit::types::llvm;

/// A `bf16` as `float`; exact.
pub fn widen_bf16(f: &mut FunctionText<'_>, value: &str) -> Value {
    let wide = f.def(format!("zext i16 {value} to i32"));
    let placed = f.def(format!("shl i32 {wide}, 16"));
    f.def(format!("bitcast i32 {placed} to float"))
}

/// A `float` as `bf16`.
pub fn narrow_bf16(f: &mut FunctionText<'_>, value: &str, rounding: Option<Rounding>) -> Value {
    let bits = f.def(format!("bitcast float {value} to i32"));
    // Up to the next number away from zero, or up to where it begins to be nearer.
    let up = f.def(format!("ashr i32 {bits}, 31"));
    let bias = match rounding {
        Some(Rounding::Rz | Rounding::Rzi) => "0".to_owned(),
        Some(Rounding::Rm | Rounding::Rmi) => f.def(format!("and i32 {up}, 65535")),
        Some(Rounding::Rp | Rounding::Rpi) => {
            let up = f.def(format!("xor i32 {up}, -1"));
            f.def(format!("and i32 {up}, 65535"))
        }
        None | Some(Rounding::Rn | Rounding::Rni | Rounding::Rna) => {
            let above = f.def(format!("lshr i32 {bits}, 16"));
            let is_odd = f.def(format!("and i32 {above}, 1"));
            f.def(format!("add i32 {is_odd}, 32767"))
        }
    };
    let rounded = f.def(format!("add i32 {bits}, {bias}"));
    let is_nan = f.def(format!("fcmp uno float {value}, {value}"));
    let kept = f.def(format!("lshr i32 {rounded}, 16"));
    let kept = f.def(format!("select i1 {is_nan}, i32 32767, i32 {kept}"));
    f.def(format!("trunc i32 {kept} to i16"))
}

/// `half` or `bf16` of a `float`, to nearest even.
pub fn narrow(f: &mut FunctionText<'_>, ty: Type, value: &str) -> Value {
    if ty == Type::Bf16 {
        narrow_bf16(f, value, None)
    } else {
        f.def(format!("fptrunc float {value} to half"))
    }
}

/// A `half` or `bf16` as `float`; exact.
pub fn widen(f: &mut FunctionText<'_>, ty: Type, value: &str) -> Value {
    if ty == Type::Bf16 {
        widen_bf16(f, value)
    } else {
        f.def(format!("fpext half {value} to float"))
    }
}

/// `sum + error` (of which `sum` is the rounded value) as `float`, rounded to odd.
fn to_odd(f: &mut FunctionText<'_>, sum: &str, error: Option<&str>) -> Value {
    let near = f.def(format!("fptrunc double {sum} to float"));
    let back = f.def(format!("fpext float {near} to double"));
    let mut rest = f.def(format!("fsub double {sum}, {back}"));
    if let Some(error) = error {
        // Where the first difference is not zero it is larger than the error.
        let is_exact = f.def(format!("fcmp oeq double {rest}, 0.0"));
        rest = f.def(format!("select i1 {is_exact}, double {error}, double {rest}"));
    }
    let bits = f.def(format!("bitcast float {near} to i32"));
    let last = f.def(format!("and i32 {bits}, 1"));
    let is_even = f.def(format!("icmp eq i32 {last}, 0"));
    // The rest is infinite where only the short form overflows, which then becomes its largest number, and NaN where
    // the value itself is no number.
    let magnitude = f.call("double", "llvm.fabs.f64", &[format!("double {rest}")]);
    let is_inexact = f.def(format!("fcmp ogt double {magnitude}, 0.0"));
    let moves = f.def(format!("and i1 {is_inexact}, {is_even}"));
    // Away from zero if the rest has the sign of the rounded value. A value rounded to zero has one as well.
    let rest_bits = f.def(format!("bitcast double {rest} to i64"));
    let value_bits = f.def(format!("bitcast double {back} to i64"));
    let differ = f.def(format!("xor i64 {rest_bits}, {value_bits}"));
    let inward = f.def(format!("icmp slt i64 {differ}, 0"));
    let step = f.def(format!("select i1 {inward}, i32 -1, i32 1"));
    let step = f.def(format!("select i1 {moves}, i32 {step}, i32 0"));
    let odd = f.def(format!("add i32 {bits}, {step}"));
    f.def(format!("bitcast i32 {odd} to float"))
}

/// A `double` as `float` from which it can be rounded to half precision as if at once.
pub fn double_to_odd_float(f: &mut FunctionText<'_>, value: &str) -> Value {
    to_odd(f, value, None)
}

/// What is not a number in the GPU's form: all ones but the sign. For `f16`, `bf16` and their pairs.
pub fn settle(f: &mut FunctionText<'_>, ty: Type, value: Value) -> Value {
    let (t, kind) = match ty {
        Type::F16x2 | Type::Bf16x2 => ("<2 x i16>", "<2 x i1>"),
        _ => ("i16", "i1"),
    };
    let infinity = if matches!(ty, Type::F16 | Type::F16x2) {
        0x7c00
    } else {
        0x7f80
    };
    let all = |word: u32| match t {
        "i16" => word.to_string(),
        _ => format!("<i16 {word}, i16 {word}>"),
    };
    let bits = f.cast_bits(value, llvm(ty), t);
    let magnitude = f.def(format!("and {t} {bits}, {}", all(0x7fff)));
    let is_nan = f.def(format!("icmp ugt {t} {magnitude}, {}", all(infinity)));
    let settled = f.def(format!("select {kind} {is_nan}, {t} {}, {t} {bits}", all(0x7fff)));
    f.cast_bits(settled, t, llvm(ty))
}

/// `.ftz`: zero with the sign of `value` if `exact`, rounded to 11 bits to nearest even, is less than the smallest
/// normal number. `value` is what it was rounded to in fewer bits. Of `f16` only.
pub fn flush_if_tiny(f: &mut FunctionText<'_>, ty: Type, exact: &str, value: Value) -> Value {
    /// 2^-14 without half of the last bit of numbers below it, in single precision. That itself is rounded up.
    const SMALLEST: u64 = 0x387f_f000;
    let magnitude = unary(f, "fabs", Type::F32, exact);
    let is_tiny = f.def(format!("fcmp olt float {magnitude}, {}", constant(SMALLEST, Type::F32)));
    zero_if(f, ty, &is_tiny, value)
}

/// `a * b + c`, rounded once; flushed if `ftz` says so and the type is `f16`.
pub fn fma(f: &mut FunctionText<'_>, ty: Type, args: &[Value], ftz: bool) -> Value {
    let wide: Vec<Value> = args
        .iter()
        .map(|a| {
            let single = widen(f, ty, a);
            f.def(format!("fpext float {single} to double"))
        })
        .collect();
    let product = f.def(format!("fmul double {}, {}", wide[0], wide[1]));
    let sum = f.def(format!("fadd double {product}, {}", wide[2]));
    // Knuth's two-sum: what the addition lost.
    let c_part = f.def(format!("fsub double {sum}, {product}"));
    let product_part = f.def(format!("fsub double {sum}, {c_part}"));
    let c_error = f.def(format!("fsub double {}, {c_part}", wide[2]));
    let product_error = f.def(format!("fsub double {product}, {product_part}"));
    let error = f.def(format!("fadd double {product_error}, {c_error}"));
    let odd = to_odd(f, &sum, Some(&error));
    let value = narrow(f, ty, &odd);
    if ftz && ty == Type::F16 {
        flush_if_tiny(f, ty, &odd, value)
    } else {
        value
    }
}

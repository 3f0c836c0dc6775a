//! The `.approx` forms whose results on NVIDIA's GPUs are not the function's value rounded (PTX ISA, "div", "sin",
//! "cos", "rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64").

use hetckpt_ir::inst::{AluOp, Modifiers};
use hetckpt_ir::types::Type;

use super::flush::{flush, zero_if};
use crate::emit::function::{FunctionText, Value, constant, unary};

/// 1 / 2π in single precision, as a double.
const TURNS: u64 = 0x3fc4_5f30_6000_0000;
/// 2π.
const TAU: u64 = 0x4019_21fb_5444_2d18;
/// 2^126, beyond which reciprocals are subnormal.
const TWO_TO_126: u64 = 0x7e80_0000;
const INFINITY: u64 = 0x7f80_0000;
/// The bits of a double that a single has not, and its smallest normal number.
const LOST_BITS: u64 = (1 << 29) - 1;
const SMALLEST: u64 = 0x3810_0000_0000_0000;

/// Writes the operation on flushed operands, if it is one of these.
pub fn write(f: &mut FunctionText<'_>, op: AluOp, ty: Type, mods: Modifiers, args: &[Value]) -> Option<Value> {
    match (op, ty) {
        (AluOp::Div, Type::F32) => Some(quotient(f, mods, &args[0], &args[1])),
        (AluOp::Sin | AluOp::Cos, Type::F32) => Some(of_turns(f, op, &args[0])),
        (AluOp::Rcp | AluOp::Rsqrt, Type::F64) if mods.ftz => Some(gross(f, op, &args[0])),
        _ => None,
    }
}

/// `a * (1 / b)`, where a reciprocal that is subnormal is zero.
fn quotient(f: &mut FunctionText<'_>, mods: Modifiers, a: &str, b: &str) -> Value {
    let ty = Type::F32;
    let value = f.def(format!("fdiv float {a}, {b}"));
    let zero = f.call(
        "float",
        "llvm.copysign.f32",
        &["float 0.0".to_owned(), format!("float {b}")],
    );
    let of_zero = f.def(format!("fmul float {a}, {zero}"));
    let magnitude = unary(f, "fabs", ty, b);
    let above = f.def(format!("fcmp ogt float {magnitude}, {}", constant(TWO_TO_126, ty)));
    let finite = f.def(format!("fcmp olt float {magnitude}, {}", constant(INFINITY, ty)));
    let is_huge = f.def(format!("and i1 {above}, {finite}"));
    let value = f.def(format!("select i1 {is_huge}, float {of_zero}, float {value}"));
    if mods.ftz { flush(f, ty, value) } else { value }
}

/// Sine or cosine. The GPU makes turns of the argument, rounded to zero, and looks at their fraction. Turns that are
/// subnormal are zero.
fn of_turns(f: &mut FunctionText<'_>, op: AluOp, a: &str) -> Value {
    let wide = f.def(format!("fpext float {a} to double"));
    let turns = f.def(format!("fmul double {wide}, {}", constant(TURNS, Type::F64)));
    let bits = f.def(format!("bitcast double {turns} to i64"));
    let cut = f.def(format!("and i64 {bits}, {}", !LOST_BITS));
    let turns = f.def(format!("bitcast i64 {cut} to double"));
    let whole = unary(f, "roundeven", Type::F64, &turns);
    let fraction = f.def(format!("fsub double {turns}, {whole}"));
    let magnitude = unary(f, "fabs", Type::F64, &fraction);
    // The part of a turn, a quarter at most, that has this sine: there a single is exact enough.
    if op == AluOp::Cos {
        let part = f.def(format!("fsub double 0.25, {magnitude}"));
        return sine(f, &part);
    }
    let to_half = f.def(format!("fsub double 0.5, {magnitude}"));
    let is_beyond = f.def(format!("fcmp olt double {to_half}, {magnitude}"));
    let part = f.def(format!("select i1 {is_beyond}, double {to_half}, double {magnitude}"));
    let size = unary(f, "fabs", Type::F64, &turns);
    let is_tiny = f.def(format!("fcmp olt double {size}, {}", constant(SMALLEST, Type::F64)));
    let part = f.def(format!("select i1 {is_tiny}, double 0.0, double {part}"));
    let sign = f.def(format!("select i1 {is_tiny}, double {wide}, double {fraction}"));
    let part = f.call(
        "double",
        "llvm.copysign.f64",
        &[format!("double {part}"), format!("double {sign}")],
    );
    sine(f, &part)
}

/// Of a part of a turn.
fn sine(f: &mut FunctionText<'_>, part: &str) -> Value {
    let angle = f.def(format!("fmul double {part}, {}", constant(TAU, Type::F64)));
    let angle = f.def(format!("fptrunc double {angle} to float"));
    unary(f, "sin", Type::F32, &angle)
}

/// Reciprocal, or that of the root, of the operand's high word: the result has a high word only.
fn gross(f: &mut FunctionText<'_>, op: AluOp, a: &str) -> Value {
    let a = high_word(f, a, 0);
    let divisor = if op == AluOp::Rcp {
        a
    } else {
        unary(f, "sqrt", Type::F64, &a)
    };
    let value = f.def(format!("fdiv double 1.0, {divisor}"));
    let is_nan = f.def(format!("fcmp uno double {value}, 0.0"));
    let rounded = high_word(f, &value, 1 << 31);
    f.def(format!(
        "select i1 {is_nan}, double {}, double {rounded}",
        constant(0x7ff8 << 48, Type::F64)
    ))
}

/// `value`, flushed, its bits with `more` added and without the low word.
fn high_word(f: &mut FunctionText<'_>, value: &str, more: u64) -> Value {
    let ty = Type::F64;
    let magnitude = unary(f, "fabs", ty, value);
    let is_tiny = f.def(format!(
        "fcmp olt double {magnitude}, {}",
        constant(0x0010_0000_0000_0000, ty)
    ));
    let flushed = zero_if(f, ty, &is_tiny, value.to_owned());
    let bits = f.def(format!("bitcast double {flushed} to i64"));
    let moved = f.def(format!("add i64 {bits}, {more}"));
    let cut = f.def(format!("and i64 {moved}, -4294967296"));
    f.def(format!("bitcast i64 {cut} to double"))
}

//! Arithmetic with a rounding other than to nearest: small functions that switch the processor's rounding and back.
//!
//! They are never inlined and `strictfp`, which is what keeps LLVM from moving or folding operations across the
//! switch. Rejected: correcting a result rounded to nearest by the sign of its error, which needs a case for each
//! operation and fails near overflow and underflow. Directed rounding is rare in kernels; correctness counts here.

use hetckpt_ir::inst::Rounding;

use super::function::{FunctionText, Value};

/// LLVM's number (`llvm.set.rounding`) and name of a directed rounding.
pub fn mode(rounding: Option<Rounding>) -> Option<(u32, &'static str)> {
    match rounding? {
        Rounding::Rz | Rounding::Rzi => Some((0, "round.towardzero")),
        Rounding::Rp | Rounding::Rpi => Some((2, "round.upward")),
        Rounding::Rm | Rounding::Rmi => Some((3, "round.downward")),
        Rounding::Rn | Rounding::Rni | Rounding::Rna => None,
    }
}

/// Calls the constrained form of `operation` (`fadd`, `fma`, `fptrunc`, …) under a directed rounding. `overload` is the
/// intrinsic's type suffix.
pub fn call(
    f: &mut FunctionText<'_>,
    operation: &str,
    overload: &str,
    rounding: (u32, &'static str),
    result: &str,
    args: &[(&str, Value)],
) -> Value {
    let (number, name) = rounding;
    let function = format!("hetckpt_{operation}_{}_{number}", overload.replace('.', "_"));
    let types: Vec<&str> = args.iter().map(|(ty, _)| *ty).collect();
    let params: Vec<String> = types.iter().enumerate().map(|(i, ty)| format!("{ty} %a{i}")).collect();
    let intrinsic = format!("llvm.experimental.constrained.{operation}.{overload}");
    f.declarations.insert(format!(
        "declare {result} @{intrinsic}({}, metadata, metadata)",
        types.join(", ")
    ));
    f.declarations.insert("declare void @llvm.set.rounding(i32)".to_owned());
    f.declarations.insert(format!(
        "define internal {result} @{function}({params}) noinline nounwind strictfp {{
  call void @llvm.set.rounding(i32 {number}) strictfp
  %r = call {result} @{intrinsic}({params}, metadata !\"{name}\", metadata !\"fpexcept.ignore\") strictfp
  call void @llvm.set.rounding(i32 1) strictfp
  ret {result} %r
}}",
        params = params.join(", ")
    ));
    let actual: Vec<String> = args.iter().map(|(ty, value)| format!("{ty} {value}")).collect();
    f.def(format!("call {result} @{function}({})", actual.join(", ")))
}

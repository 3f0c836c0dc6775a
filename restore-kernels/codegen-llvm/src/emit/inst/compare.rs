//! Comparisons (PTX ISA, "setp", "set").

use hetckpt_ir::inst::{BoolOp, Comparison, Inst, Op, Operand};
use hetckpt_ir::types::Type;

use super::flush::read_flushed;
use super::half;
use super::unsupported;
use crate::emit::function::{FunctionText, Value, constant};
use crate::emit::types::llvm;
use crate::error::CodegenError;

/// Writes an [`Op::Setp`].
pub fn setp(f: &mut FunctionText<'_>, inst: &Inst) -> Result<(), CodegenError> {
    let Op::Setp {
        cmp,
        ty,
        ftz,
        dst,
        dst_not,
        a,
        b,
        combine,
    } = &inst.op
    else {
        return Err(unsupported(inst, "a comparison"));
    };
    let holds = compare(f, inst, *cmp, *ty, *ftz, *a, *b)?;
    // Read before anything is written: the predicate may be one of the results.
    let combine = combine.map(|(op, pred, negated)| {
        let pred = f.read_reg(pred, Type::Pred);
        (
            op,
            if negated {
                f.def(format!("xor i1 {pred}, true"))
            } else {
                pred
            },
        )
    });
    let result = |f: &mut FunctionText<'_>, holds: Value| match &combine {
        None => holds,
        Some((BoolOp::And, pred)) => f.def(format!("and i1 {holds}, {pred}")),
        Some((BoolOp::Or, pred)) => f.def(format!("or i1 {holds}, {pred}")),
        Some((BoolOp::Xor, pred)) => f.def(format!("xor i1 {holds}, {pred}")),
    };
    let value = result(f, holds.clone());
    f.write(*dst, Type::Pred, value);
    if let Some(dst_not) = dst_not {
        let fails = f.def(format!("xor i1 {holds}, true"));
        let value = result(f, fails);
        f.write(*dst_not, Type::Pred, value);
    }
    Ok(())
}

/// Writes an [`Op::Set`].
pub fn set(f: &mut FunctionText<'_>, inst: &Inst) -> Result<(), CodegenError> {
    let Op::Set {
        cmp,
        dst_ty,
        ty,
        ftz,
        dst,
        a,
        b,
    } = &inst.op
    else {
        return Err(unsupported(inst, "a comparison"));
    };
    let holds = compare(f, inst, *cmp, *ty, *ftz, *a, *b)?;
    let value = match dst_ty {
        Type::F32 => f.def(format!(
            "select i1 {holds}, float {}, float 0.0",
            constant(0x3f80_0000, Type::F32)
        )),
        Type::U32 | Type::S32 => f.def(format!("sext i1 {holds} to i32")),
        other => return Err(unsupported(inst, format!("set.{}", other.name()))),
    };
    f.write(*dst, *dst_ty, value);
    Ok(())
}

fn compare(
    f: &mut FunctionText<'_>,
    inst: &Inst,
    cmp: Comparison,
    ty: Type,
    ftz: bool,
    a: Operand,
    b: Operand,
) -> Result<Value, CodegenError> {
    if matches!(ty, Type::F16x2 | Type::Bf16x2 | Type::Pred) {
        return Err(unsupported(inst, format!("setp on {}", ty.name())));
    }
    let [mut a, mut b] = [a, b].map(|operand| read_flushed(f, operand, ty, ftz));
    let mut ty = ty;
    if ty == Type::Bf16 {
        ty = Type::F32;
        [a, b] = [a, b].map(|value| half::widen_bf16(f, &value));
    }
    let (kind, name) = if ty.is_float() {
        ("fcmp", float_name(cmp))
    } else {
        ("icmp", int_name(cmp, ty))
    };
    let name = name.ok_or_else(|| unsupported(inst, format!("setp.{cmp:?}.{}", ty.name())))?;
    Ok(f.def(format!("{kind} {name} {} {a}, {b}", llvm(ty))))
}

fn int_name(cmp: Comparison, ty: Type) -> Option<&'static str> {
    let pick = |signed, unsigned| Some(if ty.is_signed() { signed } else { unsigned });
    match cmp {
        Comparison::Eq => Some("eq"),
        Comparison::Ne => Some("ne"),
        Comparison::Lt => pick("slt", "ult"),
        Comparison::Le => pick("sle", "ule"),
        Comparison::Gt => pick("sgt", "ugt"),
        Comparison::Ge => pick("sge", "uge"),
        Comparison::Lo => Some("ult"),
        Comparison::Ls => Some("ule"),
        Comparison::Hi => Some("ugt"),
        Comparison::Hs => Some("uge"),
        _ => None,
    }
}

fn float_name(cmp: Comparison) -> Option<&'static str> {
    Some(match cmp {
        Comparison::Eq => "oeq",
        Comparison::Ne => "one",
        Comparison::Lt => "olt",
        Comparison::Le => "ole",
        Comparison::Gt => "ogt",
        Comparison::Ge => "oge",
        Comparison::Equ => "ueq",
        Comparison::Neu => "une",
        Comparison::Ltu => "ult",
        Comparison::Leu => "ule",
        Comparison::Gtu => "ugt",
        Comparison::Geu => "uge",
        Comparison::Num => "ord",
        Comparison::Nan => "uno",
        _ => return None,
    })
}

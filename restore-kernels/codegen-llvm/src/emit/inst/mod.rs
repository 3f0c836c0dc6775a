//! Instructions, one file per family.

mod alu;
mod integer;
mod bit_field;
mod flush;
mod float;
mod half;
mod approx;
mod convert;
mod compare;
mod memory;
mod atomic;
mod special;

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Guard, Inst, Op};
use hetckpt_ir::types::Type;

use super::float_facts::Form;
use super::function::FunctionText;
use crate::error::CodegenError;

/// Writes one instruction; its guard becomes a branch around it, which LLVM turns into a select where that is better.
pub fn write(f: &mut FunctionText<'_>, inst: &Inst) -> Result<(), CodegenError> {
    let Some(guard) = inst.guard else {
        return write_op(f, inst);
    };
    let (then, after) = (f.label(), f.label());
    branch(f, guard, &then, &after);
    f.begin(&then);
    write_op(f, inst)?;
    f.put(format!("br label %{after}"));
    f.begin(&after);
    Ok(())
}

/// Branches on a guard.
pub fn branch(f: &mut FunctionText<'_>, guard: Guard, taken: &str, not_taken: &str) {
    let pred = f.read_reg(guard.pred, Type::Pred);
    let (yes, no) = if guard.negated {
        (not_taken, taken)
    } else {
        (taken, not_taken)
    };
    f.put(format!("br i1 {pred}, label %{yes}, label %{no}"));
}

fn write_op(f: &mut FunctionText<'_>, inst: &Inst) -> Result<(), CodegenError> {
    match &inst.op {
        Op::Alu {
            op,
            ty,
            mods,
            dst,
            srcs,
        } => alu::write(f, inst, *op, *ty, *mods, *dst, srcs),
        Op::Mov { ty, dst, src } => {
            let ty = as_float(f, *dst, *ty);
            let (value, is_result) = (f.read(*src, ty), f.is_result(*src));
            f.write_copy(*dst, ty, value, &is_result);
            Ok(())
        }
        Op::Pack { ty, dst, srcs } => convert::pack(f, inst, *ty, *dst, srcs),
        Op::Unpack { ty, dsts, src } => convert::unpack(f, inst, *ty, dsts, *src),
        Op::AddrOf { dst, space, addr } => memory::address_of(f, inst, *dst, *space, addr),
        Op::ReadSpecial { dst, special } => {
            special::write(f, *dst, *special);
            Ok(())
        }
        Op::Setp { .. } => compare::setp(f, inst),
        Op::Set { .. } => compare::set(f, inst),
        Op::Selp { ty, dst, a, b, pred } => {
            let ty = as_float(f, *dst, *ty);
            let flags = (f.is_result(*a), f.is_result(*b));
            let (a, b) = (f.read(*a, ty), f.read(*b, ty));
            let pred = f.read_reg(*pred, Type::Pred);
            let is_result = if flags.0 == flags.1 {
                flags.0
            } else {
                f.def(format!("select i1 {pred}, i1 {}, i1 {}", flags.0, flags.1))
            };
            let llvm = super::types::llvm(ty);
            let value = f.def(format!("select i1 {pred}, {llvm} {a}, {llvm} {b}"));
            f.write_copy(*dst, ty, value, &is_result);
            Ok(())
        }
        Op::Cvt { .. } => convert::cvt(f, inst),
        Op::Load { .. } => memory::load(f, inst),
        Op::Store { .. } => memory::store(f, inst),
        Op::Atom { .. } => atomic::write(f, inst),
        Op::Membar { .. } => {
            f.put("fence seq_cst");
            Ok(())
        }
        Op::Nanosleep { duration } => {
            let duration = f.read(*duration, Type::U32);
            f.call("i64", "hetckpt_nanosleep", &[format!("i32 {duration}")]);
            Ok(())
        }
        Op::Warp { .. } => Err(unsupported(inst, "a warp-level operation in the middle of a region")),
        Op::Opaque { text, .. } => Err(CodegenError::Opaque {
            text: text.clone(),
            span: inst.span,
        }),
    }
}

/// The type to copy with: results as what they are, so that nobody looks at their bits.
fn as_float(f: &FunctionText<'_>, dst: RegId, ty: Type) -> Type {
    if f.facts.form(dst) == Form::Bits { ty } else { Type::F32 }
}

/// The error for something without code.
fn unsupported(inst: &Inst, what: impl Into<String>) -> CodegenError {
    CodegenError::Unsupported {
        what: what.into(),
        span: inst.span,
    }
}

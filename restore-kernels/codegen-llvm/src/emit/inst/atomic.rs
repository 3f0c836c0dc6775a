//! Atomic read-modify-write (PTX ISA, "atom", "red"): LLVM's, lock-free; scopes are all the whole process.
//! `atom.add.f32` makes subnormal numbers zero in global memory, and keeps them in shared memory.

use hetckpt_ir::inst::{AtomOp, Inst, Op, Ordering};
use hetckpt_ir::types::{Space, Type};

use super::flush::flush;
use super::memory::{pointer, scopes};
use super::unsupported;
use crate::emit::function::{FunctionText, Value};
use crate::emit::types::{int, llvm};
use crate::error::CodegenError;

/// Writes an [`Op::Atom`].
pub fn write(f: &mut FunctionText<'_>, inst: &Inst) -> Result<(), CodegenError> {
    let Op::Atom {
        op,
        space,
        ty,
        ordering,
        dst,
        addr,
        srcs,
        ..
    } = &inst.op
    else {
        return Err(unsupported(inst, "an atomic operation"));
    };
    let (ty, scopes) = (*ty, scopes(*space));
    let ordering = match ordering {
        Ordering::Acquire => "acquire",
        Ordering::Release => "release",
        Ordering::AcqRel => "acq_rel",
        _ => "monotonic",
    };
    let align = ty.size_bytes();
    let at = pointer(f, inst, *space, addr)?;
    let wanted = if *op == AtomOp::Cas { 2 } else { 1 };
    if srcs.len() != wanted || ty == Type::Pred {
        return Err(unsupported(
            inst,
            format!("atom.{op:?}.{} with {} operands", ty.name(), srcs.len()),
        ));
    }
    if *op == AtomOp::Cas {
        let ty = bits_type(ty);
        let t = llvm(ty);
        let (expected, new) = (f.read(srcs[0], ty), f.read(srcs[1], ty));
        let on_failure = if matches!(ordering, "acquire" | "acq_rel") {
            "acquire"
        } else {
            "monotonic"
        };
        let pair = f.def(format!(
            "cmpxchg ptr {at}, {t} {expected}, {t} {new} {ordering} {on_failure}, align {align}{scopes}"
        ));
        let old = f.def(format!("extractvalue {{ {t}, i1 }} {pair}, 0"));
        if let Some(dst) = dst {
            f.write(*dst, ty, old);
        }
        return Ok(());
    }
    let (name, ty) = match (op, ty.is_float()) {
        (AtomOp::Add, true) => ("fadd", ty),
        (AtomOp::Add, false) => ("add", ty),
        (AtomOp::Min, false) => (if ty.is_signed() { "min" } else { "umin" }, ty),
        (AtomOp::Max, false) => (if ty.is_signed() { "max" } else { "umax" }, ty),
        (AtomOp::And, _) => ("and", bits_type(ty)),
        (AtomOp::Or, _) => ("or", bits_type(ty)),
        (AtomOp::Xor, _) => ("xor", bits_type(ty)),
        (AtomOp::Exch, _) => ("xchg", bits_type(ty)),
        (AtomOp::Inc, false) => ("uinc_wrap", ty),
        (AtomOp::Dec, false) => ("udec_wrap", ty),
        _ => return Err(unsupported(inst, format!("atom.{op:?}.{}", ty.name()))),
    };
    let value = f.read(srcs[0], ty);
    let old = if name == "fadd" && ty == Type::F32 {
        let words = (ordering, scopes);
        add_single(f, &at, value, words, *space != Space::Shared)
    } else {
        f.def(format!(
            "atomicrmw {name} ptr {at}, {} {value} {ordering}, align {align}{scopes}",
            llvm(ty)
        ))
    };
    if let Some(dst) = dst {
        f.write(*dst, ty, old);
    }
    Ok(())
}

/// Adds, as `.ftz` says if `ftz`, tried until no other thread came between; yields what was there, as it was.
fn add_single(
    f: &mut FunctionText<'_>,
    at: &Value,
    value: Value,
    (ordering, scopes): (&str, &str),
    ftz: bool,
) -> Value {
    let flushed = |f: &mut FunctionText<'_>, value: Value| if ftz { flush(f, Type::F32, value) } else { value };
    let value = flushed(f, value);
    let (again, done) = (f.label(), f.label());
    f.put(format!("br label %{again}"));
    f.begin(&again);
    let bits = f.def(format!("load atomic i32, ptr {at} monotonic, align 4{scopes}"));
    let old = f.cast_bits(bits.clone(), "i32", "float");
    let addend = flushed(f, old.clone());
    let sum = f.def(format!("fadd float {addend}, {value}"));
    let sum = flushed(f, sum);
    let sum = f.settle(&sum);
    let new = f.cast_bits(sum, "float", "i32");
    let pair = f.def(format!(
        "cmpxchg ptr {at}, i32 {bits}, i32 {new} {ordering} monotonic, align 4{scopes}"
    ));
    let is_ours = f.def(format!("extractvalue {{ i32, i1 }} {pair}, 1"));
    f.put(format!("br i1 {is_ours}, label %{done}, label %{again}"));
    f.begin(&done);
    old
}

/// The bits of a type, for operations that do not look at what they mean.
fn bits_type(ty: Type) -> Type {
    match int(ty) {
        "i16" => Type::B16,
        "i32" => Type::B32,
        "i64" => Type::B64,
        _ => ty,
    }
}

//! Atomic operations (PTX ISA, "atom", "red").

use hetckpt_ir::inst::{AtomOp, Op, Ordering, Scope};
use hetckpt_ir::types::{Space, Type};

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::lowering::KernelLowering;
use crate::lower::memory;
use crate::lower::modifiers::ModifierList;
use crate::lower::scope::width_of;

const OPERATIONS: [(&str, AtomOp); 10] = [
    ("add", AtomOp::Add),
    ("min", AtomOp::Min),
    ("max", AtomOp::Max),
    ("and", AtomOp::And),
    ("or", AtomOp::Or),
    ("xor", AtomOp::Xor),
    ("exch", AtomOp::Exch),
    ("cas", AtomOp::Cas),
    ("inc", AtomOp::Inc),
    ("dec", AtomOp::Dec),
];

/// PTX ISA, "atom" (`has_result`) and "red".
pub(super) fn atom<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>, has_result: bool) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    list.drop_cache_hints();
    let (space, _) = list.space();
    let ordering = list.ordering().unwrap_or(Ordering::Relaxed);
    let scope = list.scope().unwrap_or(Scope::Gpu);
    let op = list.take_from(&OPERATIONS).ok_or(Reason::Lacks("an operation"))?;
    let ty = list.ty()?;
    list.finish()?;
    check(op, ty)?;
    if !matches!(space, Space::Global | Space::Shared | Space::Generic) {
        return Err(Reason::Modifier("local".to_owned()));
    }
    let (dst, rest) = match (has_result, inst.operands.as_slice()) {
        (true, [dst, rest @ ..]) => (Some(dst), rest),
        (_, rest) => (None, rest),
    };
    let num_srcs = if op == AtomOp::Cas { 2 } else { 1 };
    let [address, srcs @ ..] = rest else {
        return Err(Reason::OperandCount {
            expected: "an address and sources",
            found: inst.operands.len(),
        });
    };
    if srcs.len() != num_srcs {
        return Err(Reason::OperandCount {
            expected: "an address and its sources",
            found: inst.operands.len(),
        });
    }
    let srcs = srcs.iter().map(|s| k.value(s, ty)).collect::<Result<_, _>>()?;
    let (space, addr) = memory::memory_target(k, address, space)?;
    let dst = match dst {
        None | Some(ast::Operand::Name("_", None)) => None,
        Some(dst) => Some(k.result(dst, width_of(ty))?),
    };
    k.emit(Op::Atom {
        op,
        space,
        ty,
        ordering,
        scope,
        dst,
        addr,
        srcs,
    });
    Ok(())
}

/// Types each operation exists for.
fn check(op: AtomOp, ty: Type) -> Result<(), Reason> {
    use Type::{B16, B32, B64, F32, F64, S32, S64, U32, U64};
    let known: &[Type] = match op {
        AtomOp::Add => &[U32, S32, U64, S64, F32, F64],
        AtomOp::Min | AtomOp::Max => &[U32, S32, U64, S64],
        AtomOp::And | AtomOp::Or | AtomOp::Xor | AtomOp::Exch => &[B32, B64],
        AtomOp::Cas => &[B16, B32, B64],
        AtomOp::Inc | AtomOp::Dec => &[U32],
    };
    if known.contains(&ty) {
        Ok(())
    } else {
        Err(Reason::Type(ty.name().to_owned()))
    }
}

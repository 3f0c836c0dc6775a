//! Stores and atomic operations that tell a memory barrier object, or a group, when they are done (PTX ISA, "st.async",
//! "red.async", "cp.reduce.async.bulk"). They are done at once, as asynchronous copies are: see `async_copy`. Shared
//! memory of a cluster is the block's own here, as nothing names another block's.

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::inst::{AluOp, AtomOp, Comparison, Guard, Op, Operand, Ordering, Scope};
use hetckpt_ir::types::{Space, Type, Width};

use crate::ast::{self, Const, Instruction};
use crate::error::Reason;
use crate::lower::arithmetic::scratch;
use crate::lower::atomic::{self, Atom};
use crate::lower::lowering::KernelLowering;
use crate::lower::matrix::address::Start;
use crate::lower::memory::{elements, memory_target};
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;
use crate::lower::scope::width_of;
use crate::lower::{halves, memory_barrier};

/// True for one of these.
pub(super) fn has(inst: &Instruction<'_>) -> bool {
    let is_async = inst.modifiers.contains(&"async");
    is_async && (inst.opcode != "cp" || inst.modifiers.contains(&"reduce"))
}

/// Lowers one of these.
pub(super) fn lower<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let not_taken = k.branch_on_guard();
    match inst.opcode {
        "st" => store(k, inst)?,
        "red" => reduce(k, inst)?,
        _ => reduce_bulk(k, inst)?,
    }
    k.leave_guard(not_taken);
    Ok(())
}

/// The bytes of what is stored have come.
fn complete<'a>(
    k: &mut KernelLowering<'_, 'a>,
    object: &ast::Operand<'a>,
    ty: Type,
    count: usize,
) -> Result<(), Reason> {
    let bytes = u64::from(ty.size_bytes()) * count as u64;
    memory_barrier::complete(k, object, Space::Shared, &ast::Operand::Const(Const::Int(bytes)))
}

/// What both kinds of instruction say first, up to what is done.
fn target(list: &mut ModifierList<'_>) -> Result<Space, Reason> {
    list.take("async");
    list.take("weak");
    list.ordering();
    list.scope();
    let (space, _) = list.space();
    match list.take("mbarrier::complete_tx::bytes") {
        true => Ok(space),
        false => Err(Reason::Lacks("`.mbarrier::complete_tx::bytes`")),
    }
}

/// PTX ISA, "st.async".
fn store<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let space = target(&mut list)?;
    let count = list.take_from(&[("v2", 2), ("v4", 4)]).unwrap_or(1);
    let ty = list.ty()?;
    list.finish()?;
    let [dst, src, object] = operands(inst, "3")?;
    let srcs = elements(src, count)?.iter().map(|part| k.value(part, ty));
    let srcs = srcs.collect::<Result<Vec<_>, _>>()?;
    let (space, addr) = memory_target(k, dst, space)?;
    k.emit(Op::Store {
        space,
        ty,
        ordering: Ordering::Weak,
        addr,
        srcs,
    });
    complete(k, object, ty, count)
}

/// PTX ISA, "red.async".
fn reduce<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let space = target(&mut list)?;
    let (op, ty) = operation(&mut list)?;
    list.finish()?;
    let [dst, src, object] = operands(inst, "3")?;
    let src = k.value(src, ty)?;
    let (space, addr) = memory_target(k, dst, space)?;
    let atom = Atom {
        op,
        space,
        ty,
        ordering: Ordering::Relaxed,
        scope: Scope::Gpu,
        addr,
    };
    atomic::update(k, atom, None, vec![src])?;
    complete(k, object, ty, 1)
}

fn operation(list: &mut ModifierList<'_>) -> Result<(AtomOp, Type), Reason> {
    let op = list
        .take_from(&atomic::OPERATIONS)
        .ok_or(Reason::Lacks("an operation"))?;
    list.take("noftz");
    Ok((op, list.ty()?))
}

/// PTX ISA, "cp.reduce.async.bulk": an atomic operation on each element, one after the other.
fn reduce_bulk<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    for part in ["reduce", "async", "bulk"] {
        list.take(part);
    }
    if list.take("tensor") {
        return Err(Reason::Family("copies of tensors"));
    }
    let has_policy = inst.modifiers.contains(&"L2::cache_hint");
    list.drop_cache_hints();
    let (into, from) = (list.space().0, list.space().0);
    let completes = list.take("mbarrier::complete_tx::bytes");
    if completes == list.take("bulk_group") {
        return Err(Reason::Lacks("`.mbarrier::complete_tx::bytes` or `.bulk_group`"));
    }
    let (op, ty) = operation(&mut list)?;
    list.finish()?;
    // Halves in pairs: there are always as many.
    let ty = match ty {
        Type::F16 => Type::F16x2,
        Type::Bf16 => Type::Bf16x2,
        ty => ty,
    };
    let BulkOperands { dst, src, size, object } = bulk_operands(inst, has_policy, completes)?;
    let target = memory_target(k, dst, into)?;
    let dst = Start::new(k, target);
    let target = memory_target(k, src, from)?;
    let src = Start::new(k, target);
    let num_bytes = k.value(size, Type::U32)?;
    each(k, num_bytes, ty.size_bytes(), |k, at| {
        let element = src.behind(k, src.address, at).load(k, ty, width_of(ty));
        let place = dst.behind(k, dst.address, at);
        let atom = Atom {
            op,
            space: place.space,
            ty,
            ordering: Ordering::Relaxed,
            scope: Scope::Gpu,
            addr: place.address(),
        };
        atomic::update(k, atom, None, vec![element])
    })?;
    match object {
        Some(object) => memory_barrier::complete(k, object, Space::Shared, size),
        None => Ok(()),
    }
}

/// Operands of a bulk copy.
pub(super) struct BulkOperands<'i, 'a> {
    pub(super) dst: &'i ast::Operand<'a>,
    pub(super) src: &'i ast::Operand<'a>,
    pub(super) size: &'i ast::Operand<'a>,
    /// The barrier object that is told.
    pub(super) object: Option<&'i ast::Operand<'a>>,
}

/// Those of `inst`, which has a barrier object if it `completes` bytes there.
pub(super) fn bulk_operands<'i, 'a>(
    inst: &'i Instruction<'a>,
    has_policy: bool,
    completes: bool,
) -> Result<BulkOperands<'i, 'a>, Reason> {
    let given = inst.operands.len() - usize::from(has_policy && !inst.operands.is_empty());
    let (dst, src, size, object) = match (inst.operands.split_at(given).0, completes) {
        ([dst, src, size, object], true) => (dst, src, size, Some(object)),
        ([dst, src, size], false) => (dst, src, size, None),
        _ => {
            return Err(Reason::OperandCount {
                expected: "two addresses, a size, and perhaps a barrier object and a cache policy",
                found: inst.operands.len(),
            });
        }
    };
    Ok(BulkOperands { dst, src, size, object })
}

/// Does `step` for the offsets from 0 to below `num_bytes`, `step_bytes` apart.
pub(super) fn each<'m, 'a>(
    k: &mut KernelLowering<'m, 'a>,
    num_bytes: Operand,
    step_bytes: u32,
    step: impl FnOnce(&mut KernelLowering<'m, 'a>, Operand) -> Result<(), Reason>,
) -> Result<(), Reason> {
    let at = k.scratch(Width::W32);
    let set = |k: &mut KernelLowering<'m, 'a>, src| {
        let ty = Type::B32;
        k.emit(Op::Mov { ty, dst: at, src });
    };
    set(k, Operand::Imm(0));
    let [next, more, done] = [(); 3].map(|()| k.drafts.reserve());
    k.drafts.start(next);
    let is_left = halves::compare(k, (Comparison::Lt, Type::U32), Operand::Reg(at), num_bytes, None);
    k.terminate(Terminator::Branch {
        guard: Guard {
            pred: is_left,
            negated: false,
        },
        taken: more,
        not_taken: done,
    });
    k.drafts.start(more);
    step(k, Operand::Reg(at))?;
    let behind = vec![Operand::Reg(at), Operand::Imm(step_bytes.into())];
    let behind = scratch(k, AluOp::Add, Type::U32, Width::W32, behind);
    set(k, behind);
    k.terminate(Terminator::Jump(next));
    k.drafts.start(done);
    Ok(())
}

//! Barriers of the thread block (PTX ISA, "bar, barrier"). Each ends its basic block; a guarded one becomes a branch
//! around it.

use hetckpt_ir::basic_block::{BarrierReduction, BarrierReductionOp, Terminator};
use hetckpt_ir::inst::{Guard, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;
use crate::lower::{arrival_barrier, warp};

/// PTX ISA, "bar.sync", "bar.red", "bar.arrive", "barrier.sync", "barrier.red", "bar.warp.sync".
pub(super) fn barrier<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    if list.take("cluster") {
        return Err(Reason::Family("barriers of a cluster"));
    }
    list.take("cta");
    // hetIR's barrier does not ask the warp's lanes to be converged, so it is right for both forms.
    list.take("aligned");
    if list.take("warp") {
        list.take("sync");
        list.finish()?;
        return warp::sync(k, inst);
    }
    if list.take("arrive") {
        list.finish()?;
        return arrive(k, inst);
    }
    if list.take("sync") {
        list.finish()?;
        return wait(k, inst.operands.as_slice(), None);
    }
    if !list.take("red") {
        return Err(Reason::Lacks("a mode"));
    }
    let operations = [
        ("and", BarrierReductionOp::And),
        ("or", BarrierReductionOp::Or),
        ("popc", BarrierReductionOp::Popc),
    ];
    let op = list.take_from(&operations).ok_or(Reason::Lacks("an operation"))?;
    let ty = list.ty()?;
    list.finish()?;
    let (expected, width) = if op == BarrierReductionOp::Popc {
        (Type::U32, Width::W32)
    } else {
        (Type::Pred, Width::Pred)
    };
    if ty != expected {
        return Err(Reason::Type(ty.name().to_owned()));
    }
    let [dst, barrier @ .., src] = inst.operands.as_slice() else {
        return Err(Reason::OperandCount {
            expected: "3 or 4",
            found: inst.operands.len(),
        });
    };
    let src: Guard = k.predicate(src)?;
    let dst = k.result(dst, width)?;
    wait(k, barrier, Some(BarrierReduction { op, dst, src }))
}

fn number<'a>(k: &mut KernelLowering<'_, 'a>, operand: &ast::Operand<'a>) -> Result<Operand, Reason> {
    match k.value(operand, Type::U32)? {
        Operand::Imm(number @ 16..) => Err(Reason::Limit {
            what: "a barrier's number",
            found: number,
            limit: 15,
        }),
        number => Ok(number),
    }
}

/// PTX ISA, "bar.arrive", "barrier.arrive".
fn arrive<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let [id, count] = operands(inst, "2")?;
    let not_taken = k.branch_on_guard();
    let id = number(k, id)?;
    let count = k.value(count, Type::U32)?;
    arrival_barrier::arrive(k, id, Some(count));
    k.leave_guard(not_taken);
    Ok(())
}

/// `operands` = number of the barrier, perhaps number of threads.
fn wait<'a>(
    k: &mut KernelLowering<'_, 'a>,
    operands: &[ast::Operand<'a>],
    reduction: Option<BarrierReduction>,
) -> Result<(), Reason> {
    let (id, count) = match operands {
        [id] => (id, None),
        [id, count] => (id, Some(count)),
        _ => {
            return Err(Reason::OperandCount {
                expected: "1 or 2",
                found: operands.len(),
            });
        }
    };
    let not_taken = k.branch_on_guard();
    let id = number(k, id)?;
    let count = count.map(|c| k.value(c, Type::U32)).transpose()?;
    if k.barriers.may_be_arrived_at(id, count.is_none()) {
        if reduction.is_some() {
            return Err(Reason::Family("reductions at a barrier that others only arrive at"));
        }
        arrival_barrier::wait(k, id, count);
        k.leave_guard(not_taken);
        return Ok(());
    }
    let next = k.drafts.reserve();
    k.terminate(Terminator::Barrier {
        id,
        count,
        reduction,
        probe: None,
        next,
    });
    k.drafts.start(next);
    k.leave_guard(not_taken);
    Ok(())
}

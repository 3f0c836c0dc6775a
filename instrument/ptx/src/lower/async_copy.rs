//! Asynchronous copies (PTX ISA, "cp.async"), done at once: a copy may complete at any time up to the wait, so also
//! right away. Then nothing is in flight at a resume point.

use hetckpt_ir::inst::{Op, Operand, Ordering};
use hetckpt_ir::types::{Space, Type, Width};

use crate::ast::{self, Const, Instruction};
use crate::error::Reason;
use crate::lower::lowering::KernelLowering;
use crate::lower::memory::memory_target;
use crate::lower::memory_barrier;
use crate::lower::modifiers::ModifierList;

/// PTX ISA, "cp.async", "cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all".
pub(super) fn cp<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    if !list.take("async") {
        return Err(Reason::Instruction);
    }
    if let ["async", "commit_group" | "wait_group" | "wait_all"] = inst.modifiers.as_slice() {
        return Ok(());
    }
    if list.take("mbarrier") {
        return memory_barrier::arrive_behind_copies(k, inst, list);
    }
    list.drop_cache_hints();
    if !(list.take("shared") || list.take("shared::cta")) || !list.take("global") {
        return Err(Reason::Family("bulk and other asynchronous copies"));
    }
    list.finish()?;
    let [dst, src, size, rest @ ..] = inst.operands.as_slice() else {
        return Err(Reason::OperandCount {
            expected: "3",
            found: inst.operands.len(),
        });
    };
    let count = match size {
        ast::Operand::Const(Const::Int(4)) => 1,
        ast::Operand::Const(Const::Int(8)) => 2,
        ast::Operand::Const(Const::Int(16)) => 4,
        other => {
            return Err(Reason::Operand {
                expected: "4, 8 or 16",
                found: other.describe(),
            });
        }
    };
    if !rest.is_empty() && rest != std::slice::from_ref(size) {
        return Err(Reason::Family("asynchronous copies that fill up with zeros"));
    }
    let not_taken = k.branch_on_guard();
    let words: Vec<_> = (0..count).map(|_| k.scratch(Width::W32)).collect();
    let (ty, ordering) = (Type::B32, Ordering::Weak);
    let (space, addr) = memory_target(k, src, Space::Global)?;
    k.emit(Op::Load {
        space,
        ty,
        ordering,
        dsts: words.iter().copied().map(Some).collect(),
        addr,
    });
    let (space, addr) = memory_target(k, dst, Space::Shared)?;
    k.emit(Op::Store {
        space,
        ty,
        ordering,
        addr,
        srcs: words.into_iter().map(Operand::Reg).collect(),
    });
    k.leave_guard(not_taken);
    Ok(())
}

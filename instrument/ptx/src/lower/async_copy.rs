//! Asynchronous copies (PTX ISA, "cp.async"), done at once: a copy may complete at any time up to the wait, so also
//! right away. Then nothing is in flight at a resume point.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Address, AluOp, Comparison, Guard, Modifiers, Op, Operand, Ordering};
use hetckpt_ir::types::{Space, Type, Width};

use crate::ast::{self, Const, Instruction};
use crate::error::Reason;
use crate::lower::arithmetic::scratch;
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
    let has_policy = inst.modifiers.contains(&"L2::cache_hint");
    list.drop_cache_hints();
    if !(list.take("shared") || list.take("shared::cta")) || !list.take("global") {
        return Err(Reason::Family("bulk and other asynchronous copies"));
    }
    list.finish()?;
    let given = inst.operands.len() - usize::from(has_policy && !inst.operands.is_empty());
    let [dst, src, size, rest @ ..] = inst.operands.split_at(given).0 else {
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
    let filled = match rest {
        [] => None,
        [num_bytes] if num_bytes != size => Some(num_bytes),
        [_] => None,
        _ => {
            return Err(Reason::OperandCount {
                expected: "3 or 4, and a cache policy",
                found: inst.operands.len(),
            });
        }
    };
    let not_taken = k.branch_on_guard();
    let words: Vec<_> = (0..count).map(|_| k.scratch(Width::W32)).collect();
    let (ty, ordering) = (Type::B32, Ordering::Weak);
    let (space, addr) = memory_target(k, src, Space::Global)?;
    match filled {
        Some(num_bytes) => {
            let num_bytes = bytes_to_copy(k, num_bytes, 4 * count)?;
            for (&word, at) in words.iter().zip((0..).step_by(4)) {
                let addr = Address {
                    offset: addr.offset + at,
                    ..addr.clone()
                };
                load_part(k, (space, addr), word, num_bytes, at.cast_unsigned());
            }
        }
        None => k.emit(Op::Load {
            space,
            ty,
            ordering,
            dsts: words.iter().copied().map(Some).collect(),
            addr,
        }),
    }
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

/// How many bytes come from the source: as many as a register says, or none if a predicate says that it is ignored.
fn bytes_to_copy<'a>(k: &mut KernelLowering<'_, 'a>, given: &ast::Operand<'a>, size: u64) -> Result<Operand, Reason> {
    let Ok(ignores) = k.predicate(given) else {
        return k.value(given, Type::U32);
    };
    let (all, nothing) = (Operand::Imm(size), Operand::Imm(0));
    let (if_true, if_false) = if ignores.negated {
        (all, nothing)
    } else {
        (nothing, all)
    };
    let dst = k.scratch(Width::W32);
    k.emit(Op::Selp {
        ty: Type::B32,
        dst,
        a: if_true,
        b: if_false,
        pred: ignores.pred,
    });
    Ok(Operand::Reg(dst))
}

/// The word at `at` of what is copied, of which only the first `num_bytes` bytes are read, with zeros behind them.
fn load_part(
    k: &mut KernelLowering<'_, '_>,
    (space, addr): (Space, Address),
    word: RegId,
    num_bytes: Operand,
    at: u64,
) {
    let (ty, ordering) = (Type::B32, Ordering::Weak);
    let src = Operand::Imm(0);
    k.emit(Op::Mov { ty, dst: word, src });
    let pred = k.scratch(Width::Pred);
    k.emit(Op::Setp {
        cmp: Comparison::Gt,
        ty: Type::U32,
        ftz: false,
        dst: pred,
        dst_not: None,
        a: num_bytes,
        b: Operand::Imm(at),
        combine: None,
    });
    // The guard of the instruction is a branch already.
    k.guard = Some(Guard { pred, negated: false });
    k.emit(Op::Load {
        space,
        ty,
        ordering,
        dsts: vec![Some(word)],
        addr,
    });
    k.guard = None;
    // As many bits as there are bytes of this word, at most all.
    let before = vec![num_bytes, Operand::Imm(at)];
    let before = scratch(k, AluOp::Max, Type::U32, Width::W32, before);
    let bytes = scratch(k, AluOp::Sub, Type::U32, Width::W32, vec![before, Operand::Imm(at)]);
    let bytes = scratch(k, AluOp::Min, Type::U32, Width::W32, vec![bytes, Operand::Imm(4)]);
    let bits = scratch(k, AluOp::Shl, Type::B32, Width::W32, vec![bytes, Operand::Imm(3)]);
    k.emit(Op::Alu {
        op: AluOp::Bfe,
        ty: Type::U32,
        mods: Modifiers::default(),
        dst: word,
        srcs: vec![Operand::Reg(word), Operand::Imm(0), bits],
    });
}

//! Asynchronous copies (PTX ISA, "cp.async"), done at once: a copy may complete at any time up to the wait, so also
//! right away. Then nothing is in flight at a resume point. Bulk copies are loops of the thread that begins them.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Address, AluOp, Comparison, Guard, Modifiers, Op, Operand, Ordering};
use hetckpt_ir::types::{Space, Type, Width};

use crate::ast::{self, Const, Instruction};
use crate::error::Reason;
use crate::lower::arithmetic::scratch;
use crate::lower::async_update::{BulkOperands, bulk_operands, each};
use crate::lower::lowering::KernelLowering;
use crate::lower::matrix::address::Start;
use crate::lower::memory::memory_target;
use crate::lower::memory_barrier;
use crate::lower::modifiers::ModifierList;

/// PTX ISA, "cp.async", "cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all", "cp.async.bulk".
pub(super) fn cp<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    if !list.take("async") {
        return Err(Reason::Instruction);
    }
    if let ["async", "commit_group" | "wait_group" | "wait_all"]
    | ["async", "bulk", "commit_group" | "wait_group" | "prefetch", ..] = inst.modifiers.as_slice()
    {
        return if inst.modifiers.contains(&"tensor") {
            tensor()
        } else {
            Ok(())
        };
    }
    if list.take("bulk") {
        return bulk(k, inst, list);
    }
    if list.take("mbarrier") {
        return memory_barrier::arrive_behind_copies(k, inst, list);
    }
    let has_policy = inst.modifiers.contains(&"L2::cache_hint");
    list.drop_cache_hints();
    if !(list.take("shared") || list.take("shared::cta")) || !list.take("global") {
        return Err(Reason::Lacks("`.shared.global`"));
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

fn tensor() -> Result<(), Reason> {
    Err(Reason::Family("copies of tensors"))
}

/// PTX ISA, "cp.async.bulk" to, from and within shared memory.
fn bulk<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>, mut list: ModifierList<'a>) -> Result<(), Reason> {
    if list.take("tensor") || inst.opcode != "cp" {
        return tensor();
    }
    if list.take("multicast::cluster") {
        return Err(Reason::Family("copies to several blocks"));
    }
    let has_policy = inst.modifiers.contains(&"L2::cache_hint");
    list.drop_cache_hints();
    let (into, from) = (list.space().0, list.space().0);
    // The barrier object, or the wait for a group, says when it has been done.
    let completes = list.take("mbarrier::complete_tx::bytes");
    if completes == list.take("bulk_group") {
        return Err(Reason::Lacks("`.mbarrier::complete_tx::bytes` or `.bulk_group`"));
    }
    list.finish()?;
    let BulkOperands { dst, src, size, object } = bulk_operands(inst, has_policy, completes)?;
    let not_taken = k.branch_on_guard();
    let target = memory_target(k, dst, into)?;
    let dst = Start::new(k, target);
    let target = memory_target(k, src, from)?;
    let src = Start::new(k, target);
    let num_bytes = k.value(size, Type::U32)?;
    copy(k, dst, src, num_bytes)?;
    if let Some(object) = object {
        memory_barrier::complete(k, object, Space::Shared, size)?;
    }
    k.leave_guard(not_taken);
    Ok(())
}

/// Copies bytes, a multiple of 16.
fn copy(k: &mut KernelLowering<'_, '_>, dst: Start, src: Start, num_bytes: Operand) -> Result<(), Reason> {
    each(k, num_bytes, 16, |k, at| {
        let mut end = at;
        let words = [0, 1].map(|_| {
            let word = src.behind(k, src.address, end).load(k, Type::B64, Width::W64);
            let place = dst.behind(k, dst.address, end);
            end = scratch(k, AluOp::Add, Type::U32, Width::W32, vec![end, Operand::Imm(8)]);
            (place, word)
        });
        for (place, word) in words {
            place.store(k, Type::B64, word);
        }
        Ok(())
    })
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

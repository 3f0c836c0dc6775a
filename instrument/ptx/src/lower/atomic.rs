//! Atomic operations (PTX ISA, "atom", "red").

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Address, AluOp, AtomOp, Comparison, Guard, Modifiers, Op, Operand, Ordering, Scope};
use hetckpt_ir::types::{Space, Type, Width};

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::lowering::KernelLowering;
use crate::lower::memory;
use crate::lower::modifiers::ModifierList;
use crate::lower::scope::width_of;

/// Operations by their names.
pub(super) const OPERATIONS: [(&str, AtomOp); 10] = [
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

const COUNTS: [(&str, usize); 3] = [("v2", 2), ("v4", 4), ("v8", 8)];

/// PTX ISA, "atom" (`has_result`) and "red".
pub(super) fn atom<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>, has_result: bool) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let has_policy = inst.modifiers.contains(&"L2::cache_hint");
    list.drop_cache_hints();
    let (space, _) = list.space();
    let ordering = list.ordering().unwrap_or(Ordering::Relaxed);
    let scope = list.scope().unwrap_or(Scope::Gpu);
    let op = list.take_from(&OPERATIONS).ok_or(Reason::Lacks("an operation"))?;
    let is_noftz = list.take("noftz");
    let count = list.take_from(&COUNTS).unwrap_or(1);
    let ty = list.ty()?;
    list.finish()?;
    if is_noftz && word_of_halves(ty).is_none() {
        return Err(Reason::Modifier("noftz".to_owned()));
    }
    if !matches!(space, Space::Global | Space::Shared | Space::Generic) {
        return Err(Reason::Modifier("local".to_owned()));
    }
    let given = inst.operands.len() - usize::from(has_policy && !inst.operands.is_empty());
    let (dst, rest) = match (has_result, inst.operands.split_at(given).0) {
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
    let srcs = srcs.iter().map(|src| memory::elements(src, count));
    let srcs = srcs.collect::<Result<Vec<_>, _>>()?;
    let dsts = dst.map(|dst| memory::elements(dst, count)).transpose()?;
    let (space, addr) = memory::memory_target(k, address, space)?;
    // Of vectors each element is an operation of its own, in PTX too. Results are put where they belong at the end: a
    // register may be a source as well.
    let mut results = Vec::new();
    for at in 0..count {
        let srcs = srcs.iter().map(|elements| k.value(&elements[at], ty));
        let srcs = srcs.collect::<Result<_, _>>()?;
        let dst = match dsts.map(|elements| &elements[at]) {
            None | Some(ast::Operand::Name("_", None)) => None,
            Some(dst) if count == 1 => Some(k.result(dst, width_of(ty))?),
            Some(dst) => {
                let held = k.scratch(width_of(ty));
                results.push((k.result(dst, width_of(ty))?, held));
                Some(held)
            }
        };
        let mut atom = Atom {
            op,
            space,
            ty,
            ordering,
            scope,
            addr: addr.clone(),
        };
        atom.addr.offset += i64::from(ty.size_bytes()) * at as i64;
        update(k, atom, dst, srcs)?;
    }
    for (dst, held) in results {
        k.emit(Op::Mov {
            ty: memory::untyped(width_of(ty)),
            dst,
            src: Operand::Reg(held),
        });
    }
    Ok(())
}

/// An atomic operation without its registers.
#[derive(Clone)]
pub(super) struct Atom {
    pub(super) op: AtomOp,
    pub(super) space: Space,
    pub(super) ty: Type,
    pub(super) ordering: Ordering,
    pub(super) scope: Scope,
    pub(super) addr: Address,
}

/// Does it, on halves by way of words.
pub(super) fn update(
    k: &mut KernelLowering<'_, '_>,
    atom: Atom,
    dst: Option<RegId>,
    srcs: Vec<Operand>,
) -> Result<(), Reason> {
    let op = match atom.op {
        AtomOp::Add => Some(AluOp::Add),
        AtomOp::Min => Some(AluOp::Min),
        AtomOp::Max => Some(AluOp::Max),
        _ => None,
    };
    match (word_of_halves(atom.ty), op) {
        (Some(word), Some(op)) => {
            let halves = atom.ty;
            update_halves(k, &Atom { ty: word, ..atom }, (op, halves), dst, srcs);
        }
        _ => {
            check(atom.op, atom.ty)?;
            k.emit(atom.into_op(dst, srcs));
        }
    }
    Ok(())
}

impl Atom {
    fn into_op(self, dst: Option<RegId>, srcs: Vec<Operand>) -> Op {
        Op::Atom {
            op: self.op,
            space: self.space,
            ty: self.ty,
            ordering: self.ordering,
            scope: self.scope,
            dst,
            addr: self.addr,
            srcs,
        }
    }
}

/// The word in which halves lie.
const fn word_of_halves(ty: Type) -> Option<Type> {
    match ty {
        Type::F16 | Type::Bf16 => Some(Type::B16),
        Type::F16x2 | Type::Bf16x2 => Some(Type::B32),
        _ => None,
    }
}

/// Operates on halves by exchanging words until none has come in between; `atom` is of such a word.
fn update_halves(
    k: &mut KernelLowering<'_, '_>,
    atom: &Atom,
    (op, halves): (AluOp, Type),
    dst: Option<RegId>,
    mut operands: Vec<Operand>,
) {
    let width = width_of(atom.ty);
    let (before, after, found) = (k.scratch(width), k.scratch(width), k.scratch(width));
    let is_other = k.scratch(Width::Pred);
    let not_taken = k.branch_on_guard();
    k.emit(Op::Load {
        space: atom.space,
        ty: atom.ty,
        ordering: Ordering::Relaxed,
        dsts: vec![Some(before)],
        addr: atom.addr.clone(),
    });
    let (again, done) = (k.drafts.reserve(), k.drafts.reserve());
    k.drafts.start(again);
    operands.insert(0, Operand::Reg(before));
    k.emit(Op::Alu {
        op,
        ty: halves,
        mods: Modifiers::default(),
        dst: after,
        srcs: operands,
    });
    let cas = Atom {
        op: AtomOp::Cas,
        ..atom.clone()
    };
    k.emit(cas.into_op(Some(found), vec![Operand::Reg(before), Operand::Reg(after)]));
    k.emit(Op::Setp {
        cmp: Comparison::Ne,
        ty: atom.ty,
        ftz: false,
        dst: is_other,
        dst_not: None,
        a: Operand::Reg(found),
        b: Operand::Reg(before),
        combine: None,
    });
    k.emit(Op::Mov {
        ty: atom.ty,
        dst: before,
        src: Operand::Reg(found),
    });
    let guard = Guard {
        pred: is_other,
        negated: false,
    };
    k.terminate(Terminator::Branch {
        guard,
        taken: again,
        not_taken: done,
    });
    k.drafts.start(done);
    if let Some(dst) = dst {
        k.emit(Op::Mov {
            ty: atom.ty,
            dst,
            src: Operand::Reg(found),
        });
    }
    k.leave_guard(not_taken);
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

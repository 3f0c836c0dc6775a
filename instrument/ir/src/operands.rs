//! Which registers an instruction or terminator reads and writes.

use crate::basic_block::Terminator;
use crate::entity::RegId;
use crate::inst::{Address, AddressBase, Inst, Op, Operand};

fn operand(o: &Operand, f: &mut impl FnMut(RegId)) {
    if let Operand::Reg(r) = o {
        f(*r);
    }
}

fn address(a: &Address, f: &mut impl FnMut(RegId)) {
    if let AddressBase::Reg(r) = a.base {
        f(r);
    }
}

impl Inst {
    /// Calls `f` for each register read, the guard's included.
    pub fn for_each_use(&self, mut f: impl FnMut(RegId)) {
        if let Some(guard) = self.guard {
            f(guard.pred);
        }
        self.op.for_each_use(f);
    }

    /// Calls `f` for each register written.
    pub fn for_each_def(&self, f: impl FnMut(RegId)) {
        self.op.for_each_def(f);
    }
}

impl Op {
    /// Calls `f` for each register read.
    pub fn for_each_use(&self, mut f: impl FnMut(RegId)) {
        let f = &mut f;
        match self {
            Op::Alu { srcs, .. } | Op::Pack { srcs, .. } => srcs.iter().for_each(|s| operand(s, f)),
            Op::Mov { src, .. } | Op::Unpack { src, .. } | Op::Cvt { src, .. } | Op::Nanosleep { duration: src } => {
                operand(src, f);
            }
            Op::AddrOf { addr, .. } | Op::Load { addr, .. } => address(addr, f),
            Op::ReadSpecial { .. } | Op::Membar { .. } => {}
            Op::Setp { a, b, combine, .. } => {
                operand(a, f);
                operand(b, f);
                if let Some((_, pred, _)) = combine {
                    f(*pred);
                }
            }
            Op::Set { a, b, .. } => {
                operand(a, f);
                operand(b, f);
            }
            Op::Selp { a, b, pred, .. } => {
                operand(a, f);
                operand(b, f);
                f(*pred);
            }
            Op::Store { addr, srcs, .. } | Op::Atom { addr, srcs, .. } => {
                address(addr, f);
                srcs.iter().for_each(|s| operand(s, f));
            }
            Op::Warp { srcs, mask, .. } => {
                srcs.iter().for_each(|s| operand(s, f));
                operand(mask, f);
            }
            Op::Opaque { uses, .. } => uses.iter().copied().for_each(f),
        }
    }

    /// Calls `f` for each register written.
    pub fn for_each_def(&self, mut f: impl FnMut(RegId)) {
        match self {
            Op::Alu { dst, .. }
            | Op::Mov { dst, .. }
            | Op::Pack { dst, .. }
            | Op::AddrOf { dst, .. }
            | Op::ReadSpecial { dst, .. }
            | Op::Set { dst, .. }
            | Op::Selp { dst, .. }
            | Op::Cvt { dst, .. } => f(*dst),
            Op::Setp { dst, dst_not, .. } => {
                f(*dst);
                dst_not.iter().copied().for_each(f);
            }
            Op::Unpack { dsts, .. } | Op::Load { dsts, .. } => dsts.iter().flatten().copied().for_each(f),
            Op::Atom { dst, .. } => dst.iter().copied().for_each(f),
            Op::Warp { dst, dst_pred, .. } => dst.iter().chain(dst_pred).copied().for_each(f),
            Op::Store { .. } | Op::Membar { .. } | Op::Nanosleep { .. } => {}
            Op::Opaque { defs, .. } => defs.iter().copied().for_each(f),
        }
    }

    /// True if the instruction does something beyond writing its registers, or reads memory that may change.
    #[must_use]
    pub fn has_side_effect(&self) -> bool {
        matches!(
            self,
            Op::Store { .. }
                | Op::Atom { .. }
                | Op::Membar { .. }
                | Op::Nanosleep { .. }
                | Op::Warp { .. }
                | Op::Opaque { .. }
        )
    }
}

impl Terminator {
    /// Calls `f` for each register read.
    pub fn for_each_use(&self, mut f: impl FnMut(RegId)) {
        match self {
            Terminator::Branch { guard, .. } => f(guard.pred),
            Terminator::Barrier {
                id, count, reduction, ..
            } => {
                operand(id, &mut f);
                if let Some(count) = count {
                    operand(count, &mut f);
                }
                if let Some(reduction) = reduction {
                    f(reduction.src.pred);
                }
            }
            Terminator::Jump(_) | Terminator::Exit | Terminator::Trap | Terminator::Poll { .. } => {}
        }
    }

    /// The register a `bar.red` writes.
    #[must_use]
    pub fn def(&self) -> Option<RegId> {
        match self {
            Terminator::Barrier {
                reduction: Some(reduction),
                ..
            } => Some(reduction.dst),
            _ => None,
        }
    }
}

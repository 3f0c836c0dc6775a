//! Barriers, branches and warp-level operations.

use super::error::Rule;
use super::operand::{Operands, count};
use crate::basic_block::{BarrierReductionOp, GIVE_WAY, Terminator};
use crate::inst::{Op, Operand, WarpOp};
use crate::kernel::Kernel;
use crate::types::{Type, Width};

pub(super) fn terminator(kernel: &Kernel, terminator: &Terminator) -> Result<(), Rule> {
    let operands = Operands { kernel };
    match terminator {
        Terminator::Branch { guard, .. } => operands.predicate(guard.pred),
        Terminator::Barrier {
            id, count, reduction, ..
        } => {
            operands.source(*id, Type::B32)?;
            match id {
                Operand::Imm(GIVE_WAY) if *count == Some(Operand::Imm(1)) => {}
                Operand::Imm(number @ 16..) => return Err(Rule::BarrierNumber(*number)),
                _ => {}
            }
            count.map_or(Ok(()), |c| operands.source(c, Type::B32))?;
            let Some(r) = reduction else { return Ok(()) };
            operands.predicate(r.src.pred)?;
            let width = if r.op == BarrierReductionOp::Popc {
                Width::W32
            } else {
                Width::Pred
            };
            operands.width(r.dst, width)
        }
        _ => Ok(()),
    }
}

pub(super) fn warp(operands: Operands<'_>, op: &Op) -> Result<(), Rule> {
    let Op::Warp {
        op,
        dst,
        dst_pred,
        srcs,
        mask,
        ..
    } = op
    else {
        return Ok(());
    };
    operands.source(*mask, Type::B32)?;
    let (num_srcs, ty) = match *op {
        WarpOp::ShflUp | WarpOp::ShflDown | WarpOp::ShflBfly | WarpOp::ShflIdx => (3, Type::B32),
        WarpOp::VoteAll | WarpOp::VoteAny | WarpOp::VoteUni | WarpOp::VoteBallot => (1, Type::Pred),
        WarpOp::MatchAny(ty) | WarpOp::MatchAll(ty) | WarpOp::Redux(_, ty) => (1, ty),
        WarpOp::ActiveMask | WarpOp::Sync | WarpOp::Step => (0, Type::B32),
    };
    let is_match = matches!(op, WarpOp::MatchAny(_) | WarpOp::MatchAll(_));
    let is_word = !ty.is_float() && (ty.size_bytes() == 4 || (ty.size_bytes() == 8 && is_match));
    if num_srcs == 1 && ty != Type::Pred && !is_word {
        return Err(Rule::Type(ty));
    }
    count(srcs.len(), num_srcs)?;
    srcs.iter().try_for_each(|s| operands.source(*s, ty))?;
    let (has_dst, has_pred) = match op {
        WarpOp::ShflUp | WarpOp::ShflDown | WarpOp::ShflBfly | WarpOp::ShflIdx | WarpOp::MatchAll(_) => (true, true),
        WarpOp::VoteAll | WarpOp::VoteAny | WarpOp::VoteUni => (false, true),
        WarpOp::VoteBallot | WarpOp::MatchAny(_) | WarpOp::Redux(..) | WarpOp::ActiveMask => (true, false),
        WarpOp::Sync | WarpOp::Step => (false, false),
    };
    if (dst.is_some() && !has_dst) || (dst_pred.is_some() && !has_pred) {
        return Err(Rule::Results);
    }
    dst.map_or(Ok(()), |d| operands.width(d, Width::W32))?;
    dst_pred.map_or(Ok(()), |p| operands.predicate(p))
}

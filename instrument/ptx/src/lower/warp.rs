//! Warp-level operations (PTX ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "activemask",
//! "bar.warp.sync"). One that is guarded becomes a branch around it: which lanes take part is then control flow.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AluOp, Comparison, Op, Operand, ReduxOp, SpecialReg, WarpOp};
use hetckpt_ir::types::{Type, Width};

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::arithmetic::scratch;
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;

/// All lanes.
const FULL_MASK: Operand = Operand::Imm(0xFFFF_FFFF);

struct Parts {
    op: WarpOp,
    dst: Option<RegId>,
    dst_pred: Option<RegId>,
    srcs: Vec<Operand>,
    mask: Operand,
}

/// `lower` makes the operands, already behind the branch.
fn emit<'m, 'a>(
    k: &mut KernelLowering<'m, 'a>,
    lower: impl FnOnce(&mut KernelLowering<'m, 'a>) -> Result<Parts, Reason>,
) -> Result<(), Reason> {
    let not_taken = k.branch_on_guard();
    let Parts {
        op,
        dst,
        dst_pred,
        srcs,
        mask,
    } = lower(k)?;
    k.emit(Op::Warp {
        op,
        dst,
        dst_pred,
        srcs,
        mask,
        probe: None,
    });
    k.leave_guard(not_taken);
    Ok(())
}

fn need_sync(list: &mut ModifierList<'_>) -> Result<(), Reason> {
    if list.take("sync") {
        Ok(())
    } else {
        Err(Reason::Lacks("`.sync`: older forms without a member mask"))
    }
}

/// `d` or `d|p`, either perhaps `_`.
fn result_pair(
    k: &mut KernelLowering<'_, '_>,
    operand: &ast::Operand<'_>,
) -> Result<(Option<RegId>, Option<RegId>), Reason> {
    let (dst, pred) = match operand {
        ast::Operand::Pair(dst, pred) => (ast::Operand::Name(dst, None), Some(ast::Operand::Name(pred, None))),
        other => (other.clone(), None),
    };
    let dst = k.result(&dst, Width::W32)?;
    let pred = match pred {
        None | Some(ast::Operand::Name("_", None)) => None,
        Some(pred) => Some(k.result(&pred, Width::Pred)?),
    };
    Ok((Some(dst), pred))
}

/// PTX ISA, "shfl.sync".
pub(super) fn shuffle<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    need_sync(&mut list)?;
    let modes = [
        ("up", WarpOp::ShflUp),
        ("down", WarpOp::ShflDown),
        ("bfly", WarpOp::ShflBfly),
        ("idx", WarpOp::ShflIdx),
    ];
    let op = list.take_from(&modes).ok_or(Reason::Lacks("a mode"))?;
    let ty = list.ty()?;
    list.finish()?;
    if ty != Type::B32 {
        return Err(Reason::Type(ty.name().to_owned()));
    }
    let [result, a, b, c, mask] = operands(inst, "5")?;
    emit(k, |k| {
        let srcs = vec![k.value(a, ty)?, k.value(b, ty)?, k.value(c, ty)?];
        let mask = k.value(mask, ty)?;
        let (dst, dst_pred) = result_pair(k, result)?;
        Ok(Parts {
            op,
            dst,
            dst_pred,
            srcs,
            mask,
        })
    })
}

/// PTX ISA, "vote.sync".
pub(super) fn vote<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    need_sync(&mut list)?;
    let modes = [
        ("all", WarpOp::VoteAll),
        ("any", WarpOp::VoteAny),
        ("uni", WarpOp::VoteUni),
        ("ballot", WarpOp::VoteBallot),
    ];
    let op = list.take_from(&modes).ok_or(Reason::Lacks("a mode"))?;
    let ty = list.ty()?;
    list.finish()?;
    let ballot = op == WarpOp::VoteBallot;
    if ty != if ballot { Type::B32 } else { Type::Pred } {
        return Err(Reason::Type(ty.name().to_owned()));
    }
    let [result, pred, mask] = operands(inst, "3")?;
    emit(k, |k| {
        let srcs = vec![k.value(pred, Type::Pred)?];
        let mask = k.value(mask, Type::B32)?;
        let dst = ballot.then(|| k.result(result, Width::W32)).transpose()?;
        let dst_pred = (!ballot).then(|| k.result(result, Width::Pred)).transpose()?;
        Ok(Parts {
            op,
            dst,
            dst_pred,
            srcs,
            mask,
        })
    })
}

/// PTX ISA, "match.sync".
pub(super) fn match_lanes<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    need_sync(&mut list)?;
    let all = list
        .take_from(&[("all", true), ("any", false)])
        .ok_or(Reason::Lacks("a mode"))?;
    let ty = list.ty()?;
    list.finish()?;
    if !matches!(ty, Type::B32 | Type::B64) {
        return Err(Reason::Type(ty.name().to_owned()));
    }
    let op = if all {
        WarpOp::MatchAll(ty)
    } else {
        WarpOp::MatchAny(ty)
    };
    let [result, value, mask] = operands(inst, "3")?;
    emit(k, |k| {
        let srcs = vec![k.value(value, ty)?];
        let mask = k.value(mask, Type::B32)?;
        let (dst, dst_pred) = result_pair(k, result)?;
        if dst_pred.is_some() && !all {
            return Err(Reason::Operand {
                expected: "a single result",
                found: result.describe(),
            });
        }
        Ok(Parts {
            op,
            dst,
            dst_pred,
            srcs,
            mask,
        })
    })
}

/// PTX ISA, "redux.sync".
pub(super) fn redux<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    need_sync(&mut list)?;
    let operations = [
        ("add", ReduxOp::Add),
        ("min", ReduxOp::Min),
        ("max", ReduxOp::Max),
        ("and", ReduxOp::And),
        ("or", ReduxOp::Or),
        ("xor", ReduxOp::Xor),
    ];
    let op = list.take_from(&operations).ok_or(Reason::Lacks("an operation"))?;
    let ty = list.ty()?;
    list.finish()?;
    let bitwise = matches!(op, ReduxOp::And | ReduxOp::Or | ReduxOp::Xor);
    let known = if bitwise {
        ty == Type::B32
    } else {
        matches!(ty, Type::U32 | Type::S32)
    };
    if !known {
        return Err(Reason::Type(ty.name().to_owned()));
    }
    let [result, value, mask] = operands(inst, "3")?;
    emit(k, |k| {
        let srcs = vec![k.value(value, ty)?];
        let mask = k.value(mask, Type::B32)?;
        let dst = Some(k.result(result, Width::W32)?);
        Ok(Parts {
            op: WarpOp::Redux(op, ty),
            dst,
            dst_pred: None,
            srcs,
            mask,
        })
    })
}

/// PTX ISA, "elect.sync": the lowest lane of the mask.
pub(super) fn elect<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    need_sync(&mut list)?;
    list.finish()?;
    let [result, mask] = operands(inst, "2")?;
    let mask = k.value(mask, Type::B32)?;
    let (lane, is_elected) = result_pair(k, result)?;
    let reversed = scratch(k, AluOp::Brev, Type::B32, Width::W32, vec![mask]);
    let lowest = scratch(k, AluOp::Clz, Type::B32, Width::W32, vec![reversed]);
    if let Some(dst) = lane {
        k.emit(Op::Mov {
            ty: Type::B32,
            dst,
            src: lowest,
        });
    }
    if let Some(dst) = is_elected {
        let own = k.scratch(Width::W32);
        k.emit_unguarded(Op::ReadSpecial {
            dst: own,
            special: SpecialReg::LaneId,
        });
        k.emit(Op::Setp {
            cmp: Comparison::Eq,
            ty: Type::U32,
            ftz: false,
            dst,
            dst_not: None,
            a: Operand::Reg(own),
            b: lowest,
            combine: None,
        });
    }
    Ok(())
}

/// PTX ISA, "activemask".
pub(super) fn active_mask<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let ty = list.ty()?;
    list.finish()?;
    if ty != Type::B32 {
        return Err(Reason::Type(ty.name().to_owned()));
    }
    let [result] = operands(inst, "1")?;
    emit(k, |k| {
        let dst = Some(k.result(result, Width::W32)?);
        Ok(Parts {
            op: WarpOp::ActiveMask,
            dst,
            dst_pred: None,
            srcs: Vec::new(),
            mask: FULL_MASK,
        })
    })
}

/// PTX ISA, "bar.warp.sync".
pub(super) fn sync<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let [mask] = operands(inst, "1")?;
    emit(k, |k| {
        let mask = k.value(mask, Type::B32)?;
        Ok(Parts {
            op: WarpOp::Sync,
            dst: None,
            dst_pred: None,
            srcs: Vec::new(),
            mask,
        })
    })
}

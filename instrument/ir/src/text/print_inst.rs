//! Prints one instruction.

use std::fmt::Write;

use super::names::TextName;
use super::print_operand::{GuardText, OperandText, quote};
use crate::entity::RegId;
use crate::inst::{Address, AddressBase, Inst, Modifiers, Op, Operand, Ordering, WarpOp};

/// The instruction without its span.
pub(super) fn print(out: &mut String, inst: &Inst) {
    if let Some(guard) = inst.guard {
        let _ = write!(out, "@{} ", GuardText(guard));
    }
    let _ = match &inst.op {
        Op::Alu {
            op,
            ty,
            mods,
            dst,
            srcs,
        } => {
            let _ = write!(out, "{}.{}{} {dst}", op.text_name(), ty.name(), mods_text(*mods));
            operands(out, srcs)
        }
        Op::Mov { ty, dst, src } => write!(out, "mov.{} {dst}, {}", ty.name(), OperandText(*src)),
        Op::Pack { ty, dst, srcs } => write!(out, "pack.{} {dst}, {}", ty.name(), vector(srcs)),
        Op::Unpack { ty, dsts, src } => {
            write!(
                out,
                "unpack.{} {}, {}",
                ty.name(),
                destinations(dsts),
                OperandText(*src)
            )
        }
        Op::AddrOf { dst, space, addr } => write!(out, "addrof.{} {dst}, {}", space.text_name(), address(addr)),
        Op::ReadSpecial { dst, special } => write!(out, "special {dst}, {}", special.text_name()),
        Op::Setp { .. } | Op::Set { .. } => compare(out, &inst.op),
        Op::Selp { ty, dst, a, b, pred } => {
            write!(
                out,
                "selp.{} {dst}, {}, {}, {pred}",
                ty.name(),
                OperandText(*a),
                OperandText(*b)
            )
        }
        Op::Cvt {
            dst_ty,
            src_ty,
            mods,
            dst,
            src,
        } => {
            let (d, s) = (dst_ty.name(), src_ty.name());
            write!(out, "cvt.{d}.{s}{} {dst}, {}", mods_text(*mods), OperandText(*src))
        }
        Op::Load { .. } | Op::Store { .. } | Op::Atom { .. } | Op::Membar { .. } => memory(out, &inst.op),
        Op::Nanosleep { duration } => write!(out, "nanosleep {}", OperandText(*duration)),
        Op::Warp { .. } => warp(out, &inst.op),
        Op::Opaque { text, uses, defs } => {
            write!(
                out,
                "opaque {} uses {} defs {}",
                quote(text),
                registers(uses),
                registers(defs)
            )
        }
    };
}

fn compare(out: &mut String, op: &Op) -> std::fmt::Result {
    match op {
        Op::Setp {
            cmp,
            ty,
            ftz,
            dst,
            dst_not,
            a,
            b,
            combine,
        } => {
            write!(out, "setp.{}.{}{} {dst}", cmp.text_name(), ty.name(), ftz_text(*ftz))?;
            if let Some(q) = dst_not {
                write!(out, "|{q}")?;
            }
            write!(out, ", {}, {}", OperandText(*a), OperandText(*b))?;
            if let Some((op, pred, negated)) = combine {
                write!(out, ", {} {}{pred}", op.text_name(), if *negated { "!" } else { "" })?;
            }
            Ok(())
        }
        Op::Set {
            cmp,
            dst_ty,
            ty,
            ftz,
            dst,
            a,
            b,
        } => {
            let (d, s) = (dst_ty.name(), ty.name());
            write!(out, "set.{}.{d}.{s}{}", cmp.text_name(), ftz_text(*ftz))?;
            write!(out, " {dst}, {}, {}", OperandText(*a), OperandText(*b))
        }
        _ => Ok(()),
    }
}

fn memory(out: &mut String, op: &Op) -> std::fmt::Result {
    match op {
        Op::Load {
            space,
            ty,
            ordering,
            dsts,
            addr,
        } => {
            let dsts = match dsts.as_slice() {
                [one] => destination(*one),
                many => destinations(many),
            };
            let (space, ordering) = (space.text_name(), ordering_text(*ordering));
            write!(out, "ld.{space}{ordering}.{} {dsts}, {}", ty.name(), address(addr))
        }
        Op::Store {
            space,
            ty,
            ordering,
            addr,
            srcs,
        } => {
            let srcs = match srcs.as_slice() {
                [one] => OperandText(*one).to_string(),
                many => vector(many),
            };
            let (space, ordering) = (space.text_name(), ordering_text(*ordering));
            write!(out, "st.{space}{ordering}.{} {}, {srcs}", ty.name(), address(addr))
        }
        Op::Atom {
            op,
            space,
            ty,
            ordering,
            scope,
            dst,
            addr,
            srcs,
        } => {
            let (op, space, ty) = (op.text_name(), space.text_name(), ty.name());
            write!(
                out,
                "atom.{op}.{space}.{}.{}.{ty}",
                ordering.text_name(),
                scope.text_name()
            )?;
            write!(out, " {}, {}", destination(*dst), address(addr))?;
            operands(out, srcs)
        }
        Op::Membar { scope } => write!(out, "membar.{}", scope.text_name()),
        _ => Ok(()),
    }
}

fn warp(out: &mut String, op: &Op) -> std::fmt::Result {
    let Op::Warp {
        op,
        dst,
        dst_pred,
        srcs,
        mask,
        probe,
    } = op
    else {
        return Ok(());
    };
    write!(
        out,
        "warp.{} {}|{}",
        warp_name(*op),
        destination(*dst),
        destination(*dst_pred)
    )?;
    operands(out, srcs)?;
    write!(out, " mask {}", OperandText(*mask))?;
    if let Some(p) = probe {
        write!(
            out,
            " arrive {} leave {}{}",
            p.arrive,
            p.leave,
            if p.poll { " poll" } else { "" }
        )?;
    }
    Ok(())
}

fn warp_name(op: WarpOp) -> String {
    match op {
        WarpOp::ShflUp => "shfl_up".into(),
        WarpOp::ShflDown => "shfl_down".into(),
        WarpOp::ShflBfly => "shfl_bfly".into(),
        WarpOp::ShflIdx => "shfl_idx".into(),
        WarpOp::VoteAll => "vote_all".into(),
        WarpOp::VoteAny => "vote_any".into(),
        WarpOp::VoteUni => "vote_uni".into(),
        WarpOp::VoteBallot => "vote_ballot".into(),
        WarpOp::MatchAny(ty) => format!("match_any.{}", ty.name()),
        WarpOp::MatchAll(ty) => format!("match_all.{}", ty.name()),
        WarpOp::Redux(op, ty) => format!("redux.{}.{}", op.text_name(), ty.name()),
        WarpOp::ActiveMask => "activemask".into(),
        WarpOp::Sync => "sync".into(),
        WarpOp::Step => "step".into(),
    }
}

fn mods_text(mods: Modifiers) -> String {
    let mut out = String::new();
    if let Some(rounding) = mods.rounding {
        out.push('.');
        out.push_str(rounding.text_name());
    }
    for (set, name) in [
        (mods.ftz, ".ftz"),
        (mods.sat, ".sat"),
        (mods.approx, ".approx"),
        (mods.full, ".full"),
    ] {
        if set {
            out.push_str(name);
        }
    }
    out
}

fn ftz_text(ftz: bool) -> &'static str {
    if ftz { ".ftz" } else { "" }
}

fn ordering_text(ordering: Ordering) -> String {
    match ordering {
        Ordering::Weak => String::new(),
        other => format!(".{}", other.text_name()),
    }
}

fn operands(out: &mut String, operands: &[Operand]) -> std::fmt::Result {
    operands.iter().try_for_each(|o| write!(out, ", {}", OperandText(*o)))
}

fn vector(operands: &[Operand]) -> String {
    let parts: Vec<String> = operands.iter().map(|o| OperandText(*o).to_string()).collect();
    format!("{{{}}}", parts.join(", "))
}

fn destination(reg: Option<RegId>) -> String {
    reg.map_or_else(|| "_".into(), |r| r.to_string())
}

fn destinations(regs: &[Option<RegId>]) -> String {
    let parts: Vec<String> = regs.iter().map(|r| destination(*r)).collect();
    format!("{{{}}}", parts.join(", "))
}

fn registers(regs: &[RegId]) -> String {
    let parts: Vec<String> = regs.iter().map(ToString::to_string).collect();
    format!("{{{}}}", parts.join(", "))
}

fn address(addr: &Address) -> String {
    let base = match &addr.base {
        AddressBase::Reg(r) => r.to_string(),
        AddressBase::Global(name) => quote(name),
        AddressBase::Absolute => return format!("[{}]", addr.offset),
    };
    match addr.offset {
        0 => format!("[{base}]"),
        n if n > 0 => format!("[{base}+{n}]"),
        n => format!("[{base}{n}]"),
    }
}

//! Instructions.

use super::error::ParseError;
use super::line::Line;
use super::scope::Scope;
use crate::entity::RegId;
use crate::inst::{Address, AddressBase, AluOp, Guard, Modifiers, Op, Operand, Ordering, Rounding, WarpOp, WarpProbe};
use crate::text::limits::MAX_LIST;
use crate::text::names::TextName;
use crate::types::Type;

/// `@%r1` or `@!%r1`, if the line starts so.
pub(super) fn guard(line: &mut Line<'_>, scope: &Scope) -> Result<Option<Guard>, ParseError> {
    if line.accept("@") {
        predicate(line, scope).map(Some)
    } else {
        Ok(None)
    }
}

/// `%r1` or `!%r1`.
pub(super) fn predicate(line: &mut Line<'_>, scope: &Scope) -> Result<Guard, ParseError> {
    let negated = line.accept("!");
    Ok(Guard {
        pred: scope.register(line)?,
        negated,
    })
}

/// A register or a number.
pub(super) fn operand(line: &mut Line<'_>, scope: &Scope) -> Result<Operand, ParseError> {
    if line.starts_with('%') {
        return Ok(Operand::Reg(scope.register(line)?));
    }
    Ok(Operand::Imm(line.u64("a register or a number")?))
}

/// What an instruction does; the guard has been read.
pub(super) fn op(line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let mut at_mnemonic = line.clone();
    match line.word("an instruction or a terminator")? {
        "mov" => mov(line, scope),
        "pack" => pack(line, scope),
        "unpack" => unpack(line, scope),
        "addrof" => addr_of(line, scope),
        "special" => special(line, scope),
        "setp" => setp(line, scope),
        "set" => set(line, scope),
        "selp" => selp(line, scope),
        "cvt" => cvt(line, scope),
        "ld" => load(line, scope),
        "st" => store(line, scope),
        "atom" => atom(line, scope),
        "membar" => Ok(Op::Membar {
            scope: line.suffix("a scope: .cta, .gpu or .sys")?,
        }),
        "nanosleep" => Ok(Op::Nanosleep {
            duration: operand(line, scope)?,
        }),
        "warp" => warp(line, scope),
        "opaque" => opaque(line, scope),
        name => match AluOp::from_text_name(name) {
            Some(op) => alu(op, line, scope),
            None => Err(at_mnemonic.expected("an instruction or a terminator")),
        },
    }
}

fn alu(op: AluOp, line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let ty = type_suffix(line)?;
    let mods = modifiers(line);
    let dst = scope.register(line)?;
    Ok(Op::Alu {
        op,
        ty,
        mods,
        dst,
        srcs: operands_after(line, scope)?,
    })
}

fn mov(line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let ty = type_suffix(line)?;
    let dst = scope.register(line)?;
    Ok(Op::Mov {
        ty,
        dst,
        src: next_operand(line, scope)?,
    })
}

fn pack(line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let ty = type_suffix(line)?;
    let dst = scope.register(line)?;
    line.punctuation(",")?;
    Ok(Op::Pack {
        ty,
        dst,
        srcs: line.list(|line| operand(line, scope))?,
    })
}

fn unpack(line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let ty = type_suffix(line)?;
    let dsts = line.list(|line| destination(line, scope))?;
    Ok(Op::Unpack {
        ty,
        dsts,
        src: next_operand(line, scope)?,
    })
}

fn addr_of(line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let space = line.suffix("a state space")?;
    let dst = scope.register(line)?;
    line.punctuation(",")?;
    Ok(Op::AddrOf {
        dst,
        space,
        addr: address(line, scope)?,
    })
}

fn special(line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let dst = scope.register(line)?;
    line.punctuation(",")?;
    Ok(Op::ReadSpecial {
        dst,
        special: line.name("a special register")?,
    })
}

fn setp(line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let cmp = line.suffix("a comparison")?;
    let ty = type_suffix(line)?;
    let ftz = line.accept_suffix_word("ftz");
    let dst = scope.register(line)?;
    let dst_not = if line.accept("|") {
        Some(scope.register(line)?)
    } else {
        None
    };
    let a = next_operand(line, scope)?;
    let b = next_operand(line, scope)?;
    let combine = if line.accept(",") {
        let op = line.name("and, or or xor")?;
        let guard = predicate(line, scope)?;
        Some((op, guard.pred, guard.negated))
    } else {
        None
    };
    Ok(Op::Setp {
        cmp,
        ty,
        ftz,
        dst,
        dst_not,
        a,
        b,
        combine,
    })
}

fn set(line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let cmp = line.suffix("a comparison")?;
    let dst_ty = type_suffix(line)?;
    let ty = type_suffix(line)?;
    let ftz = line.accept_suffix_word("ftz");
    let dst = scope.register(line)?;
    let a = next_operand(line, scope)?;
    Ok(Op::Set {
        cmp,
        dst_ty,
        ty,
        ftz,
        dst,
        a,
        b: next_operand(line, scope)?,
    })
}

fn selp(line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let ty = type_suffix(line)?;
    let dst = scope.register(line)?;
    let a = next_operand(line, scope)?;
    let b = next_operand(line, scope)?;
    line.punctuation(",")?;
    Ok(Op::Selp {
        ty,
        dst,
        a,
        b,
        pred: scope.register(line)?,
    })
}

fn cvt(line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let dst_ty = type_suffix(line)?;
    let src_ty = type_suffix(line)?;
    let mods = modifiers(line);
    let dst = scope.register(line)?;
    Ok(Op::Cvt {
        dst_ty,
        src_ty,
        mods,
        dst,
        src: next_operand(line, scope)?,
    })
}

fn load(line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let space = line.suffix("a state space")?;
    let ordering = line.accept_suffix().unwrap_or(Ordering::Weak);
    let ty = type_suffix(line)?;
    let dsts = if line.starts_with('{') {
        line.list(|line| destination(line, scope))?
    } else {
        vec![destination(line, scope)?]
    };
    line.punctuation(",")?;
    Ok(Op::Load {
        space,
        ty,
        ordering,
        dsts,
        addr: address(line, scope)?,
    })
}

fn store(line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let space = line.suffix("a state space")?;
    let ordering = line.accept_suffix().unwrap_or(Ordering::Weak);
    let ty = type_suffix(line)?;
    let addr = address(line, scope)?;
    line.punctuation(",")?;
    let srcs = if line.starts_with('{') {
        line.list(|line| operand(line, scope))?
    } else {
        vec![operand(line, scope)?]
    };
    Ok(Op::Store {
        space,
        ty,
        ordering,
        addr,
        srcs,
    })
}

fn atom(line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let op = line.suffix("an atomic operation")?;
    let space = line.suffix("a state space")?;
    let ordering = line.suffix("an ordering")?;
    let atom_scope = line.suffix("a scope: .cta, .gpu or .sys")?;
    let ty = type_suffix(line)?;
    let dst = destination(line, scope)?;
    line.punctuation(",")?;
    let addr = address(line, scope)?;
    Ok(Op::Atom {
        op,
        space,
        ty,
        ordering,
        scope: atom_scope,
        dst,
        addr,
        srcs: operands_after(line, scope)?,
    })
}

fn warp(line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let op = warp_op(line)?;
    let dst = destination(line, scope)?;
    line.punctuation("|")?;
    let dst_pred = destination(line, scope)?;
    let srcs = operands_after(line, scope)?;
    line.keyword("mask")?;
    let mask = operand(line, scope)?;
    let probe = if line.accept_word("arrive") {
        let arrive = scope.resume_point(line)?;
        line.keyword("leave")?;
        let leave = scope.resume_point(line)?;
        Some(WarpProbe {
            arrive,
            leave,
            poll: line.accept_word("poll"),
        })
    } else {
        None
    };
    Ok(Op::Warp {
        op,
        dst,
        dst_pred,
        srcs,
        mask,
        probe,
    })
}

fn warp_op(line: &mut Line<'_>) -> Result<WarpOp, ParseError> {
    const PLAIN: [(&str, WarpOp); 11] = [
        ("shfl_up", WarpOp::ShflUp),
        ("shfl_down", WarpOp::ShflDown),
        ("shfl_bfly", WarpOp::ShflBfly),
        ("shfl_idx", WarpOp::ShflIdx),
        ("vote_all", WarpOp::VoteAll),
        ("vote_any", WarpOp::VoteAny),
        ("vote_uni", WarpOp::VoteUni),
        ("vote_ballot", WarpOp::VoteBallot),
        ("activemask", WarpOp::ActiveMask),
        ("sync", WarpOp::Sync),
        ("step", WarpOp::Step),
    ];
    if let Some((_, op)) = PLAIN.into_iter().find(|(name, _)| line.accept_suffix_word(name)) {
        return Ok(op);
    }
    if line.accept_suffix_word("match_any") {
        return Ok(WarpOp::MatchAny(type_suffix(line)?));
    }
    if line.accept_suffix_word("match_all") {
        return Ok(WarpOp::MatchAll(type_suffix(line)?));
    }
    if line.accept_suffix_word("redux") {
        let op = line.suffix("a reduction")?;
        return Ok(WarpOp::Redux(op, type_suffix(line)?));
    }
    Err(line.expected("a warp-level operation"))
}

fn opaque(line: &mut Line<'_>, scope: &Scope) -> Result<Op, ParseError> {
    let text = line.string("the instruction's PTX")?;
    line.keyword("uses")?;
    let uses = line.list(|line| scope.register(line))?;
    line.keyword("defs")?;
    let defs = line.list(|line| scope.register(line))?;
    Ok(Op::Opaque { text, uses, defs })
}

fn type_suffix(line: &mut Line<'_>) -> Result<Type, ParseError> {
    line.suffix("a type")
}

fn modifiers(line: &mut Line<'_>) -> Modifiers {
    Modifiers {
        rounding: line.accept_suffix::<Rounding>(),
        ftz: line.accept_suffix_word("ftz"),
        sat: line.accept_suffix_word("sat"),
        approx: line.accept_suffix_word("approx"),
        full: line.accept_suffix_word("full"),
    }
}

fn destination(line: &mut Line<'_>, scope: &Scope) -> Result<Option<RegId>, ParseError> {
    if line.accept_word("_") {
        Ok(None)
    } else {
        scope.register(line).map(Some)
    }
}

fn next_operand(line: &mut Line<'_>, scope: &Scope) -> Result<Operand, ParseError> {
    line.punctuation(",")?;
    operand(line, scope)
}

/// Operands, each after a comma, as long as there are any.
fn operands_after(line: &mut Line<'_>, scope: &Scope) -> Result<Vec<Operand>, ParseError> {
    let mut operands = Vec::new();
    while line.accept(",") {
        if operands.len() == MAX_LIST {
            return Err(line.limit("operands", MAX_LIST));
        }
        operands.push(operand(line, scope)?);
    }
    Ok(operands)
}

fn address(line: &mut Line<'_>, scope: &Scope) -> Result<Address, ParseError> {
    line.punctuation("[")?;
    let base = if line.starts_with('%') {
        AddressBase::Reg(scope.register(line)?)
    } else if line.starts_with('"') {
        AddressBase::Global(line.string("a variable's name")?)
    } else {
        AddressBase::Absolute
    };
    let has_offset = base == AddressBase::Absolute || line.starts_with('+') || line.starts_with('-');
    let offset = if has_offset { line.i64("an offset")? } else { 0 };
    line.punctuation("]")?;
    Ok(Address { base, offset })
}

//! Terminators.

use super::error::ParseError;
use super::inst;
use super::line::Line;
use super::scope::Scope;
use crate::basic_block::{BarrierProbe, BarrierReduction, Terminator};

/// The terminator on this line; `None` if the line is an instruction.
pub(super) fn terminator(line: &mut Line<'_>, scope: &mut Scope) -> Result<Option<Terminator>, ParseError> {
    let terminator = if line.accept_word("jump") {
        Terminator::Jump(scope.block(line)?)
    } else if line.accept_word("br") {
        let guard = inst::predicate(line, scope)?;
        line.punctuation(",")?;
        let taken = scope.block(line)?;
        line.punctuation(",")?;
        Terminator::Branch {
            guard,
            taken,
            not_taken: scope.block(line)?,
        }
    } else if line.accept_word("exit") {
        Terminator::Exit
    } else if line.accept_word("trap") {
        Terminator::Trap
    } else if line.accept_word("barrier") {
        barrier(line, scope)?
    } else if line.accept_word("poll") {
        let resume_point = scope.resume_point(line)?;
        line.punctuation(",")?;
        Terminator::Poll {
            resume_point,
            next: scope.block(line)?,
        }
    } else {
        return Ok(None);
    };
    Ok(Some(terminator))
}

fn barrier(line: &mut Line<'_>, scope: &mut Scope) -> Result<Terminator, ParseError> {
    let id = inst::operand(line, scope)?;
    let count = if line.accept_word("count") {
        Some(inst::operand(line, scope)?)
    } else {
        None
    };
    let reduction = if line.accept_word("red") {
        let op = line.name("and, or or popc")?;
        let dst = scope.register(line)?;
        line.punctuation(",")?;
        Some(BarrierReduction {
            op,
            dst,
            src: inst::predicate(line, scope)?,
        })
    } else {
        None
    };
    let probe = if line.accept_word("arrive") {
        let arrive = scope.resume_point(line)?;
        line.keyword("leave")?;
        Some(BarrierProbe {
            arrive,
            leave: scope.resume_point(line)?,
        })
    } else {
        None
    };
    line.keyword("next")?;
    Ok(Terminator::Barrier {
        id,
        count,
        reduction,
        probe,
        next: scope.block(line)?,
    })
}

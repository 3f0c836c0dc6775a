//! Says whether a kernel keeps hetIR's rules. Never repairs anything.
//!
//! After `Ok`, later stages may return an error but never panic. What a rule says is documented at its variant of
//! [`Rule`]; in short:
//!
//! * [`structure`]: ids of registers, basic blocks and resume points are in range, and there is one for each; `bb0`
//!   exists and has no predecessors; parameters, shared segment and local frame are laid out soundly.
//! * [`arithmetic`]: each instruction has the number of operands its operation takes; its type is one the operation is
//!   defined for; registers are as wide as the type (for conversions, as wide or wider, as in PTX); immediates
//!   have no bits beyond their type.
//! * [`memory`]: the same for loads, stores and atomics; address registers are 64 bits wide for the global space and
//!   generic addresses, 32 or 64 for others; constant parameter and local addresses stay inside; parameters are not
//!   written.
//! * [`barriers_and_warps`]: the same for barriers and warp-level operations.
//! * [`probes`]: no probe without resume points; `rp0` is the entry and the only one of its kind; each probe's resume
//!   points are of its kind; a probed barrier's block holds nothing else; a probed warp-level operation stands alone
//!   and unguarded in its block, followed by a jump. In a probed kernel ([`probed_kernel`]) each resume point also
//!   lies where its probe goes on; a continuation's clones need not ([`kernel`]).

pub mod error;
pub mod structure;
pub mod arithmetic;
pub mod memory;
pub mod barriers_and_warps;
pub mod probes;
mod operand;
#[cfg(test)]
mod tests;

use crate::entity::{BbId, Span};
use crate::inst::{Inst, Op};
use crate::kernel::Kernel;
use crate::types::Type;
pub use error::{Rule, ValidationError};
use operand::Operands;

/// Checks a kernel of any stage: lowered, probed, or a continuation.
///
/// # Errors
/// The first rule that is broken, and where. After the front end, the fault lies with it; after a pass, with that pass;
/// after parsing, with the text.
pub fn kernel(kernel: &Kernel) -> Result<(), ValidationError> {
    let whole = |rule| ValidationError {
        kernel: kernel.name.clone(),
        block: None,
        inst: None,
        span: Span::default(),
        rule,
    };
    structure::header(kernel).map_err(whole)?;
    probes::resume_points(kernel).map_err(whole)?;
    for (id, block) in kernel.iter_blocks() {
        let at = |inst, span| {
            move |rule| ValidationError {
                kernel: kernel.name.clone(),
                block: Some(id),
                inst,
                span,
                rule,
            }
        };
        for (index, inst) in block.insts.iter().enumerate() {
            instruction(kernel, inst).map_err(at(Some(index), inst.span))?;
        }
        let at_end = at(None, block.span);
        structure::terminator(kernel, &block.terminator)
            .and_then(|()| barriers_and_warps::terminator(kernel, &block.terminator))
            .and_then(|()| probes::block(kernel, block))
            .map_err(at_end)?;
    }
    Ok(())
}

/// Checks what the probe pass puts out: [`kernel`], and resume points lie where their probes go on.
///
/// # Errors
/// As [`kernel`].
pub fn probed_kernel(probed: &Kernel) -> Result<(), ValidationError> {
    kernel(probed)?;
    let at = |block: BbId, rule| ValidationError {
        kernel: probed.name.clone(),
        block: Some(block),
        inst: None,
        span: probed.blocks[block.index()].span,
        rule,
    };
    probed
        .iter_blocks()
        .try_for_each(|(id, block)| probes::placement(probed, id, block).map_err(|rule| at(id, rule)))
}

fn instruction(kernel: &Kernel, inst: &Inst) -> Result<(), Rule> {
    structure::registers(kernel, inst)?;
    let operands = Operands { kernel };
    if let Some(guard) = inst.guard {
        operands.predicate(guard.pred)?;
    }
    match &inst.op {
        Op::Alu { .. } => arithmetic::alu(operands, &inst.op),
        Op::Mov { .. } | Op::Pack { .. } | Op::Unpack { .. } | Op::ReadSpecial { .. } => {
            arithmetic::moves(operands, &inst.op)
        }
        Op::Setp { .. } | Op::Set { .. } | Op::Selp { .. } => arithmetic::compare(operands, &inst.op),
        Op::Cvt { .. } => arithmetic::convert(operands, &inst.op),
        Op::AddrOf { .. } | Op::Load { .. } | Op::Store { .. } | Op::Atom { .. } => memory::access(operands, &inst.op),
        Op::Nanosleep { duration } => operands.source(*duration, Type::U32),
        Op::Warp { .. } => barriers_and_warps::warp(operands, &inst.op),
        Op::Membar { .. } | Op::Opaque { .. } => Ok(()),
    }
}

//! Ids in range, the entry block, parameters and segments.

use super::error::{Rule, SegmentName};
use crate::basic_block::Terminator;
use crate::entity::{MAX_ENTITIES, RegId};
use crate::inst::Inst;
use crate::kernel::{Kernel, Param, Variable};

/// Everything outside the basic blocks.
pub(super) fn header(kernel: &Kernel) -> Result<(), Rule> {
    if kernel.blocks.is_empty() {
        return Err(Rule::NoBlocks);
    }
    for (what, found) in [
        ("registers", kernel.registers.len()),
        ("basic blocks", kernel.blocks.len()),
        ("resume points", kernel.resume_points.len()),
    ] {
        if found > MAX_ENTITIES {
            return Err(Rule::TooMany { what, found });
        }
    }
    if let Some(i) = kernel.params.iter().position(|p| !is_sound(p)) {
        return Err(Rule::ParameterLayout(i));
    }
    segment(
        SegmentName::Shared,
        kernel.shared.static_bytes,
        &kernel.shared.variables,
    )?;
    segment(SegmentName::Local, kernel.local.size_bytes, &kernel.local.variables)
}

fn is_sound(p: &Param) -> bool {
    p.align_bytes.is_power_of_two()
        && p.offset.is_multiple_of(p.align_bytes)
        && p.offset.checked_add(p.size_bytes).is_some()
}

fn segment(space: SegmentName, size_bytes: u32, variables: &[Variable]) -> Result<(), Rule> {
    let fits = |v: &Variable| v.offset.checked_add(v.size_bytes).is_some_and(|end| end <= size_bytes);
    let is_sound = size_bytes.is_multiple_of(16) && variables.iter().all(fits);
    if is_sound {
        Ok(())
    } else {
        Err(Rule::SegmentLayout { space })
    }
}

/// Registers of an instruction exist.
pub(super) fn registers(kernel: &Kernel, inst: &Inst) -> Result<(), Rule> {
    let mut missing = None;
    let mut check = |reg: RegId| {
        if reg.index() >= kernel.registers.len() {
            missing = Some(reg);
        }
    };
    inst.for_each_use(&mut check);
    inst.for_each_def(&mut check);
    missing.map_or(Ok(()), |reg| Err(Rule::NoSuchRegister(reg)))
}

/// Registers and basic blocks of a terminator exist; none leads to the entry.
pub(super) fn terminator(kernel: &Kernel, terminator: &Terminator) -> Result<(), Rule> {
    let mut missing = None;
    let mut check = |reg: RegId| {
        if reg.index() >= kernel.registers.len() {
            missing = Some(reg);
        }
    };
    terminator.for_each_use(&mut check);
    terminator.def().into_iter().for_each(&mut check);
    if let Some(reg) = missing {
        return Err(Rule::NoSuchRegister(reg));
    }
    for successor in terminator.successors() {
        if successor.index() >= kernel.blocks.len() {
            return Err(Rule::NoSuchBlock(successor));
        }
        if successor == Kernel::ENTRY {
            return Err(Rule::EntryHasPredecessor);
        }
    }
    Ok(())
}

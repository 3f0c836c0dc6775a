//! Resume points and the probes that refer to them.

use super::error::Rule;
use crate::basic_block::{BasicBlock, Terminator};
use crate::entity::{BbId, ResumePointId};
use crate::inst::{Op, WarpProbe};
use crate::kernel::{Kernel, ResumePoint, ResumePointKind as Kind};

/// The table of resume points.
pub(super) fn resume_points(kernel: &Kernel) -> Result<(), Rule> {
    for (i, point) in kernel.resume_points.iter().enumerate() {
        if point.block.index() >= kernel.blocks.len() {
            return Err(Rule::NoSuchBlock(point.block));
        }
        let is_entry = point.kind == Kind::Entry;
        if is_entry != (i == 0) || (is_entry && point.block != Kernel::ENTRY) {
            return Err(Rule::EntryResumePoint);
        }
    }
    Ok(())
}

/// The probes of a block: kinds of their resume points, and that they stand alone.
pub(super) fn block(kernel: &Kernel, block: &BasicBlock) -> Result<(), Rule> {
    match &block.terminator {
        Terminator::Poll { resume_point, .. } => {
            let is_right = |k| matches!(k, Kind::Entry | Kind::Loop);
            kind(kernel, *resume_point, is_right, "the entry or a loop")?;
        }
        Terminator::Barrier { probe: Some(probe), .. } => {
            kind(
                kernel,
                probe.arrive,
                |k| k == Kind::BarrierArrive,
                "the arrival at a barrier",
            )?;
            kind(
                kernel,
                probe.leave,
                |k| k == Kind::BarrierLeave,
                "the leave from a barrier",
            )?;
            if !block.insts.is_empty() {
                return Err(Rule::NotAlone);
            }
        }
        _ => {}
    }
    for inst in &block.insts {
        let Op::Warp { probe: Some(probe), .. } = &inst.op else {
            continue;
        };
        kind(
            kernel,
            probe.arrive,
            |k| k == Kind::WarpArrive,
            "the arrival at a warp-level operation",
        )?;
        kind(
            kernel,
            probe.leave,
            |k| k == Kind::WarpLeave,
            "the leave from a warp-level operation",
        )?;
        if block.insts.len() != 1 {
            return Err(Rule::NotAlone);
        }
        if inst.guard.is_some() || !matches!(block.terminator, Terminator::Jump(_)) {
            return Err(Rule::ProbedWarpOp);
        }
    }
    Ok(())
}

fn kind(
    kernel: &Kernel,
    point: ResumePointId,
    is_right: impl Fn(Kind) -> bool,
    expected: &'static str,
) -> Result<(), Rule> {
    match kernel.resume_points.get(point.index()) {
        Some(ResumePoint { kind, .. }) if is_right(*kind) => Ok(()),
        Some(ResumePoint { kind, .. }) => Err(Rule::ResumePointKind {
            point,
            found: *kind,
            expected,
        }),
        None => Err(Rule::NoSuchResumePoint(point)),
    }
}

/// Resume points lie where the block's probe goes on.
pub(super) fn placement(kernel: &Kernel, id: BbId, block: &BasicBlock) -> Result<(), Rule> {
    let at = |point: ResumePointId, expected: BbId| match kernel.resume_points[point.index()].block {
        found if found == expected => Ok(()),
        found => Err(Rule::ResumePointPlace { point, found, expected }),
    };
    match &block.terminator {
        Terminator::Poll { resume_point, next } if *resume_point != Kernel::ENTRY_POINT => at(*resume_point, *next),
        Terminator::Barrier {
            probe: Some(probe),
            next,
            ..
        } => {
            at(probe.arrive, id)?;
            at(probe.leave, *next)
        }
        Terminator::Jump(next) => match probed_warp_op(block) {
            Some(probe) => {
                at(probe.arrive, id)?;
                at(probe.leave, *next)
            }
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn probed_warp_op(block: &BasicBlock) -> Option<&WarpProbe> {
    block.insts.iter().find_map(|inst| match &inst.op {
        Op::Warp { probe, .. } => probe.as_ref(),
        _ => None,
    })
}

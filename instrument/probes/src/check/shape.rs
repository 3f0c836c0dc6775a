//! Resume points, barriers, warp-level operations and the entry probe stand as hetIR promises.

use hetckpt_ir::basic_block::{BasicBlock, Terminator};
use hetckpt_ir::entity::{BbId, ResumePointId};
use hetckpt_ir::inst::Op;
use hetckpt_ir::kernel::{Kernel, ResumePointKind};

use super::Violation;

/// What is wrong with the shape of `probed`.
pub fn violations(probed: &Kernel) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut uses = vec![0; probed.resume_points.len()];
    let mut stands = |point: ResumePointId, kind: ResumePointKind, block: BbId| {
        let Some(count) = uses.get_mut(point.index()) else {
            return false;
        };
        *count += 1;
        probed.resume_points[point.index()].kind == kind && probed.resume_points[point.index()].block == block
    };
    for (id, block) in probed.iter_blocks() {
        match &block.terminator {
            Terminator::Poll { resume_point, next } => {
                let (kind, at) = match id {
                    Kernel::ENTRY => (ResumePointKind::Entry, id),
                    _ => (ResumePointKind::Loop, *next),
                };
                if !stands(*resume_point, kind, at) {
                    found.push(Violation::Poll(id));
                }
            }
            Terminator::Barrier {
                probe: Some(probe),
                next,
                ..
            } => {
                let arrives = stands(probe.arrive, ResumePointKind::BarrierArrive, id);
                if !(stands(probe.leave, ResumePointKind::BarrierLeave, *next) && arrives && block.insts.is_empty()) {
                    found.push(Violation::Barrier(id));
                }
            }
            _ => {}
        }
        if let Some(Op::Warp { probe, .. }) = block
            .insts
            .iter()
            .map(|i| &i.op)
            .find(|op| matches!(op, Op::Warp { .. }))
        {
            let is_right = match (probe, &block.terminator, block.insts.as_slice()) {
                (Some(probe), Terminator::Jump(next), [inst]) if inst.guard.is_none() => {
                    stands(probe.arrive, ResumePointKind::WarpArrive, id)
                        & stands(probe.leave, ResumePointKind::WarpLeave, *next)
                }
                _ => false,
            };
            if !is_right {
                found.push(Violation::WarpOp(id));
            }
        }
    }
    if !is_entry_probe(probed) {
        found.push(Violation::Entry);
    }
    let counted = (0u32..).map(ResumePointId).zip(uses);
    found.extend(
        counted
            .filter(|(_, n)| *n != 1)
            .map(|(point, n)| Violation::ResumePoint(point, n)),
    );
    found
}

fn is_entry_probe(probed: &Kernel) -> bool {
    let Some(BasicBlock {
        insts,
        terminator: Terminator::Poll { resume_point, .. },
        ..
    }) = probed.blocks.first()
    else {
        return false;
    };
    let is_pure = insts.iter().all(|inst| !inst.op.has_side_effect());
    let is_target = probed
        .blocks
        .iter()
        .any(|b| b.terminator.successors().contains(&Kernel::ENTRY));
    is_pure && !is_target && *resume_point == Kernel::ENTRY_POINT
}

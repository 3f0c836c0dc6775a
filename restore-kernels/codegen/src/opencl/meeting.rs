//! Whether all threads of a block come together to each barrier and warp-level operation.
//!
//! OpenCL C's `barrier` is for the whole block: each thread must come to the same one, and none may have ended, while
//! CUDA counts threads that have ended as arrived. What cannot be shown to keep that rule is an error, not a hang.
//!
//! # Source
//! OpenCL C 1.2, section 6.12.8. A weak load at the same address gives all threads the same value unless the program has
//! a data race, which CUDA's memory model excludes; [`Uniformity`] does not assume that, so here such loads are
//! presented to it as read-only ones.

use std::collections::BTreeMap;

use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::analysis::definitions::Definitions;
use hetckpt_ir::analysis::dominators::PostDominators;
use hetckpt_ir::analysis::uniformity::{Divergence, Uniformity};
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, RegId, Span};
use hetckpt_ir::inst::{Axis, Inst, Op, Ordering, SpecialReg};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Space;

use super::Error;

/// A place where threads meet.
struct Meeting {
    block: BbId,
    span: Span,
    what: &'static str,
}

/// What is known of a kernel whose threads meet where they must.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// There is a barrier or a warp-level operation.
    pub any: bool,
    /// Registers that all threads of a block have alike.
    pub is_uniform: Vec<bool>,
    /// Branches that they may take differently, and where their ways meet.
    pub divergent: BTreeMap<BbId, Option<BbId>>,
}

/// Checks every barrier and warp-level operation of `kernel`. `restored` are registers that some threads get anew at the
/// start of a block.
///
/// # Errors
/// [`Error::DivergentMeeting`] and [`Error::EndedBeforeMeeting`] with the branch that decides it;
/// [`Error::PartialBarrier`] and [`Error::DivergentMeeting`] without, for which there is none.
pub(super) fn check(kernel: &Kernel, restored: &[(BbId, RegId)]) -> Result<Facts, (Error, Option<BbId>)> {
    let definitions = Definitions::new(kernel);
    let meetings = collect(kernel, &definitions).map_err(|error| (error, None))?;
    if meetings.is_empty() {
        return Ok(Facts::default());
    }
    let judged = with_equal_loads(kernel, restored);
    let uniformity = Uniformity::new(&judged, &definitions);
    let cfg = Cfg::new(kernel);
    let post_dominators = PostDominators::new(&cfg);
    let mut divergent = BTreeMap::new();
    for &branch in cfg.reverse_post_order() {
        if uniformity.branch(branch) == Divergence::BlockUniform {
            continue;
        }
        let join = post_dominators.immediate(branch);
        divergent.insert(branch, join);
        let decided = before(&cfg, cfg.successors(branch), join);
        let Some(meeting) = meetings.iter().find(|m| decided[m.block.index()]) else {
            continue;
        };
        let (name, span, what) = (kernel.name.clone(), meeting.span, meeting.what);
        // A branch that only ends threads decides nothing for those that remain.
        let error = if uniformity.control(meeting.block) == Divergence::BlockUniform {
            Error::EndedBeforeMeeting {
                kernel: name,
                span,
                what,
                branch: kernel.blocks[branch.index()].span,
            }
        } else {
            Error::DivergentMeeting {
                kernel: name,
                span,
                what,
            }
        };
        return Err((error, Some(branch)));
    }
    let is_uniform = |(id, _)| uniformity.register(RegId(id)) == Divergence::BlockUniform;
    Ok(Facts {
        any: true,
        is_uniform: (0u32..).zip(&kernel.registers).map(is_uniform).collect(),
        divergent,
    })
}

fn collect(kernel: &Kernel, definitions: &Definitions) -> Result<Vec<Meeting>, Error> {
    let mut meetings = Vec::new();
    for (block, bb) in kernel.iter_blocks() {
        for inst in &bb.insts {
            if !matches!(inst.op, Op::Warp { .. }) {
                continue;
            }
            let (span, what) = (inst.span, "warp-level operation");
            if inst.guard.is_some() {
                return Err(Error::DivergentMeeting {
                    kernel: kernel.name.clone(),
                    span,
                    what,
                });
            }
            meetings.push(Meeting { block, span, what });
        }
        if let Terminator::Barrier { count, .. } = &bb.terminator {
            let count = count.map(|c| definitions.constant(kernel, c));
            let whole = kernel.bounds.req_ntid.map(|n| n.map(u64::from).iter().product::<u64>());
            if count.is_some_and(|c| c.is_none() || c != whole) {
                return Err(Error::PartialBarrier {
                    kernel: kernel.name.clone(),
                    span: bb.span,
                });
            }
            meetings.push(Meeting {
                block,
                span: bb.span,
                what: "barrier",
            });
        }
    }
    Ok(meetings)
}

/// The kernel with weak loads of memory that threads share marked as read-only ones, and what is restored as divergent.
fn with_equal_loads(kernel: &Kernel, restored: &[(BbId, RegId)]) -> Kernel {
    let mut kernel = kernel.clone();
    for inst in kernel.blocks.iter_mut().flat_map(|block| &mut block.insts) {
        if let Op::Load {
            space: Space::Global | Space::Shared | Space::Generic,
            ordering: ordering @ Ordering::Weak,
            ..
        } = &mut inst.op
        {
            *ordering = Ordering::NonCoherent;
        }
    }
    for &(block, dst) in restored {
        let special = SpecialReg::Tid(Axis::X);
        kernel.blocks[block.index()].insts.push(Inst {
            op: Op::ReadSpecial { dst, special },
            guard: None,
            span: Span::default(),
        });
    }
    kernel
}

/// Blocks that control may come to from `starts` on before it comes to `join`.
pub(super) fn before(cfg: &Cfg, starts: &[BbId], join: Option<BbId>) -> Vec<bool> {
    let mut reached = vec![false; cfg.num_blocks()];
    let mut work = starts.to_vec();
    while let Some(block) = work.pop() {
        if Some(block) != join && !std::mem::replace(&mut reached[block.index()], true) {
            work.extend_from_slice(cfg.successors(block));
        }
    }
    reached
}

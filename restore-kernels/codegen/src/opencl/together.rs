//! Kernels whose threads wait for one another, and always come to the places where they do all together: written as they
//! are, without [`super::rounds`].
//!
//! Each barrier, warp-level operation and probe is a barrier of OpenCL C. At barriers and probes the block looks at the
//! pause word, through its first thread, and may leave a slot and end. Threads that go on from a slot may be out of
//! step, so continuations go in rounds.
//!
//! # Source
//! OpenCL C 1.2, section 6.12.8: each thread of a block must come to the same barrier, and none may have ended. A weak load at
//! the same address gives all threads the same value unless the program has a data race, which CUDA's memory model
//! excludes; [`Uniformity`] does not assume that, so here such loads are presented to it as read-only ones.

use hetckpt_abi::opencl_program::count;
use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::analysis::definitions::Definitions;
use hetckpt_ir::analysis::dominators::PostDominators;
use hetckpt_ir::analysis::uniformity::{Divergence, Uniformity};
use hetckpt_ir::basic_block::{BarrierReduction, BasicBlock, Terminator};
use hetckpt_ir::entity::{BbId, ResumePointId};
use hetckpt_ir::inst::{Inst, Op, Ordering, WarpOp};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Space, Type};

use super::Error;
use super::rounds::{ALL_LANES, outcome_of_votes, value_type, word};
use super::structure::{Cut, Structure};
use super::writer::Writer;

/// Bytes of local memory for each thread, for exchange between lanes.
pub(super) const LANE_BYTES: u32 = 2 * 8;

/// True if all threads of a block come to each barrier, warp-level operation and probe of `kernel` together.
pub(super) fn all_come_together(kernel: &Kernel) -> bool {
    if !Structure::new(kernel, Kernel::ENTRY, Cut::Nowhere).is_reducible() {
        return false;
    }
    let judged = with_equal_loads(kernel);
    let uniformity = Uniformity::new(&judged, &Definitions::new(kernel));
    let cfg = Cfg::new(kernel);
    let post_dominators = PostDominators::new(&cfg);
    let is_meeting: Vec<bool> = kernel.blocks.iter().map(is_meeting).collect();
    cfg.reverse_post_order().iter().all(|&branch| {
        let is_uniform = uniformity.branch(branch) == Divergence::BlockUniform;
        is_uniform || {
            let decided = before(&cfg, cfg.successors(branch), post_dominators.immediate(branch));
            !decided
                .iter()
                .zip(&is_meeting)
                .any(|(decided, meeting)| *decided && *meeting)
        }
    })
}

fn is_meeting(block: &BasicBlock) -> bool {
    let is_warp_op = |inst: &Inst| matches!(inst.op, Op::Warp { .. });
    let is_poll =
        matches!(block.terminator, Terminator::Poll { resume_point, .. } if resume_point != Kernel::ENTRY_POINT);
    is_poll || matches!(block.terminator, Terminator::Barrier { .. }) || block.insts.iter().any(is_warp_op)
}

/// The kernel with weak loads of memory that threads share marked as read-only ones.
fn with_equal_loads(kernel: &Kernel) -> Kernel {
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
    kernel
}

/// Blocks that control may come to from `starts` on before it comes to `join`.
fn before(cfg: &Cfg, starts: &[BbId], join: Option<BbId>) -> Vec<bool> {
    let mut reached = vec![false; cfg.num_blocks()];
    let mut work = starts.to_vec();
    while let Some(block) = work.pop() {
        if Some(block) != join && !std::mem::replace(&mut reached[block.index()], true) {
            work.extend_from_slice(cfg.successors(block));
        }
    }
    reached
}

impl Writer<'_> {
    /// The block meets, and stops at `point` if it is asked to. Threads vote for a reduction that follows.
    pub(super) fn meet(
        &mut self,
        point: Option<ResumePointId>,
        reduction: Option<BarrierReduction>,
    ) -> Result<(), Error> {
        if self.never_stops() && reduction.is_none() {
            self.line("block_barrier();");
            return Ok(());
        }
        self.line("{");
        self.depth += 1;
        self.plain_line("__local uint *const now = round_words + 4 * turn;");
        self.plain_line("turn = turn + 1 & 3;");
        self.open("if (thread == 0)");
        self.plain_line(format_args!(
            "round_words[4 * turn + {}] = 0; round_words[4 * turn + {}] = 0;",
            word::STOP,
            word::VOTES
        ));
        if !self.never_stops() {
            self.take_place();
        }
        self.close();
        if let Some(reduction) = reduction {
            let votes = self.votes(reduction);
            self.plain_line(format_args!("if ({votes}) atomic_inc(&now[{}]);", word::VOTES));
        }
        self.plain_line("block_barrier();");
        if !self.never_stops() {
            let point = point.ok_or_else(|| self.malformed("barrier without probe"))?;
            self.open(format_args!("if (now[{}])", word::STOP));
            self.leave_slot(word::STOP, Some(point))?;
            self.plain_line("return;");
            self.close();
        }
        if let Some(reduction) = reduction {
            self.assign(reduction.dst, outcome_of_votes(reduction.op));
        }
        self.close();
        Ok(())
    }

    /// If the block is asked to stop and there is a slot for it, the first thread says so.
    pub(super) fn take_place(&mut self) {
        self.open("if (*pause)");
        self.plain_line(format_args!(
            "const uint slot = atomic_inc(&counts[{}]);",
            count::STOPPED
        ));
        self.plain_line(format_args!("if (slot < num_stopped) now[{}] = slot + 1;", word::STOP));
        self.plain_line(format_args!("else atomic_dec(&counts[{}]);", count::STOPPED));
        self.close();
    }

    /// Writes a warp-level operation that all threads of the block come to.
    pub(super) fn exchange(&mut self, op: &Op) -> Result<(), Error> {
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
        if *op == WarpOp::Sync {
            self.line("block_barrier();");
            return Ok(());
        }
        let named = self.bits(Type::B32, *mask);
        let mut lines = vec!["__local ulong *const row = lanes + (row_turn ? block_size : 0);".to_owned()];
        if *op != WarpOp::ActiveMask {
            let &value = srcs.first().ok_or_else(|| self.malformed("warp-level operation"))?;
            lines.push(format!("row[thread] = {};", self.bits(value_type(*op), value)));
        }
        lines.push("block_barrier();".to_owned());
        lines.push("row_turn = !row_turn;".to_owned());
        lines.push("__local const ulong *const warp = row + (thread - lane);".to_owned());
        let present = "0xffffffffu >> (32 - warp_size)";
        let members = if named == ALL_LANES || *op == WarpOp::ActiveMask {
            present.to_owned()
        } else {
            format!("{named} & {present}")
        };
        lines.push(format!("const uint members = {members};"));
        self.outcome(*op, (*dst, *dst_pred), (srcs, *mask), &mut lines)?;
        self.scope(&lines);
        Ok(())
    }
}

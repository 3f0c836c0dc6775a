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
use hetckpt_ir::basic_block::BarrierReduction;
use hetckpt_ir::entity::ResumePointId;
use hetckpt_ir::inst::{Op, WarpOp};
use hetckpt_ir::types::Type;

use super::Error;
use super::rounds::{ALL_LANES, outcome_of_votes, value_type, word};
use super::writer::Writer;

/// Bytes of local memory for each thread, for exchange between lanes.
pub(super) const LANE_BYTES: u32 = 2 * 8;

impl Writer<'_> {
    /// The block meets, and stops at `point` if it is asked to. Threads vote for a reduction that follows.
    pub(super) fn meet(
        &mut self,
        point: Option<ResumePointId>,
        reduction: Option<BarrierReduction>,
        mask: Option<usize>,
    ) -> Result<(), Error> {
        if self.never_stops() && reduction.is_none() {
            self.line("block_barrier();");
            return Ok(());
        }
        self.line("{");
        self.depth += 1;
        self.take_turn(!self.never_stops());
        if let Some(reduction) = reduction {
            let votes = self.votes(reduction);
            let on = self.on(mask).map(|on| format!("{on} && ")).unwrap_or_default();
            self.plain_line(format_args!("if ({on}{votes}) atomic_inc(&now[{}]);", word::VOTES));
        }
        self.plain_line("block_barrier();");
        if !self.never_stops() {
            let point = point.ok_or_else(|| self.malformed("barrier without probe"))?;
            self.open(format_args!("if (now[{}])", word::STOP));
            self.leave_slot(word::STOP, Some(point), mask)?;
            self.plain_line("return;");
            self.close();
        }
        if let Some(reduction) = reduction {
            self.assign(reduction.dst, outcome_of_votes(reduction.op));
        }
        self.close();
        Ok(())
    }

    /// The words of this meeting, `now`; those of the next are cleared.
    pub(super) fn take_turn(&mut self, may_stop: bool) {
        self.plain_line("__local uint *const now = round_words + 4 * turn;");
        self.plain_line("turn = turn + 1 & 3;");
        self.open("if (thread == 0)");
        self.plain_line(format_args!(
            "round_words[4 * turn + {}] = 0; round_words[4 * turn + {}] = 0;",
            word::STOP,
            word::VOTES
        ));
        if may_stop {
            self.take_place();
        }
        self.close();
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
    pub(super) fn exchange(&mut self, op: &Op, mask_of_way: Option<usize>) -> Result<(), Error> {
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
        let present = self.present(mask_of_way);
        let members = if named == ALL_LANES || *op == WarpOp::ActiveMask {
            present
        } else {
            format!("{named} & ({present})")
        };
        lines.push(format!("const uint members = {members};"));
        self.outcome(*op, (*dst, *dst_pred), (srcs, *mask), mask_of_way, &mut lines)?;
        self.scope(&lines);
        Ok(())
    }
}

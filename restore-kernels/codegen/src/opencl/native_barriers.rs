//! Kernels whose threads wait for one another, and come to the places where they do all together
//! ([`super::divergent_branches`]): written as they are, without [`super::rounds`].
//!
//! Each barrier, warp-level operation and probe is a barrier of OpenCL C. At probes and at one barrier of each long
//! loop that has no probe the block looks at the pause word, through its first thread, and may leave a slot and end.
//! Where ways with such a place join others there are more barriers ([`super::join_barriers`]). Threads that go on from
//! a slot may be out of step, so continuations go in rounds.
//!
//! # Source
//! OpenCL C 1.2, section 6.12.8: each thread of a block must come to the same barrier, and none may have ended. A weak
//! load at the same address gives all threads the same value unless the program has a data race, which CUDA's memory
//! model excludes; the analysis of uniformity does not assume that, so here such loads are presented to it as read-only
//! ones.

use hetckpt_abi::opencl_program::count;
use hetckpt_ir::basic_block::BarrierReduction;
use hetckpt_ir::entity::{RegId, ResumePointId};
use hetckpt_ir::inst::{Inst, Op, Operand, WarpOp};
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
        let point = point.filter(|_| !self.never_stops());
        if point.is_none() && reduction.is_none() {
            self.line("block_barrier();");
            return Ok(());
        }
        self.line("{");
        self.depth += 1;
        self.take_turn(point.is_some());
        if let Some(reduction) = reduction {
            let votes = self.votes(reduction);
            let on = self.on(mask).map(|on| format!("{on} && ")).unwrap_or_default();
            self.plain_line(format_args!("if ({on}{votes}) atomic_inc(&now[{}]);", word::VOTES));
        }
        self.plain_line("block_barrier();");
        if let Some(point) = point {
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

    /// Computes anew the addresses that instructions after a meeting need.
    pub(super) fn renew_for(&mut self, insts: &[Inst]) -> Result<(), Error> {
        let insts = self.rematerialization.before(insts);
        if insts.is_empty() {
            return Ok(());
        }
        self.plain_line("{");
        self.depth += 1;
        self.plain_line("const uint zero = told[0];");
        self.is_renewing = true;
        let span = std::mem::take(&mut self.span);
        for inst in insts {
            self.inst(&inst)?;
        }
        self.span = span;
        self.is_renewing = false;
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
        self.open(format_args!("if ({})", self.stop_asked()));
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
        if matches!(op, WarpOp::Sync | WarpOp::Step) {
            self.line("block_barrier();");
            return Ok(());
        }
        if is_vote(*op) {
            return self.vote(*op, dst.or(*dst_pred), (srcs, *mask), mask_of_way);
        }
        let mut lines = vec!["__local ulong *const row = lanes + (row_turn ? block_size : 0);".to_owned()];
        if *op != WarpOp::ActiveMask {
            let &value = srcs.first().ok_or_else(|| self.malformed("warp-level operation"))?;
            lines.push(format!("row[thread] = {};", self.bits(value_type(*op), value)));
        }
        lines.push("block_barrier();".to_owned());
        lines.push("row_turn = !row_turn;".to_owned());
        lines.push("__local const ulong *const warp = row + (thread - lane);".to_owned());
        lines.push(self.members(*op, *mask, mask_of_way));
        self.outcome(*op, (*dst, *dst_pred), srcs, mask_of_way, &mut lines)?;
        self.scope(&lines);
        Ok(())
    }

    /// Writes a vote. Its bits are collected in one of four words of the warp in turn, while the next one is cleared;
    /// where sub-groups are warps they vote by themselves.
    fn vote(
        &mut self,
        op: WarpOp,
        dst: Option<RegId>,
        (srcs, mask): (&[Operand], Operand),
        mask_of_way: Option<usize>,
    ) -> Result<(), Error> {
        let &value = srcs.first().ok_or_else(|| self.malformed("warp-level operation"))?;
        let dst = dst.ok_or_else(|| self.malformed("warp-level operation"))?;
        let outcome = match op {
            WarpOp::VoteAll => "votes == members",
            WarpOp::VoteAny => "votes != 0",
            _ => "votes",
        };
        let bit = self.bits(Type::Pred, value);
        let collected = [
            "__local uint *const word = ballots + 32 * vote_turn + (thread >> 5);".to_owned(),
            "vote_turn = vote_turn + 1 & 3;".to_owned(),
            "if (lane == 0) ballots[32 * vote_turn + (thread >> 5)] = 0;".to_owned(),
            format!("if ({bit}) atomic_or(word, 1u << lane);"),
            "block_barrier();".to_owned(),
        ];
        let members = self.members(op, mask, mask_of_way);
        let assignment = self.assignment_on_way(dst, outcome, mask_of_way);
        let lines = if self.votes_in_sub_groups {
            let mut lines = vec![
                "uint bits;".to_owned(),
                "if (are_warps) {".to_owned(),
                format!("    bits = sub_group_ballot({bit}).x;"),
                "} else {".to_owned(),
            ];
            lines.extend(collected.iter().map(|line| format!("    {line}")));
            lines.extend(["    bits = *word;".to_owned(), "}".to_owned(), members]);
            lines.extend(["const uint votes = bits & members;".to_owned(), assignment]);
            lines
        } else {
            let mut lines = collected.to_vec();
            lines.extend([members, "const uint votes = *word & members;".to_owned(), assignment]);
            lines
        };
        self.scope(&lines);
        Ok(())
    }

    /// Declares the lanes that take part in a warp-level operation.
    fn members(&self, op: WarpOp, mask: Operand, mask_of_way: Option<usize>) -> String {
        let named = self.bits(Type::B32, mask);
        let present = self.present(mask_of_way);
        if named == ALL_LANES || op == WarpOp::ActiveMask {
            format!("const uint members = {present};")
        } else {
            format!("const uint members = {named} & ({present});")
        }
    }

    /// `dst = value`, for those whose way this is if others need the register.
    pub(super) fn assignment_on_way(&self, dst: RegId, value: &str, mask_of_way: Option<usize>) -> String {
        let assignment = self.assignment(dst, value);
        match self.on(mask_of_way) {
            Some(on) if self.is_needed_elsewhere(dst, mask_of_way) => format!("if ({on}) {assignment}"),
            _ => assignment,
        }
    }
}

/// True if lanes tell no more than a bit each.
pub(super) const fn is_vote(op: WarpOp) -> bool {
    matches!(op, WarpOp::VoteAll | WarpOp::VoteAny | WarpOp::VoteBallot)
}

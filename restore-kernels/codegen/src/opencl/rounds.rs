//! Kernels whose threads wait for one another: rounds.
//!
//! OpenCL C's `barrier` is for the whole block: each thread must come to the same one, and none may have ended, while
//! CUDA counts threads that have ended as arrived, and lanes of a warp meet in divergent code. So there is one barrier,
//! in one loop that all threads go round together. In a round each thread runs a region, from the resume point that it
//! is at until it waits at another, stops or ends; then, at the barrier, all learn who waits where, and those go on for
//! whom the others have come: past barriers if all who have not ended are at one, past a warp-level operation if the
//! lanes of its member mask are. Threads out of step are nothing special here, and a block stops as a whole, wherever
//! its threads are.
//!
//! What a thread wrote before the barrier, all see after it; what the next round writes must not be what some still
//! read. So the words of a round take turns among four (while one is being added to, nobody reads the next any more,
//! and it is cleared), and the rows through which lanes exchange among two. The turn is the loop's counter, because
//! PoCL 3.1 updates other variables that are the same for the whole block once for each thread.

use std::fmt::Write as _;

use hetckpt_abi::program::Program;
use hetckpt_ir::basic_block::{BarrierProbe, BarrierReduction, BarrierReductionOp, Terminator};
use hetckpt_ir::entity::{RegId, ResumePointId, Span};
use hetckpt_ir::inst::{Op, Operand, ReduxOp, WarpOp, WarpProbe};
use hetckpt_ir::kernel::{Kernel, ResumePointKind};
use hetckpt_ir::types::Type;

use super::Error;
use super::writer::Writer;

/// The member mask of most programs, as it is written.
pub(super) const ALL_LANES: &str = "0xffffffffu";

/// Words of a round, by index: a thread has not ended; one waits elsewhere than at a barrier; the block is to stop, in
/// the slot before this one; votes of a barrier's reduction.
pub(super) mod word {
    pub const LEFT: usize = 0;
    pub const ELSEWHERE: usize = 1;
    pub const STOP: usize = 2;
    pub const VOTES: usize = 3;
}

/// What a round needs to know of the kernel.
pub(super) struct Meetings<'a> {
    barriers: Vec<(BarrierProbe, Option<BarrierReduction>, Span)>,
    warp_ops: Vec<(WarpProbe, &'a Op, Span)>,
}

impl<'a> Meetings<'a> {
    /// All barriers and warp-level operations of a probed kernel.
    pub fn of(kernel: &'a Kernel) -> Self {
        let barriers = kernel.blocks.iter().filter_map(|block| match &block.terminator {
            Terminator::Barrier {
                probe: Some(probe),
                reduction,
                ..
            } => Some((*probe, *reduction, block.span)),
            _ => None,
        });
        let insts = kernel.insts();
        let warp_ops = insts.filter_map(|inst| match &inst.op {
            op @ Op::Warp { probe: Some(probe), .. } => Some((*probe, op, inst.span)),
            _ => None,
        });
        Self {
            barriers: barriers.collect(),
            warp_ops: warp_ops.collect(),
        }
    }

    /// Bytes of local memory for each thread.
    pub fn lane_bytes(&self) -> u32 {
        match (self.warp_ops.is_empty(), self.has_own_masks()) {
            (true, _) => 0,
            (false, false) => 2 * (8 + 4),
            (false, true) => 2 * (8 + 4 + 4),
        }
    }

    /// True if lanes may name different member masks at an operation.
    fn has_own_masks(&self) -> bool {
        let mut masks = self.warp_ops.iter();
        masks.any(|(_, op, _)| {
            matches!(
                op,
                Op::Warp {
                    mask: Operand::Reg(_),
                    ..
                }
            )
        })
    }
}

impl Writer<'_> {
    /// Writes the loop of rounds: a region for each resume point that threads go on from, and what they do together.
    pub(super) fn rounds(&mut self, program: &Program, meetings: &Meetings<'_>) -> Result<(), Error> {
        if !self.landings.is_empty() {
            self.plain_line("uint landing = 0;");
        }
        self.open("for (uint round = 0;; round++)");
        self.open("switch (point)");
        let points = (0u32..).map(ResumePointId).zip(&program.kernel.resume_points);
        let starts = points
            .filter(|(_, point)| !matches!(point.kind, ResumePointKind::BarrierArrive | ResumePointKind::WarpArrive));
        for (point, start) in starts {
            self.span = Span::default();
            self.open(format_args!("case {}:", point.0));
            self.region(Some(point), start.block)?;
            self.close();
        }
        self.close();
        self.depth -= 1;
        self.plain_line("rest:;");
        self.depth += 1;
        self.span = Span::default();
        self.between_regions = true;
        self.tell(meetings)?;
        self.span = Span::default();
        self.plain_line("block_barrier();");
        self.stop()?;
        self.plain_line(format_args!("if (!now[{}]) break;", word::LEFT));
        self.leave_rounds();
        self.go_on(meetings)?;
        // So that the loop has one way back: LLVM makes a loop inside another of one in which some ways leave the
        // variable as it was, and PoCL takes that for one that all threads go round together.
        self.plain_line("point += zero;");
        self.close();
        self.between_regions = false;
        self.land()
    }

    /// Each thread tells the others where it is and what it brings.
    fn tell(&mut self, meetings: &Meetings<'_>) -> Result<(), Error> {
        self.plain_line("__local uint *const now = round_words + 4 * (round & 3);");
        self.open("if (thread == 0)");
        self.plain_line("__local uint *const next = round_words + 4 * (round + 1 & 3);");
        self.plain_line("next[0] = 0; next[1] = 0; next[2] = 0; next[3] = 0;");
        self.take_place();
        self.close();
        self.plain_line(format_args!("if (point != FINISHED) now[{}] = 1;", word::LEFT));
        self.open("switch (point)");
        let mut at_barriers = String::from("case FINISHED:");
        for (probe, reduction, _) in &meetings.barriers {
            let Some(reduction) = reduction else {
                let _ = write!(at_barriers, " case {}:", probe.arrive.0);
                continue;
            };
            let votes = self.votes(*reduction);
            self.plain_line(format_args!(
                "case {}: if ({votes}) atomic_inc(&now[{}]); break;",
                probe.arrive.0,
                word::VOTES
            ));
        }
        self.plain_line(format_args!("{at_barriers} break;"));
        self.plain_line(format_args!("default: now[{}] = 1;", word::ELSEWHERE));
        self.close();
        if !meetings.warp_ops.is_empty() {
            self.tell_lanes(meetings)?;
        }
        self.tell_landings();
        Ok(())
    }

    /// The condition under which a thread votes for a reduction.
    pub(super) fn votes(&self, reduction: BarrierReduction) -> String {
        let condition = self.condition(reduction.src);
        match reduction.op {
            BarrierReductionOp::And => format!("!({condition})"),
            BarrierReductionOp::Or | BarrierReductionOp::Popc => condition,
        }
    }

    fn tell_lanes(&mut self, meetings: &Meetings<'_>) -> Result<(), Error> {
        self.plain_line("__local ulong *const values = lanes + (round & 1 ? block_size : 0);");
        self.plain_line(
            "__local uint *const points = (__local uint *)(lanes + 2 * block_size) + (round & 1 ? block_size : 0);",
        );
        if meetings.has_own_masks() {
            self.plain_line(
                "__local uint *const masks = (__local uint *)(lanes + 3 * block_size) + (round & 1 ? block_size : 0);",
            );
        }
        self.plain_line("points[thread] = point;");
        self.open("switch (point)");
        for (probe, op, span) in &meetings.warp_ops {
            self.span = *span;
            let Op::Warp { op, srcs, mask, .. } = op else { continue };
            let mut text = format!("case {}:", probe.arrive.0);
            if !matches!(op, WarpOp::Sync | WarpOp::Step | WarpOp::ActiveMask) {
                let &value = srcs.first().ok_or_else(|| self.malformed("warp-level operation"))?;
                let _ = write!(text, " values[thread] = {};", self.bits(value_type(*op), value));
            }
            if matches!(mask, Operand::Reg(_)) {
                let _ = write!(text, " masks[thread] = {};", self.bits(Type::B32, *mask));
            }
            self.plain_line(format_args!("{text} break;"));
        }
        self.close();
        Ok(())
    }

    /// If there is a slot for it, the block leaves what it holds and ends. All of its threads may have ended by now.
    fn stop(&mut self) -> Result<(), Error> {
        self.open(format_args!("if (now[{}])", word::STOP));
        self.leave_slot(word::STOP, None, None)?;
        self.plain_line("break;");
        self.close();
        Ok(())
    }

    /// Those go on for whom the others have come.
    fn go_on(&mut self, meetings: &Meetings<'_>) -> Result<(), Error> {
        if !meetings.warp_ops.is_empty() {
            // Once for all operations: compilers copy the functions to each call.
            self.plain_line("const uint first = thread - lane;");
            self.plain_line("const uint2 here = ptx_lanes_waiting(points + first, warp_size, point);");
            self.plain_line("__local const ulong *const warp = values + first;");
        }
        self.open("switch (point)");
        for (probe, reduction, span) in &meetings.barriers {
            self.span = *span;
            let result = reduction.map(|reduction| {
                let value = outcome_of_votes(reduction.op);
                format!(" {}", self.assignment(reduction.dst, value))
            });
            self.line(format_args!(
                "case {}: if (!now[{}]) {{ point = {};{} }} break;",
                probe.arrive.0,
                word::ELSEWHERE,
                probe.leave.0,
                result.unwrap_or_default()
            ));
        }
        for (probe, op, span) in &meetings.warp_ops {
            self.span = *span;
            self.open(format_args!("case {}:", probe.arrive.0));
            for line in self
                .meeting_of_lanes(*probe, op)?
                .iter()
                .filter(|line| !line.is_empty())
            {
                self.plain_line(line);
            }
            self.plain_line("break;");
            self.close();
        }
        self.close();
        Ok(())
    }

    /// Statements by which a lane takes part in a warp-level operation, if all that it names have come.
    fn meeting_of_lanes(&self, probe: WarpProbe, op: &Op) -> Result<Vec<String>, Error> {
        let Op::Warp {
            op,
            dst,
            dst_pred,
            srcs,
            mask,
            ..
        } = op
        else {
            return Ok(Vec::new());
        };
        let mut lines: Vec<String> = self.waits_for_others(probe.arrive).into_iter().collect();
        let named = self.bits(Type::B32, *mask);
        match mask {
            Operand::Imm(_) => lines.push("const uint members = here.x;".to_owned()),
            Operand::Reg(_) => {
                lines.push(format!("const uint mask = {named};"));
                lines.push("const uint members = ptx_lanes_naming(masks + first, here.x, mask);".to_owned());
            }
        }
        if !matches!(op, WarpOp::ActiveMask | WarpOp::Step) {
            let missing = if named == ALL_LANES {
                "here.y & ~members".to_owned()
            } else {
                format!("{named} & here.y & ~members")
            };
            lines.push(format!("if ({missing}) break;"));
        }
        self.outcome(*op, (*dst, *dst_pred), srcs, None, &mut lines)?;
        lines.push(format!("point = {};", probe.leave.0));
        Ok(lines)
    }

    /// Statements that give a lane its results. They name `warp`, the warp's values, and `members`, the lanes that take
    /// part.
    pub(super) fn outcome(
        &self,
        op: WarpOp,
        (dst, dst_pred): (Option<RegId>, Option<RegId>),
        srcs: &[Operand],
        mask_of_way: Option<usize>,
        lines: &mut Vec<String>,
    ) -> Result<(), Error> {
        let (value, pred) = match op {
            WarpOp::ShflUp | WarpOp::ShflDown | WarpOp::ShflBfly | WarpOp::ShflIdx => {
                let [_, b, c] = *srcs else {
                    return Err(self.malformed("shuffle"));
                };
                let function = shuffle(op);
                let (b, c) = (self.bits(Type::B32, b), self.bits(Type::B32, c));
                lines.push(format!("uint from = {function}(lane, {b}, {c});"));
                lines.push("const bool inside = from < 32;".to_owned());
                lines.push("from = inside ? from : lane;".to_owned());
                (
                    "members >> from & 1 ? (uint)warp[from] : 0".to_owned(),
                    "inside".to_owned(),
                )
            }
            WarpOp::VoteAll => (String::new(), "ptx_ballot(warp, members) == members".to_owned()),
            WarpOp::VoteAny => (String::new(), "ptx_ballot(warp, members) != 0".to_owned()),
            WarpOp::VoteUni => (String::new(), "ptx_match(warp, members, lane) == members".to_owned()),
            WarpOp::VoteBallot => ("ptx_ballot(warp, members)".to_owned(), String::new()),
            WarpOp::MatchAny(_) => ("ptx_match(warp, members, lane)".to_owned(), String::new()),
            WarpOp::MatchAll(_) => {
                lines.push("const bool equal = ptx_match(warp, members, lane) == members;".to_owned());
                ("equal ? members : 0".to_owned(), "equal".to_owned())
            }
            WarpOp::Redux(op, ty) => (format!("{}(warp, members)", redux(op, ty)), String::new()),
            WarpOp::ActiveMask => ("members".to_owned(), String::new()),
            WarpOp::Sync | WarpOp::Step => return Ok(()),
        };
        for (dst, value) in [(dst, value), (dst_pred, pred)] {
            match dst {
                Some(_) if value.is_empty() => return Err(self.malformed("warp-level operation")),
                Some(dst) => lines.push(self.assignment_on_way(dst, &value, mask_of_way)),
                None => {}
            }
        }
        Ok(())
    }
}

/// What the votes for a reduction come to.
pub(super) fn outcome_of_votes(op: BarrierReductionOp) -> String {
    let votes = format!("now[{}]", word::VOTES);
    match op {
        BarrierReductionOp::And => format!("{votes} == 0"),
        BarrierReductionOp::Or => format!("{votes} != 0"),
        BarrierReductionOp::Popc => votes,
    }
}

pub(super) fn value_type(op: WarpOp) -> Type {
    match op {
        WarpOp::VoteAll | WarpOp::VoteAny | WarpOp::VoteUni | WarpOp::VoteBallot => Type::Pred,
        WarpOp::MatchAny(ty) | WarpOp::MatchAll(ty) | WarpOp::Redux(_, ty) => ty,
        _ => Type::B32,
    }
}

const fn shuffle(op: WarpOp) -> &'static str {
    match op {
        WarpOp::ShflUp => "ptx_shfl_up",
        WarpOp::ShflDown => "ptx_shfl_down",
        WarpOp::ShflBfly => "ptx_shfl_bfly",
        _ => "ptx_shfl_idx",
    }
}

const fn redux(op: ReduxOp, ty: Type) -> &'static str {
    match (op, ty.is_signed()) {
        (ReduxOp::Add, _) => "ptx_redux_add",
        (ReduxOp::Min, false) => "ptx_redux_min_u32",
        (ReduxOp::Min, true) => "ptx_redux_min_s32",
        (ReduxOp::Max, false) => "ptx_redux_max_u32",
        (ReduxOp::Max, true) => "ptx_redux_max_s32",
        (ReduxOp::And, _) => "ptx_redux_and",
        (ReduxOp::Or, _) => "ptx_redux_or",
        (ReduxOp::Xor, _) => "ptx_redux_xor",
    }
}

//! Barriers, and what takes the place of warps: exchange through local memory.
//!
//! Both use what a barrier says: what a thread wrote before the last one, all see after it. A reduction takes turns among
//! three words, so that one barrier is enough: while one is being added to, nobody reads the next any more, and it is
//! cleared for the following reduction. Lanes exchange through two rows of words, one of each thread, in turns: nobody
//! comes to the second write of a row before all have read the first. A lane's partners are those of its member mask that
//! are present: lanes that meet name the same.

use hetckpt_ir::basic_block::{BarrierReduction, BarrierReductionOp};
use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Op, Operand, ReduxOp, WarpOp};
use hetckpt_ir::types::Type;

use super::Error;
use super::writer::Writer;

/// The member mask of most programs, as it is written.
const ALL_LANES: &str = "0xffffffffu";

impl Writer<'_> {
    /// Writes a barrier of the whole block.
    pub(super) fn barrier(&mut self, reduction: Option<BarrierReduction>) {
        let Some(BarrierReduction { op, dst, src }) = reduction else {
            self.line("block_barrier();");
            return;
        };
        let present = if self.presence.has_absent() { "!absent && " } else { "" };
        let (condition, result) = match op {
            BarrierReductionOp::And => (format!("!({})", self.condition(src)), "reduction[turn] == 0"),
            BarrierReductionOp::Or => (self.condition(src), "reduction[turn] != 0"),
            BarrierReductionOp::Popc => (self.condition(src), "reduction[turn]"),
        };
        let result = self.assignment(dst, result);
        self.scope(&[
            format!("if ({present}{condition}) atomic_inc(&reduction[turn]);"),
            "if (thread == 0) reduction[turn == 2 ? 0 : turn + 1] = 0;".to_owned(),
            "block_barrier();".to_owned(),
            result,
            "turn = turn == 2 ? 0 : turn + 1;".to_owned(),
        ]);
    }

    /// Writes a warp-level operation that all threads of the block come to.
    pub(super) fn warp(&mut self, op: &Op) -> Result<(), Error> {
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
        if *op == WarpOp::ActiveMask {
            let Some(dst) = dst else { return Ok(()) };
            let mut lines = self.exchange("0", ALL_LANES);
            lines.push(self.assignment(*dst, "members"));
            self.scope(&lines);
            return Ok(());
        }
        let &value = srcs.first().ok_or_else(|| self.malformed("warp-level operation"))?;
        let mut lines = self.exchange(&self.bits(value_type(*op), value), &self.bits(Type::B32, *mask));
        self.outcome(*op, (*dst, *dst_pred), (srcs, *mask), &mut lines)?;
        self.scope(&lines);
        Ok(())
    }

    /// Statements after which `warp` holds the lanes' values and `members` says which lanes are there.
    fn exchange(&self, value: &str, mask: &str) -> Vec<String> {
        let mut lines = vec![
            "__local ulong *const row = lanes + (turn_of_lanes ? block_size : 0);".to_owned(),
            format!("row[thread] = {value};"),
        ];
        if self.presence.has_absent() {
            lines.push("row[2 * block_size + thread] = !absent;".to_owned());
        }
        lines.push("block_barrier();".to_owned());
        lines.push("turn_of_lanes = !turn_of_lanes;".to_owned());
        lines.push("__local const ulong *const warp = row + (thread - lane);".to_owned());
        let present = if self.presence.has_absent() {
            "ptx_ballot(warp + 2 * block_size, ptx_lanes_below(warp_size))"
        } else {
            "ptx_lanes_below(warp_size)"
        };
        lines.push(if mask == ALL_LANES {
            format!("const uint members = {present};")
        } else {
            format!("const uint mask = {mask}, members = mask & {present};")
        });
        lines
    }

    fn outcome(
        &self,
        op: WarpOp,
        (dst, dst_pred): (Option<RegId>, Option<RegId>),
        (srcs, mask): (&[Operand], Operand),
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
                let mask = self.bits(Type::B32, mask);
                let mask = if mask == ALL_LANES { ALL_LANES } else { "mask" };
                (format!("equal ? {mask} : 0"), "equal".to_owned())
            }
            WarpOp::Redux(op, ty) => (format!("{}(warp, members)", redux(op, ty)), String::new()),
            WarpOp::ActiveMask | WarpOp::Sync => return Ok(()),
        };
        for (dst, value) in [(dst, value), (dst_pred, pred)] {
            match dst {
                Some(_) if value.is_empty() => return Err(self.malformed("warp-level operation")),
                Some(dst) => lines.push(self.assignment(dst, value)),
                None => {}
            }
        }
        Ok(())
    }
}

fn value_type(op: WarpOp) -> Type {
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

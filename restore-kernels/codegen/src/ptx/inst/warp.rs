//! Warp-level operations (PTX ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "activemask",
//! "bar.warp.sync").

use hetckpt_ir::inst::{Op, Operand, ReduxOp, WarpOp};
use hetckpt_ir::types::{Type, Width};

use super::super::Error;
use super::super::writer::Writer;

impl Writer<'_> {
    /// Writes a warp-level operation. Its probe asks nothing: no lane has stopped that it would wait for
    /// ([`super::super::poll_plan`]).
    pub(super) fn warp(&mut self, guard: &str, op: &Op) -> Result<(), Error> {
        let Op::Warp {
            op,
            dst,
            dst_pred,
            srcs,
            mask,
            probe: _,
        } = op
        else {
            return Ok(());
        };
        // GPUs run lanes in step.
        if *op == WarpOp::Step {
            return Ok(());
        }
        let mask = self.operand(Type::B32, *mask);
        let source_ty = match op {
            WarpOp::VoteAll | WarpOp::VoteAny | WarpOp::VoteUni | WarpOp::VoteBallot => Type::Pred,
            WarpOp::MatchAny(ty) | WarpOp::MatchAll(ty) | WarpOp::Redux(_, ty) => *ty,
            _ => Type::B32,
        };
        let srcs: Vec<String> = srcs.iter().map(|&s: &Operand| self.operand(source_ty, s)).collect();
        let srcs = srcs.join(", ");
        let dst = match (dst, dst_pred) {
            (Some(d), Some(p)) => format!("{}|{}", self.reg(*d), self.reg(*p)),
            (Some(d), None) => self.reg(*d),
            (None, Some(p)) if has_b32_result(*op) => format!("{}|{}", self.scratch(Width::W32), self.reg(*p)),
            (None, Some(p)) => self.reg(*p),
            (None, None) => String::new(),
        };
        if dst.is_empty() && *op != WarpOp::Sync {
            return Err(self.malformed("warp-level operation"));
        }
        let text = match op {
            WarpOp::ShflUp => format!("shfl.sync.up.b32 {dst}, {srcs}, {mask}"),
            WarpOp::ShflDown => format!("shfl.sync.down.b32 {dst}, {srcs}, {mask}"),
            WarpOp::ShflBfly => format!("shfl.sync.bfly.b32 {dst}, {srcs}, {mask}"),
            WarpOp::ShflIdx => format!("shfl.sync.idx.b32 {dst}, {srcs}, {mask}"),
            WarpOp::VoteAll => format!("vote.sync.all.pred {dst}, {srcs}, {mask}"),
            WarpOp::VoteAny => format!("vote.sync.any.pred {dst}, {srcs}, {mask}"),
            WarpOp::VoteUni => format!("vote.sync.uni.pred {dst}, {srcs}, {mask}"),
            WarpOp::VoteBallot => format!("vote.sync.ballot.b32 {dst}, {srcs}, {mask}"),
            WarpOp::MatchAny(ty) => format!("match.any.sync.b{} {dst}, {srcs}, {mask}", ty.size_bytes() * 8),
            WarpOp::MatchAll(ty) => format!("match.all.sync.b{} {dst}, {srcs}, {mask}", ty.size_bytes() * 8),
            WarpOp::Redux(op, ty) => format!("redux.sync.{}.{} {dst}, {srcs}, {mask}", redux(*op), ty.name()),
            WarpOp::ActiveMask => format!("activemask.b32 {dst}"),
            WarpOp::Sync | WarpOp::Step => format!("bar.warp.sync {mask}"),
        };
        self.line(format_args!("{guard}{text}"));
        Ok(())
    }
}

const fn has_b32_result(op: WarpOp) -> bool {
    !matches!(op, WarpOp::VoteAll | WarpOp::VoteAny | WarpOp::VoteUni | WarpOp::Sync)
}

const fn redux(op: ReduxOp) -> &'static str {
    match op {
        ReduxOp::Add => "add",
        ReduxOp::Min => "min",
        ReduxOp::Max => "max",
        ReduxOp::And => "and",
        ReduxOp::Or => "or",
        ReduxOp::Xor => "xor",
    }
}

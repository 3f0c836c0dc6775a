//! Probes at barriers. [`super::barrier_plan`] says which barriers have one.
//!
//! Barriers can follow each other faster than a load of the pause word arrives. So the word is tested and loaded only
//! when some work has been done; only thread 0 loads, and the barrier's or-reduction tells the others.

use hetckpt_ir::basic_block::{BarrierProbe, BarrierReduction};
use hetckpt_ir::entity::{BbId, ResumePointId};
use hetckpt_ir::inst::Operand;
use hetckpt_ir::types::Width;

use super::barrier_plan::{BARRIER_BUDGET_INSTS, BarrierPoll};
use super::names;
use super::writer::{Look, Writer};

impl Writer<'_> {
    pub(super) fn probed_barrier(&mut self, id: BbId, probe: BarrierProbe, reduction: Option<BarrierReduction>) {
        match self.barriers.of(id) {
            BarrierPoll::Never if reduction.is_none() => self.plain_barrier(),
            BarrierPoll::Never => {}
            BarrierPoll::Joins => self.joining_barrier(probe.arrive),
            BarrierPoll::JoinsAndLooks(work) => {
                self.look_when_due(id, probe.arrive, work);
                self.joining_barrier(probe.arrive);
                self.label(format_args!("{}_looked", names::label(id)));
            }
            BarrierPoll::AfterWork(work) => {
                self.look_when_due(id, probe.arrive, work);
                if reduction.is_none() {
                    self.plain_barrier();
                }
                self.label(format_args!("{}_looked", names::label(id)));
            }
        }
        if reduction.is_some() {
            self.barrier(Operand::Imm(0), None, reduction);
        }
    }

    fn plain_barrier(&mut self) {
        // Threads that go on from different places may come apart from their warp.
        self.gather_warp();
        self.line(if self.facts.block_list {
            "barrier.sync 0"
        } else {
            "bar.sync 0"
        });
    }

    /// Leaves the barrier to code out of line when the budget is used up. All threads of a block use up the same.
    fn look_when_due(&mut self, id: BbId, point: ResumePointId, work: u32) {
        let is_due = self.scratch(Width::Pred);
        self.line(format_args!("add.s32 %until_look, %until_look, -{work}"));
        self.line(format_args!("setp.lt.s32 {is_due}, %until_look, 0"));
        self.line(format_args!("@{is_due} bra {}_look", names::label(id)));
        self.looks.push(Look::AtBarrier(id, point));
    }

    /// A barrier at which the block stops, at `point`, if a thread has stopped on the way.
    pub(super) fn joining_barrier(&mut self, point: ResumePointId) {
        let no = self.scratch(Width::Pred);
        self.line(format_args!("setp.ne.u32 {no}, 0, 0"));
        if self.has_meeting() {
            self.meet(&no, point);
        } else {
            self.stop_all_if(&no, point);
        }
    }

    /// Writes the code out of line at the ends of basic blocks.
    pub(super) fn looks(&mut self) {
        for look in std::mem::take(&mut self.looks) {
            match look {
                Look::AtBarrier(id, point) => self.look_at_barrier(id, point),
                Look::WithWholeWarp(id, point) => self.stop_whole_warp(id, point),
            }
        }
    }

    /// What a barrier does when it is time to look at the request: take what was loaded the last time, ask the block
    /// and, in thread 0, load it anew.
    fn look_at_barrier(&mut self, id: BbId, point: ResumePointId) {
        self.label(format_args!("{}_look", names::label(id)));
        let (clock, stop) = (self.late_zero(), self.scratch(Width::Pred));
        self.line(format_args!("setp.gt.u32 {stop}, %pause, {clock}"));
        self.line(format_args!("mov.u32 %until_look, {BARRIER_BUDGET_INSTS}"));
        if self.has_meeting() && self.barriers.of(id).joins() {
            self.meet(&stop, point);
        } else {
            self.stop_all_if(&stop, point);
        }
        let (tid, first) = (self.scratch(Width::W32), self.scratch(Width::Pred));
        self.line_thread_index(&tid);
        self.line(format_args!("setp.eq.u32 {first}, {tid}, 0"));
        self.reload_pause(&format!("@{first} "));
        self.line(format_args!("bra {}_looked", names::label(id)));
    }

    /// A barrier at which the block stops, at `point`, if a thread has `stop`.
    pub(super) fn stop_all_if(&mut self, stop: &str, point: ResumePointId) {
        let all_stop = self.scratch(Width::Pred);
        self.gather_warp();
        self.line(format_args!("barrier.red.or.pred {all_stop}, 0, {stop}"));
        self.stop_if(&all_stop, point);
    }

    /// `dst` = 0 for thread 0 and nobody else.
    fn line_thread_index(&mut self, dst: &str) {
        let (y, z) = (self.scratch(Width::W32), self.scratch(Width::W32));
        self.line(format_args!("mov.u32 {dst}, %tid.x"));
        self.line(format_args!("mov.u32 {y}, %tid.y"));
        self.line(format_args!("mov.u32 {z}, %tid.z"));
        self.line(format_args!("or.b32 {dst}, {dst}, {y}"));
        self.line(format_args!("or.b32 {dst}, {dst}, {z}"));
    }
}

//! Ends of basic blocks, and the probes among them.
//!
//! A loop probe tests `%pause`, the word that the probe before it has loaded, and loads it anew for the next one: the
//! load has a whole round of the loop to arrive. Barriers can follow each other faster than a load arrives, so there
//! the word is tested and loaded only when some work has been done ([`super::barrier_plan`]); only thread 0 loads, and
//! the barrier's or-reduction tells the others.

use hetckpt_abi::launch_control::PAUSE_WORD_STRIDE;
use hetckpt_ir::basic_block::{BarrierProbe, BarrierReduction, BarrierReductionOp, Terminator};
use hetckpt_ir::entity::{BbId, ResumePointId};
use hetckpt_ir::inst::{Guard, Inst, Op, Operand};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Space, Type, Width};

use super::barrier_plan::{BARRIER_BUDGET_INSTS, BarrierPoll};
use super::poll_plan::LoopPoll;
use super::writer::{Look, Writer};
use super::{Error, names};

/// Loads the request to stop.
pub(super) const LOAD_PAUSE: &str = "ld.volatile.global.u32 %pause, [%pause_at]";

impl Writer<'_> {
    /// Writes the end of basic block `id`.
    pub(super) fn terminator(&mut self, id: BbId, terminator: &Terminator) -> Result<(), Error> {
        match terminator {
            Terminator::Jump(next) => self.jump(*next),
            Terminator::Branch {
                guard,
                taken,
                not_taken,
            } => self.branch(*guard, *taken, *not_taken),
            Terminator::Exit => self.line("ret"),
            Terminator::Trap => {
                self.line("trap");
                self.line("ret");
            }
            Terminator::Barrier {
                id: number,
                count,
                reduction,
                probe,
                next,
            } => {
                if let Some(probe) = probe {
                    self.probed_barrier(id, *probe, *reduction);
                } else {
                    self.barrier(*number, *count, *reduction);
                }
                self.jump(*next);
            }
            Terminator::Poll { resume_point, next } => {
                // The entry probe tests where `entry_tests` says.
                if let Some(how) = self.polls.loop_poll(id) {
                    self.poll_loop(id, how, *resume_point);
                }
                self.jump_past_join(*next);
            }
        }
        Ok(())
    }

    fn jump(&mut self, next: BbId) {
        if self.next != Some(next) {
            self.line(format_args!("bra.uni {}", names::label(next)));
        }
    }

    /// Jumps to a basic block behind the barrier before it, if there is one: the block has just decided.
    fn jump_past_join(&mut self, next: BbId) {
        if self.barriers.joins_before(next).is_some() {
            self.line(format_args!("bra.uni {}", names::label_after_join(next)));
        } else {
            self.jump(next);
        }
    }

    fn branch(&mut self, guard: Guard, taken: BbId, not_taken: BbId) {
        if self.next == Some(taken) {
            let inverse = Guard {
                negated: !guard.negated,
                ..guard
            };
            let guard = self.guard(Some(inverse));
            self.line(format_args!("{guard}bra {}", names::label(not_taken)));
            return;
        }
        let guard = self.guard(Some(guard));
        self.line(format_args!("{guard}bra {}", names::label(taken)));
        self.jump(not_taken);
    }

    /// A barrier as the program has it.
    fn barrier(&mut self, number: Operand, count: Option<Operand>, reduction: Option<BarrierReduction>) {
        let number = self.operand(Type::U32, number);
        let count = count
            .map(|c| format!(", {}", self.operand(Type::U32, c)))
            .unwrap_or_default();
        match reduction {
            None => self.line(format_args!("bar.sync {number}{count}")),
            Some(BarrierReduction { op, dst, src }) => {
                let name = match op {
                    BarrierReductionOp::And => "and.pred",
                    BarrierReductionOp::Or => "or.pred",
                    BarrierReductionOp::Popc => "popc.u32",
                };
                let negated = if src.negated { "!" } else { "" };
                let (dst, pred) = (self.reg(dst), self.reg(src.pred));
                // Threads may come here apart from their warp once some have stopped, so not the aligned form.
                let form = if self.facts.is_probed { "barrier" } else { "bar" };
                self.line(format_args!(
                    "{form}.red.{name} {dst}, {number}{count}, {negated}{pred}"
                ));
            }
        }
    }

    fn probed_barrier(&mut self, id: BbId, probe: BarrierProbe, reduction: Option<BarrierReduction>) {
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

    /// Stops at a loop probe if all lanes of the warp have come here, those aside that had ended when the warp started.
    fn stop_whole_warp(&mut self, id: BbId, point: ResumePointId) {
        self.label(format_args!("{}_look", names::label(id)));
        let (here, missing, is_part) = (
            self.scratch(Width::W32),
            self.scratch(Width::W32),
            self.scratch(Width::Pred),
        );
        self.line(format_args!("activemask.b32 {here}"));
        self.line(format_args!("not.b32 {here}, {here}"));
        self.line(format_args!("and.b32 {missing}, %lanes, {here}"));
        self.line(format_args!("setp.ne.u32 {is_part}, {missing}, 0"));
        self.line(format_args!("@{is_part} bra {}_looked", names::label(id)));
        self.line(format_args!("bra.uni {}", names::save_label(point)));
        self.will_stop_at(point);
    }

    /// A barrier at which the block stops, at `point`, if a thread has `stop`.
    fn stop_all_if(&mut self, stop: &str, point: ResumePointId) {
        let all_stop = self.scratch(Width::Pred);
        self.line(format_args!("barrier.red.or.pred {all_stop}, 0, {stop}"));
        self.stop_if(&all_stop, point);
    }

    /// A number below 2^31 that is not known before this place. A request is all ones, so comparing with it is as good
    /// as comparing with 0, but the assembler cannot do it where the word is loaded, which would be to wait for the
    /// load there.
    fn late_zero(&mut self) -> String {
        let clock = self.scratch(Width::W32);
        self.line(format_args!("mov.u32 {clock}, %clock"));
        self.line(format_args!("shr.u32 {clock}, {clock}, 1"));
        clock
    }

    /// The same out of a value that has just been loaded: the program's load and that of the word then wait together.
    fn loaded_zero(&mut self, before: &[Inst]) -> Option<String> {
        let loaded = before.iter().rev().find_map(|inst| match &inst.op {
            Op::Load {
                space: Space::Global | Space::Generic,
                dsts,
                ..
            } => dsts.iter().flatten().last().copied(),
            _ => None,
        })?;
        let (name, bits) = (self.reg(loaded), self.scratch(Width::W32));
        match self.kernel.width(loaded) {
            Width::W32 => self.line(format_args!("shr.u32 {bits}, {name}, 1")),
            Width::W64 => {
                self.line(format_args!("cvt.u32.u64 {bits}, {name}"));
                self.line(format_args!("shr.u32 {bits}, {bits}, 1"));
            }
            Width::W16 => self.line(format_args!("cvt.u32.u16 {bits}, {name}")),
            Width::Pred => return None,
        }
        Some(bits)
    }

    fn poll_loop(&mut self, id: BbId, how: LoopPoll, point: ResumePointId) {
        if how == LoopPoll::LeftOut {
            return;
        }
        let (clock, stop) = (self.late_zero(), self.scratch(Width::Pred));
        self.line(format_args!("setp.gt.u32 {stop}, %pause, {clock}"));
        match how {
            LoopPoll::LeftOut => {}
            LoopPoll::Alone => self.stop_if(&stop, point),
            LoopPoll::ByBlock => self.stop_all_if(&stop, point),
            LoopPoll::ByWarp => {
                let any = self.vote(&stop);
                self.stop_if(&any, point);
            }
            LoopPoll::ByWholeWarp => {
                self.line(format_args!("@{stop} bra {}_look", names::label(id)));
                self.looks.push(Look::WithWholeWarp(id, point));
                self.label(format_args!("{}_looked", names::label(id)));
            }
        }
        self.reload_pause("");
    }

    /// Loads the request again in a loop. A volatile load would do, but makes the assembler expect that threads of a
    /// warp wait for each other there, which costs a divergent loop much. So it is a plain load that leaves no copy in
    /// the first-level cache, where the host's write would not be seen; its address depends on the word loaded before,
    /// so that it is not taken out of the loop. (A thread that has seen the request, and is about to stop, reads the
    /// next multiprocessor's word or the first control block.)
    fn reload_pause(&mut self, guard: &str) {
        let (is_set, at) = (self.scratch(Width::W32), self.scratch(Width::W64));
        self.line(format_args!("shr.u32 {is_set}, %pause, 31"));
        self.line(format_args!(
            "mad.wide.u32 {at}, {is_set}, {PAUSE_WORD_STRIDE}, %pause_at"
        ));
        self.line(format_args!("{guard}ld.global.L1::no_allocate.u32 %pause, [{at}]"));
    }

    /// A warp is entered as a whole or not at all if its lanes work together.
    pub(super) fn poll_entry(&mut self, before: &[Inst]) {
        if self.facts.block_list {
            // It has been asked before the block's state was given back.
            return;
        }
        let mut stop = self.scratch(Width::Pred);
        let zero = self.loaded_zero(before).unwrap_or_else(|| "0".into());
        self.line(format_args!("setp.gt.u32 {stop}, %pause, {zero}"));
        if self.facts.has_warp_op {
            stop = self.vote(&stop);
        }
        self.stop_if(&stop, Kernel::ENTRY_POINT);
        self.note_lanes("1");
    }

    /// Where it is asked for later, notes which lanes of the warp have not ended, and are `there`. All lanes come here.
    pub(super) fn note_lanes(&mut self, there: &str) {
        if self.polls.asks_for_lanes() {
            let is_there = self.scratch(Width::Pred);
            self.line(format_args!("setp.ne.u32 {is_there}, {there}, 0"));
            self.line(format_args!("vote.sync.ballot.b32 %lanes, {is_there}, -1"));
        }
    }

    /// True in all lanes if `pred` is true in any.
    pub(super) fn vote(&mut self, pred: &str) -> String {
        let any = self.scratch(Width::Pred);
        self.line(format_args!("vote.sync.any.pred {any}, {pred}, -1"));
        any
    }

    fn stop_if(&mut self, pred: &str, point: ResumePointId) {
        self.line(format_args!("@{pred} bra {}", names::save_label(point)));
        self.will_stop_at(point);
    }

    /// Notes that the code for stopping at `point` is needed.
    pub(super) fn will_stop_at(&mut self, point: ResumePointId) {
        if !self.stops.contains(&point) {
            self.stops.push(point);
        }
    }

    /// The kernel's first instructions, before those of `bb0`.
    pub(super) fn prologue(&mut self) {
        if self.kernel.local.size_bytes > 0 {
            self.line("mov.u64 %local, hetckpt_local");
        }
        if !self.facts.is_probed {
            return;
        }
        let sm = self.scratch(Width::W32);
        self.line(format_args!("ld.param.u64 %control, [{}]", names::CONTROL_PARAM));
        self.line(format_args!("mov.u32 {sm}, %smid"));
        self.line(format_args!(
            "and.b32 {sm}, {sm}, {}",
            hetckpt_abi::launch_control::NUM_PAUSE_WORDS - 1
        ));
        self.line(format_args!(
            "and.b64 %pause_at, %control, {}",
            -hetckpt_abi::launch_control::ARENA_BYTES.cast_signed()
        ));
        self.line(format_args!(
            "mad.wide.u32 %pause_at, {sm}, {}, %pause_at",
            hetckpt_abi::launch_control::PAUSE_WORD_STRIDE
        ));
        self.line(LOAD_PAUSE);
        if self.barriers.counts() {
            let budget = self.barriers.first_budget;
            self.line(format_args!("mov.u32 %until_look, {budget}"));
        }
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

    /// Registers with a name of their own: type and name.
    pub(super) fn fixed_registers(&self) -> Vec<(&'static str, &'static str)> {
        let facts = &self.facts;
        let mut all = Vec::new();
        if self.kernel.local.size_bytes > 0 {
            all.push(("b64", "%local"));
        }
        if facts.is_probed {
            all.extend([
                ("b64", "%control"),
                ("b64", "%pause_at"),
                ("b32", "%pause"),
                ("b64", "%slot"),
            ]);
            if self.polls.asks_for_lanes() {
                all.push(("b32", "%lanes"));
            }
            if self.has_meeting() {
                all.extend([("pred", "%stop"), ("b32", "%met_from")]);
            }
            if self.barriers.counts() {
                all.push(("b32", "%until_look"));
            }
        }
        if facts.block_list {
            all.extend([
                ("b32", "%ctaid_x"),
                ("b32", "%ctaid_y"),
                ("b32", "%ctaid_z"),
                ("b32", "%nctaid_x"),
                ("b32", "%nctaid_y"),
                ("b32", "%nctaid_z"),
            ]);
        }
        all
    }
}

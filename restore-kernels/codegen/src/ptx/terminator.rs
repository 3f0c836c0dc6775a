//! Ends of basic blocks, and the probes among them.
//!
//! A loop probe tests `%pause`, the word that the probe before it has loaded, and loads it anew for the next one: the load
//! has a whole round of the loop to arrive. Barriers can follow each other faster than a load arrives, so there the word is
//! tested and loaded only when some time has passed; only thread 0 loads, and the barrier's or-reduction tells the others.

use hetckpt_abi::launch_control::PAUSE_WORD_STRIDE;
use hetckpt_ir::basic_block::{BarrierProbe, BarrierReduction, BarrierReductionOp, Terminator};
use hetckpt_ir::entity::{BbId, ResumePointId};
use hetckpt_ir::inst::{Guard, Inst, Op, Operand};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Space, Type, Width};

use super::barrier_plan::{BARRIER_BUDGET_INSTS, BarrierPoll};
use super::poll_plan::{LoopPoll, WarpPoll};
use super::writer::Writer;
use super::{Error, names};

/// A warp-level operation in a loop is reached so often that only every so many times the warp asks.
const WARP_POLL_PERIOD: u32 = 64;

/// Clocks between two looks at the request at barriers: longer than a load takes, a small part of a pause's latency.
const LOOK_PERIOD_CLOCKS: u32 = 4096;

/// Code out of line that a barrier's way of asking needs.
pub(super) struct Look {
    /// The barrier's basic block.
    id: BbId,
    /// The resume point, if the barrier itself is out of line too.
    at: Option<ResumePointId>,
}

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
                if *resume_point != Kernel::ENTRY_POINT {
                    self.poll_loop(self.polls.loop_poll(id), *resume_point);
                }
                self.jump(*next);
            }
        }
        Ok(())
    }

    fn jump(&mut self, next: BbId) {
        if self.next != Some(next) {
            self.line(format_args!("bra.uni {}", names::label(next)));
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
        match self.barriers[id.index()] {
            BarrierPoll::Always => self.reducing_barrier(id, probe),
            BarrierPoll::Never if reduction.is_none() => self.plain_barrier(),
            BarrierPoll::Never => {}
            BarrierPoll::AfterWork(work) => {
                let is_due = self.scratch(Width::Pred);
                self.line(format_args!("add.s32 %until_look, %until_look, -{work}"));
                self.line(format_args!("setp.lt.s32 {is_due}, %until_look, 0"));
                self.line(format_args!("@{is_due} bra {}_look", names::label(id)));
                self.looks.push(Look {
                    id,
                    at: Some(probe.arrive),
                });
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

    /// A barrier that asks each time; the word that it tells is renewed when a load has had the time to arrive.
    fn reducing_barrier(&mut self, id: BbId, probe: BarrierProbe) {
        let (now, since, is_due) = (
            self.scratch(Width::W32),
            self.scratch(Width::W32),
            self.scratch(Width::Pred),
        );
        self.line(format_args!("mov.u32 {now}, %clock"));
        self.line(format_args!("sub.u32 {since}, {now}, %looked_at"));
        self.line(format_args!("setp.gt.u32 {is_due}, {since}, {LOOK_PERIOD_CLOCKS}"));
        self.line(format_args!("@{is_due} bra {}_look", names::label(id)));
        self.label(format_args!("{}_looked", names::label(id)));
        self.looks.push(Look { id, at: None });
        let all_stop = self.scratch(Width::Pred);
        self.line(format_args!("barrier.red.or.pred {all_stop}, 0, %stop"));
        self.stop_if(&all_stop, probe.arrive);
        if self.barriers.iter().any(|b| matches!(b, BarrierPoll::AfterWork(_))) {
            self.line(format_args!("mov.u32 %until_look, {BARRIER_BUDGET_INSTS}"));
        }
    }

    /// Writes what barriers do, out of line, when it is time to look at the request: take what was loaded the last time
    /// and, in thread 0, load it anew.
    pub(super) fn looks(&mut self) {
        for Look { id, at } in std::mem::take(&mut self.looks) {
            self.label(format_args!("{}_look", names::label(id)));
            let clock = self.late_zero();
            self.line(format_args!("setp.gt.u32 %stop, %pause, {clock}"));
            if let Some(point) = at {
                self.line(format_args!("mov.u32 %until_look, {BARRIER_BUDGET_INSTS}"));
                let all_stop = self.scratch(Width::Pred);
                self.line(format_args!("barrier.red.or.pred {all_stop}, 0, %stop"));
                self.stop_if(&all_stop, point);
            }
            self.reload_pause("@%first ");
            self.line("mov.u32 %looked_at, %clock");
            self.line(format_args!("bra {}_looked", names::label(id)));
        }
    }

    /// A number below 2^31 that is not known before this place. A request is all ones, so comparing with it is as good as
    /// comparing with 0, but the assembler cannot do it where the word is loaded, which would be to wait for the load
    /// there.
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

    fn poll_loop(&mut self, how: LoopPoll, point: ResumePointId) {
        if how == LoopPoll::LeftOut {
            return;
        }
        let mut stop = self.scratch(Width::Pred);
        let clock = self.late_zero();
        self.line(format_args!("setp.gt.u32 {stop}, %pause, {clock}"));
        if how == LoopPoll::Together {
            stop = self.vote(&stop);
        }
        self.stop_if(&stop, point);
        self.reload_pause("");
    }

    /// Loads the request again in a loop. A volatile load would do, but makes the assembler expect that threads of a warp
    /// wait for each other there, which costs a divergent loop much. So it is a plain load that leaves no copy in the
    /// first-level cache, where the host's write would not be seen; its address depends on the word loaded before, so that
    /// it is not taken out of the loop. (A thread that has seen the request, and is about to stop, reads the next
    /// multiprocessor's word or the first control block.)
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
    }

    /// Asks before a warp-level operation, all lanes together, as the plan says.
    pub(super) fn poll_warp(&mut self, id: BbId, point: ResumePointId) {
        let how = self.polls.warp_poll(id);
        if how == WarpPoll::None {
            return;
        }
        let go_on = format!("{}_go_on", names::label(id));
        let counts = how == WarpPoll::Periodic;
        if counts {
            let not_now = self.scratch(Width::Pred);
            self.line("add.s32 %until_poll, %until_poll, -1");
            self.line(format_args!("setp.ne.s32 {not_now}, %until_poll, 0"));
            self.line(format_args!("@{not_now} bra {go_on}"));
            self.line(format_args!("mov.u32 %until_poll, {WARP_POLL_PERIOD}"));
        }
        let (word, stop) = (self.scratch(Width::W32), self.scratch(Width::Pred));
        self.line("bar.warp.sync -1");
        self.line(format_args!("ld.volatile.global.u32 {word}, [%pause_at]"));
        self.line(format_args!("setp.ne.u32 {stop}, {word}, 0"));
        let any = self.vote(&stop);
        self.stop_if(&any, point);
        if counts {
            self.label(go_on);
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
        if self.facts.has_barrier {
            let tid = self.scratch(Width::W32);
            self.line_thread_index(&tid);
            self.line(format_args!("setp.eq.u32 %first, {tid}, 0"));
            self.line(format_args!("setp.ne.u32 %stop, {tid}, {tid}"));
            self.line("mov.u32 %looked_at, %clock");
            self.line("mov.u32 %until_look, 0");
        }
        if self.polls.counts() {
            self.line(format_args!("mov.u32 %until_poll, {WARP_POLL_PERIOD}"));
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
            if facts.has_barrier {
                all.extend([
                    ("pred", "%first"),
                    ("pred", "%stop"),
                    ("b32", "%looked_at"),
                    ("b32", "%until_look"),
                ]);
            }
            if self.polls.counts() {
                all.push(("b32", "%until_poll"));
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

//! Probes in loops and at the kernel's entry.
//!
//! A loop probe tests `%pause`, the word that the probe before it has loaded, and loads it anew for the next one: the
//! load has a whole round of the loop to arrive.

use hetckpt_abi::launch_control::PAUSE_WORD_STRIDE;
use hetckpt_ir::entity::{BbId, ResumePointId};
use hetckpt_ir::inst::{Inst, Op};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Space, Width};

use super::names;
use super::poll_plan::LoopPoll;
use super::writer::{Look, Writer};

/// Loads the request to stop.
pub(super) const LOAD_PAUSE: &str = "ld.volatile.global.u32 %pause, [%pause_at]";

impl Writer<'_> {
    pub(super) fn poll_loop(&mut self, id: BbId, how: LoopPoll, point: ResumePointId) {
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
    pub(super) fn reload_pause(&mut self, guard: &str) {
        let (is_set, at) = (self.scratch(Width::W32), self.scratch(Width::W64));
        self.line(format_args!("shr.u32 {is_set}, %pause, 31"));
        self.line(format_args!(
            "mad.wide.u32 {at}, {is_set}, {PAUSE_WORD_STRIDE}, %pause_at"
        ));
        self.line(format_args!("{guard}ld.global.L1::no_allocate.u32 %pause, [{at}]"));
    }

    /// Stops at a loop probe if all lanes of the warp have come here, those aside that had ended when the warp started.
    pub(super) fn stop_whole_warp(&mut self, id: BbId, point: ResumePointId) {
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

    pub(super) fn stop_if(&mut self, pred: &str, point: ResumePointId) {
        self.line(format_args!("@{pred} bra {}", names::save_label(point)));
        self.will_stop_at(point);
    }

    /// Notes that the code for stopping at `point` is needed.
    pub(super) fn will_stop_at(&mut self, point: ResumePointId) {
        if !self.stops.contains(&point) {
            self.stops.push(point);
        }
    }

    /// A number below 2^31 that is not known before this place. A request is all ones, so comparing with it is as good
    /// as comparing with 0, but the assembler cannot do it where the word is loaded, which would be to wait for the
    /// load there.
    pub(super) fn late_zero(&mut self) -> String {
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
}

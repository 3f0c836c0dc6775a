//! Barriers that the lanes of a warp come to apart: some have stopped, or they go on from different places.
//!
//! **A warp gathers before each such barrier.** `bar.warp.sync` brings together all of its lanes that have not ended.
//! Without it, a lane that came late fell one barrier behind the others (observed on sm_90 with ptxas 13.0, where the
//! lanes of a warp went on from three places). The cause is a guess: the lane leaves the barrier late, and is counted
//! as one that has come to it again.
//!
//! **One barrier instruction for all**, in kernels with barriers where lanes may stop apart from their warp.
//!
//! A lane that has stopped waits for its block at a barrier; lanes of its warp come to it at a barrier of the program.
//! PTX lets lanes of a warp wait at different `barrier` instructions, and the assembler then has one of these executed
//! for all of them; but ptxas 13.0 lets each deliver its reduction's result in a register of its own, so that the lanes
//! waiting at the other one see an old predicate (observed on sm_90). So all come to the same instruction, and go from
//! there where they belong. That costs a loop around the barrier its shape, so it is done only where it must.

use hetckpt_ir::entity::ResumePointId;
use hetckpt_ir::types::Width;

use super::names;
use super::writer::{Meet, Writer};

impl Writer<'_> {
    /// True if the kernel needs one barrier instruction for all.
    pub(super) fn has_meeting(&self) -> bool {
        self.facts.has_barrier && self.polls.parts_warps()
    }

    /// Brings the lanes of a warp together before a barrier, in kernels where they may be apart. All barriers behind
    /// the prologue do this: a lane may wait here for lanes that come to another barrier.
    pub(super) fn gather_warp(&mut self) {
        if self.has_meeting() || (self.facts.has_barrier && self.facts.block_list) {
            self.line("bar.warp.sync 0xffffffff");
        }
    }

    /// A barrier at which the block stops, at `point`, if a thread has `stop`.
    pub(super) fn meet(&mut self, stop: &str, point: ResumePointId) {
        self.line(format_args!("mov.pred %stop, {stop}"));
        self.come(Meet::At(point));
        self.will_stop_at(point);
    }

    /// Joins with the word that all are to stop.
    pub(super) fn meet_to_stop(&mut self) {
        self.line("setp.eq.u32 %stop, 0, 0");
        self.come(Meet::ToStop);
    }

    fn come(&mut self, from: Meet) {
        let number = self.meets.len();
        self.line(format_args!("mov.u32 %met_from, {number}"));
        self.line("bra.uni $meeting");
        self.label(format_args!("$met_{number}"));
        self.meets.push(from);
    }

    /// Writes the barrier, and the ways from it.
    pub(super) fn meeting(&mut self) {
        if self.meets.is_empty() {
            return;
        }
        let all_stop = self.scratch(Width::Pred);
        self.label("$meeting");
        self.gather_warp();
        self.line(format_args!("barrier.red.or.pred {all_stop}, 0, %stop"));
        self.line(format_args!("@{all_stop} bra $meeting_stops"));
        self.go_apart(|number, from| matches!(from, Meet::At(_)).then(|| format!("$met_{number}")));
        self.label("$meeting_stops");
        self.go_apart(|number, from| {
            Some(match from {
                Meet::At(point) => names::save_label(point),
                Meet::ToStop => format!("$met_{number}"),
            })
        });
    }

    /// Sends threads where `way` says for the place that they came from; `None`: none comes this way.
    fn go_apart(&mut self, way: impl Fn(usize, Meet) -> Option<String>) {
        for (number, from) in self.meets.clone().into_iter().enumerate() {
            if let Some(to) = way(number, from) {
                let here = self.scratch(Width::Pred);
                self.line(format_args!("setp.eq.u32 {here}, %met_from, {number}"));
                self.line(format_args!("@{here} bra {to}"));
            }
        }
        self.line("trap");
        self.line("ret");
    }
}

//! Ends of basic blocks.

use hetckpt_abi::launch_control::{ARENA_BYTES, TRAP_WORD_ADDRESS_AT};
use hetckpt_ir::basic_block::{BarrierReduction, BarrierReductionOp, GIVE_WAY, Terminator};
use hetckpt_ir::entity::BbId;
use hetckpt_ir::inst::{Guard, Operand};
use hetckpt_ir::types::{Type, Width};

use super::writer::Writer;
use super::{Error, names};

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
            Terminator::Trap => self.trap(),
            Terminator::Barrier {
                id: number,
                count,
                reduction,
                probe,
                next,
            } => {
                if let Some(probe) = probe.filter(|_| !self.is_unasked) {
                    self.probed_barrier(id, probe, *reduction);
                } else if *number != Operand::Imm(GIVE_WAY) {
                    // Threads of a GPU get on without others giving way.
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

    /// A probed kernel says that it has trapped, and its thread ends: after a real trap the driver would give the
    /// device's memory to nobody any more.
    fn trap(&mut self) {
        if self.facts.is_probed {
            let (arena, word) = (self.scratch(Width::W64), self.scratch(Width::W64));
            let mask = -ARENA_BYTES.cast_signed();
            self.line(format_args!("and.b64 {arena}, %control, {mask}"));
            self.line(format_args!("ld.global.u64 {word}, [{arena}+{TRAP_WORD_ADDRESS_AT}]"));
            self.line(format_args!("st.volatile.global.u64 [{word}], %control"));
            self.line("membar.sys");
        } else {
            self.line("trap");
        }
        self.line("ret");
    }

    fn jump(&mut self, next: BbId) {
        if self.next != Some(next) {
            self.line(format_args!("bra.uni {}", self.block_label(next)));
        }
    }

    /// Jumps to a basic block behind the barrier before it, if there is one: the block has just decided.
    fn jump_past_join(&mut self, next: BbId) {
        if self.joins_before(next).is_some() {
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
            self.line(format_args!("{guard}bra {}", self.block_label(not_taken)));
            return;
        }
        let guard = self.guard(Some(guard));
        self.line(format_args!("{guard}bra {}", self.block_label(taken)));
        self.jump(not_taken);
    }

    /// A barrier as the program has it.
    pub(super) fn barrier(&mut self, number: Operand, count: Option<Operand>, reduction: Option<BarrierReduction>) {
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
                let can_stop = self.facts.is_probed && !self.is_unasked;
                let form = if can_stop { "barrier" } else { "bar" };
                if can_stop {
                    self.gather_warp();
                }
                self.line(format_args!(
                    "{form}.red.{name} {dst}, {number}{count}, {negated}{pred}"
                ));
            }
        }
    }
}

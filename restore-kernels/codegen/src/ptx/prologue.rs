//! What a kernel begins with: registers with names of their own, and their first values.

use hetckpt_abi::launch_control::{ARENA_BYTES, NUM_PAUSE_WORDS, PAUSE_WORD_STRIDE};
use hetckpt_ir::entity::BbId;
use hetckpt_ir::types::Width;

use super::loop_probes::LOAD_PAUSE;
use super::writer::Writer;
use super::{Error, names};

impl Writer<'_> {
    /// The kernel's first instructions, before those of `bb0`.
    pub(super) fn prologue(&mut self) {
        if !self.facts.is_probed {
            return;
        }
        let sm = self.scratch(Width::W32);
        self.line(format_args!("ld.param.u64 %control, [{}]", names::CONTROL_PARAM));
        self.line(format_args!("mov.u32 {sm}, %smid"));
        self.line(format_args!("and.b32 {sm}, {sm}, {}", NUM_PAUSE_WORDS - 1));
        self.line(format_args!(
            "and.b64 %pause_at, %control, {}",
            -ARENA_BYTES.cast_signed()
        ));
        self.line(format_args!(
            "mad.wide.u32 %pause_at, {sm}, {}, %pause_at",
            PAUSE_WORD_STRIDE
        ));
        self.line(LOAD_PAUSE);
        if self.barriers.counts() {
            let budget = self.barriers.first_budget;
            self.line(format_args!("mov.u32 %until_look, {budget}"));
        }
    }

    /// The address of the thread's frame, if it has one.
    pub(super) fn local_frame(&mut self) {
        if self.kernel.local.size_bytes > 0 {
            self.line("mov.u64 %local, hetckpt_local");
        }
    }

    /// The whole kernel once more, without probes, for launches without a control block. Even instructions that are not
    /// carried out cost a short kernel time, and so does a branch round them.
    pub(super) fn unasked(&mut self, order: &[BbId]) -> Result<(), Error> {
        // A control block never lies at the start of an arena, so its address has a low word.
        let (low, is_asked) = (self.scratch(Width::W32), self.scratch(Width::Pred));
        self.line(format_args!("ld.param.u32 {low}, [{}]", names::CONTROL_PARAM));
        self.line(format_args!("setp.ne.u32 {is_asked}, {low}, 0"));
        self.line(format_args!("@{is_asked} bra.uni $asked"));
        self.is_unasked = true;
        self.basic_blocks(order)?;
        self.is_unasked = false;
        self.label("$asked");
        Ok(())
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

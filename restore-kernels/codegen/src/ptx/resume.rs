//! Entry code of a program that is launched over a list of blocks. Block `i` of the launch becomes the `i`-th block of
//! the list, and its threads go on at their resume points.

use hetckpt_abi::launch_control::{RESUMED_BLOCK_BYTES, offset};
use hetckpt_ir::entity::{BbId, RegId, ResumePointId};
use hetckpt_ir::inst::Axis;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Width;

use super::writer::Writer;
use super::{Error, names};

impl Writer<'_> {
    /// Register with the block's index as the program sees it.
    pub(super) const fn block_index(axis: Axis) -> &'static str {
        match axis {
            Axis::X => "%ctaid_x",
            Axis::Y => "%ctaid_y",
            Axis::Z => "%ctaid_z",
        }
    }

    /// Register with the grid's extent as the program sees it.
    pub(super) const fn grid_extent(axis: Axis) -> &'static str {
        match axis {
            Axis::X => "%nctaid_x",
            Axis::Y => "%nctaid_y",
            Axis::Z => "%nctaid_z",
        }
    }

    /// Everything before the first instruction of `bb0`.
    pub(super) fn block_list_prologue(&mut self) -> Result<(), Error> {
        self.stop_before_start();
        self.note_lanes("1");
        let given_slot = self.find_block();
        let fresh = self.scratch(Width::Pred);
        self.line(format_args!("setp.eq.u64 {fresh}, {given_slot}, 0"));
        self.line(format_args!("@{fresh} bra {}", names::label(Kernel::ENTRY)));
        self.line(format_args!("mov.u64 %slot, {given_slot}"));
        let parts = self.slot_parts();
        if self.facts.uses_shared {
            self.restore_shared(&parts);
        }
        if self.kernel.local.size_bytes > 0 {
            self.copy_local(&parts, "$restore_local", false);
        }
        let (at, point) = (self.scratch(Width::W64), self.scratch(Width::W32));
        self.line(format_args!("mad.wide.u32 {at}, {}, 4, %slot", parts.thread));
        self.line(format_args!("ld.global.u32 {point}, [{at}]"));
        self.note_lanes(&point);
        let ended = self.scratch(Width::Pred);
        self.line(format_args!("setp.eq.u32 {ended}, {point}, 0"));
        self.line(format_args!("@{ended} ret"));
        let entries: Vec<(ResumePointId, BbId)> = self
            .program
            .entries
            .iter()
            .copied()
            .filter(|(p, _)| *p != Kernel::ENTRY_POINT)
            .collect();
        let is_entry = self.scratch(Width::Pred);
        self.line(format_args!("setp.eq.u32 {is_entry}, {point}, 1"));
        self.line(format_args!("@{is_entry} bra {}", names::label(Kernel::ENTRY)));
        for (p, _) in &entries {
            let here = self.scratch(Width::Pred);
            self.line(format_args!("setp.eq.u32 {here}, {point}, {}", p.0 + 1));
            self.line(format_args!("@{here} bra {}", names::resume_label(*p)));
        }
        self.line("trap");
        self.line("ret");
        for (p, block) in entries {
            self.label(names::resume_label(p));
            let live: Vec<RegId> = self.layout.live_at(p).iter().collect();
            for reg in live {
                let at = self.column_address(&parts, reg)?;
                let name = self.reg(reg);
                match self.kernel.width(reg) {
                    Width::Pred => {
                        let byte = self.scratch(Width::W32);
                        self.line(format_args!("ld.global.u8 {byte}, [{at}]"));
                        self.line(format_args!("setp.ne.u32 {name}, {byte}, 0"));
                    }
                    width => self.line(format_args!("ld.global.{} {name}, [{at}]", names::width_type(width))),
                }
            }
            self.line(format_args!("bra {}", names::label(block)));
        }
        Ok(())
    }

    /// A block that starts after the request marks itself as not started, which here means: still what it was.
    fn stop_before_start(&mut self) {
        let mut stop = self.scratch(Width::Pred);
        self.line(format_args!("setp.ne.u32 {stop}, %pause, 0"));
        if self.facts.drains {
            let all = self.scratch(Width::Pred);
            self.line(format_args!("barrier.red.or.pred {all}, 0, {stop}"));
            stop = all;
        } else if self.facts.has_warp_op {
            stop = self.vote(&stop);
        }
        self.line(format_args!("@{stop} bra {}", names::save_label(Kernel::ENTRY_POINT)));
        self.will_stop_at(Kernel::ENTRY_POINT);
    }

    /// Sets the block's index and the grid's extent; the register returned holds the address of the block's slot, or 0.
    fn find_block(&mut self) -> String {
        let block = self.launched_block();
        let (list, entry) = (self.scratch(Width::W64), self.scratch(Width::W64));
        self.line(format_args!(
            "ld.global.u64 {list}, [%control+{}]",
            offset::RESUMED_BLOCKS
        ));
        self.line(format_args!(
            "mad.lo.u64 {entry}, {block}, {RESUMED_BLOCK_BYTES}, {list}"
        ));
        let (index, slot) = (self.scratch(Width::W64), self.scratch(Width::W64));
        self.line(format_args!("ld.global.u64 {index}, [{entry}]"));
        self.line(format_args!("ld.global.u64 {slot}, [{entry}+8]"));
        for (i, axis) in [Axis::X, Axis::Y, Axis::Z].into_iter().enumerate() {
            let at = offset::GRID + 4 * i as u64;
            self.line(format_args!(
                "ld.global.u32 {}, [%control+{at}]",
                Self::grid_extent(axis)
            ));
        }
        let mut rest = index;
        for axis in [Axis::X, Axis::Y] {
            let (extent, remainder, quotient) = (
                self.scratch(Width::W64),
                self.scratch(Width::W64),
                self.scratch(Width::W64),
            );
            self.line(format_args!("cvt.u64.u32 {extent}, {}", Self::grid_extent(axis)));
            self.line(format_args!("rem.u64 {remainder}, {rest}, {extent}"));
            self.line(format_args!("div.u64 {quotient}, {rest}, {extent}"));
            self.line(format_args!("cvt.u32.u64 {}, {remainder}", Self::block_index(axis)));
            rest = quotient;
        }
        self.line(format_args!("cvt.u32.u64 {}, {rest}", Self::block_index(Axis::Z)));
        slot
    }

    /// All threads of the block, those that have ended too, copy shared memory back.
    fn restore_shared(&mut self, parts: &super::save::SlotParts) {
        let shared = self.shared_part(parts);
        let (size, base, at, step) = (
            self.scratch(Width::W32),
            self.scratch(Width::W64),
            self.scratch(Width::W32),
            self.scratch(Width::W32),
        );
        self.line(format_args!("mov.u32 {size}, %dynamic_smem_size"));
        self.line(format_args!("cvt.u64.u32 {base}, {shared}"));
        self.line(format_args!("add.s64 {base}, {base}, %slot"));
        self.line(format_args!("shl.b32 {at}, {}, 4", parts.thread));
        self.line(format_args!("shl.b32 {step}, {}, 4", parts.threads));
        self.label("$restore_shared");
        let done = self.scratch(Width::Pred);
        self.line(format_args!("setp.ge.u32 {done}, {at}, {size}"));
        self.line(format_args!("@{done} bra $restored_shared"));
        let v: Vec<String> = (0..4).map(|_| self.scratch(Width::W32)).collect();
        let (v, from) = (v.join(", "), self.scratch(Width::W64));
        self.line(format_args!("cvt.u64.u32 {from}, {at}"));
        self.line(format_args!("add.s64 {from}, {from}, {base}"));
        self.line(format_args!("ld.global.v4.b32 {{{v}}}, [{from}]"));
        self.line(format_args!(
            "st.shared.v4.b32 [{at}+{}], {{{v}}}",
            self.options.shared_base
        ));
        self.line(format_args!("add.u32 {at}, {at}, {step}"));
        self.line("bra $restore_shared");
        self.label("$restored_shared");
        self.line("barrier.sync 0");
    }
}

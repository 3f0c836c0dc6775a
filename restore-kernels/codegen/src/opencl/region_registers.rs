//! Registers between the regions of a kernel that goes in rounds.
//!
//! A region's variables live in it alone; what is live where a thread comes to rest is kept in arrays, a place for each
//! register that is live at some resume point. Variables of the whole kernel would do, but compilers then carry each of
//! them through every region, and PoCL takes minutes over it. The arrays' indices are not constants to the
//! compiler, since it would make variables of them again.

use hetckpt_ir::analysis::reg_set::RegSet;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, RegId, ResumePointId};
use hetckpt_ir::inst::{Inst, Op};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Width;

use super::names;
use super::writer::Writer;

/// Widths in the order of their columns.
pub(super) const WIDTHS: [Width; 4] = [Width::W64, Width::W32, Width::W16, Width::Pred];

impl Writer<'_> {
    /// Where a register is kept; `None` if it is live at no resume point.
    pub(super) fn kept(&self, reg: RegId) -> Option<String> {
        let width = self.kernel.width(reg);
        let column = self.layout.column(reg)?;
        let index = (column - self.first_column(width)?) / width.size_bytes();
        Some(format!("{}[zero + {index}]", array(width)))
    }

    /// Declares the arrays.
    pub(super) fn declare_kept(&mut self) {
        self.plain_line("const uint zero = grid.w >> 31;");
        for width in WIDTHS {
            let count = self.num_kept(width);
            if count > 0 {
                let ty = names::unsigned(width.size_bytes());
                self.plain_line(format_args!("{ty} {}[{count}];", array(width)));
            }
        }
    }

    /// Registers of a width that are kept.
    pub(super) fn num_kept(&self, width: Width) -> usize {
        let regs = self.regs().filter(|&reg| self.kernel.width(reg) == width);
        regs.filter(|&reg| self.layout.column(reg).is_some()).count()
    }

    /// Column of the first register of a width: those of one width stand together.
    pub(super) fn first_column(&self, width: Width) -> Option<u32> {
        let regs = self.regs().filter(|&reg| self.kernel.width(reg) == width);
        regs.filter_map(|reg| self.layout.column(reg)).min()
    }

    /// Declares the region's variables and fetches what it needs of what was live at its start.
    pub(super) fn fetch(&mut self, start: Option<ResumePointId>, blocks: &[BbId]) {
        let num_regs = self.kernel.registers.len();
        let (mut used, mut changed) = (RegSet::with_capacity(num_regs), RegSet::with_capacity(num_regs));
        for block in blocks.iter().map(|id| &self.kernel.blocks[id.index()]) {
            let insts = block.insts.iter().filter(|inst| !is_warp_op(inst));
            for inst in insts {
                inst.for_each_use(|reg| _ = used.insert(reg));
                inst.for_each_def(|reg| _ = changed.insert(reg));
            }
            if let Terminator::Branch { guard, .. } = &block.terminator {
                used.insert(guard.pred);
            }
        }
        let live = start
            .filter(|point| *point != Kernel::ENTRY_POINT)
            .map(|point| self.layout.live_at(point).clone());
        let live = live.unwrap_or_default();
        for width in WIDTHS {
            let of_width = self.regs().filter(|&reg| self.kernel.width(reg) == width);
            let names: Vec<String> = of_width
                .filter(|&reg| used.contains(reg) || changed.contains(reg))
                .map(|reg| {
                    let value = if live.contains(reg) { self.kept(reg) } else { None };
                    let not_zero = if width == Width::Pred && value.is_some() {
                        " != 0"
                    } else {
                        ""
                    };
                    // What PTX leaves undefined is 0.
                    format!(
                        "{} = {}{not_zero}",
                        self.reg(reg),
                        value.unwrap_or_else(|| "0".to_owned())
                    )
                })
                .collect();
            for some in names.chunks(6) {
                self.plain_line(format_args!("{} {};", names::width_type(width), some.join(", ")));
            }
        }
        self.changed = changed;
    }

    /// Keeps what the region has changed of what is live at a resume point.
    pub(super) fn keep(&mut self, point: ResumePointId) {
        let changed = self
            .layout
            .live_at(point)
            .iter()
            .filter(|&reg| self.changed.contains(reg));
        for reg in changed.collect::<Vec<RegId>>() {
            if let Some(kept) = self.kept(reg) {
                let name = self.reg(reg);
                self.plain_line(format_args!("{kept} = {name};"));
            }
        }
    }

    fn regs(&self) -> impl Iterator<Item = RegId> + use<> {
        (0u32..).map(RegId).take(self.kernel.registers.len())
    }
}

/// Name of the array for registers of a width.
pub(super) const fn array(width: Width) -> &'static str {
    match width {
        Width::Pred => "kept_p",
        Width::W16 => "kept_s",
        Width::W32 => "kept_r",
        Width::W64 => "kept_d",
    }
}

fn is_warp_op(inst: &Inst) -> bool {
    matches!(inst.op, Op::Warp { .. })
}

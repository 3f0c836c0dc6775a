//! Where stopped threads leave what they hold, and where threads that go on find it
//! ([`hetckpt_abi::opencl_program`]).

use hetckpt_abi::opencl_program::{RecordLayout, Stops, count};
use hetckpt_ir::entity::{RegId, ResumePointId};
use hetckpt_ir::types::Width;

use super::region_registers::{WIDTHS, array};
use super::writer::Writer;
use super::{Error, names};

impl Writer<'_> {
    /// The thread leaves a record and ends, if there is room for one.
    pub(super) fn leave_record(&mut self, point: ResumePointId) -> Result<(), Error> {
        let layout = RecordLayout::new(self.layout.bytes_per_thread, self.kernel.local.size_bytes);
        self.plain_line(format_args!(
            "const uint record = atomic_inc(&counts[{}]);",
            count::STOPPED
        ));
        self.open("if (record < num_stopped)");
        self.plain_line(format_args!(
            "__global uchar *const at = stopped + (ulong)record * {};",
            layout.stride
        ));
        self.plain_line(format_args!(
            "*(__global uint4 *)at = (uint4)(block, thread, {}, 0);",
            point.0
        ));
        for reg in self.layout.live_at(point).iter() {
            let column = self.layout.column(reg).ok_or_else(|| self.malformed("resume point"))?;
            let at = format!("at + {}", layout.registers + u64::from(column));
            self.store(reg, &at);
        }
        if self.kernel.local.size_bytes > 0 {
            let words = self.kernel.local.size_bytes / 16;
            self.plain_line(format_args!(
                "for (uint i = 0; i < {words}; i++) ((__global ulong2 *)(at + {}))[i] = ((__private ulong2 *)frame)[i];",
                layout.local
            ));
        }
        self.plain_line("return;");
        self.close();
        self.plain_line(format_args!("atomic_dec(&counts[{}]);", count::STOPPED));
        Ok(())
    }

    /// The block's threads leave what they hold in the slot that `word` names, which counts from 1; `point` is where
    /// all of them are, if they are together, but for those that `mask` says have ended.
    pub(super) fn leave_slot(
        &mut self,
        word: usize,
        point: Option<ResumePointId>,
        mask: Option<usize>,
    ) -> Result<(), Error> {
        self.slot_layout();
        self.plain_line(format_args!(
            "__global uchar *const slot = stopped + (now[{word}] - 1) * slot_bytes;"
        ));
        let stored = match (point, self.on(mask)) {
            (None, _) => "point + 1".to_owned(),
            (Some(point), None) => (point.0 + 1).to_string(),
            (Some(point), Some(on)) => format!("{on} ? {} : 0", point.0 + 1),
        };
        self.plain_line(format_args!("((__global uint *)slot)[thread] = {stored};"));
        self.plain_line("if (thread == 0) *(__global uint *)(slot + claim_at) = block;");
        let Some(point) = point else {
            for width in WIDTHS {
                let place = self.column_in_slot(width);
                self.copy_kept(width, |i| format!("{place} = {}[{i}];", array(width)));
            }
            self.copy_memory_to_slot();
            return Ok(());
        };
        for reg in self.layout.live_at(point).iter() {
            let column = self.layout.column(reg).ok_or_else(|| self.malformed("resume point"))?;
            let at = self.place_in_slot(reg, column);
            self.store(reg, &at);
        }
        self.copy_memory_to_slot();
        Ok(())
    }

    fn copy_memory_to_slot(&mut self) {
        self.copy_shared("slot + shared_at", "shared_memory");
        self.copy_frame(|slot, frame| format!("{slot} = {frame};"));
    }

    /// The thread takes its registers, frame and part of shared memory from `slot`.
    pub(super) fn take_slot(&mut self) {
        if self.stops == Stops::Threads {
            for (reg, column) in self.columns() {
                let at = self.place_in_slot(reg, column);
                let name = self.reg(reg);
                let width = self.kernel.width(reg);
                let not_zero = if width == Width::Pred { " != 0" } else { "" };
                self.plain_line(format_args!(
                    "{name} = *(__global const {} *)({at}){not_zero};",
                    names::unsigned(width.size_bytes())
                ));
            }
        }
        for width in WIDTHS {
            let place = self.column_in_slot(width);
            self.copy_kept(width, |i| format!("{}[{i}] = {place};", array(width)));
        }
        self.copy_shared("shared_memory", "slot + shared_at");
        self.copy_frame(|slot, frame| format!("{frame} = {slot};"));
    }

    /// Offsets in a slot, which depend on the launch ([`hetckpt_abi::launch_control::SlotLayout`]).
    pub(super) fn slot_layout(&mut self) {
        let (registers, local) = (self.layout.bytes_per_thread, self.kernel.local.size_bytes);
        let up = |n: &str, to: u32| format!("(({n}) + {}ul & ~{}ul)", to - 1, to - 1);
        let claim = up("4ul * block_size", 16);
        let shared = up(&format!("registers_at + {registers}ul * block_size"), 16);
        let frames = up(
            &format!(
                "shared_at + {}u + dynamic_shared_bytes",
                self.kernel.shared.static_bytes
            ),
            16,
        );
        let stride = up(&format!("local_at + {local}ul * block_size"), 128);
        self.plain_line(format_args!(
            "const ulong claim_at = {claim}, registers_at = claim_at + 16;"
        ));
        self.plain_line(format_args!("const ulong shared_at = {shared}, local_at = {frames};"));
        self.plain_line(format_args!("const ulong slot_bytes = {stride};"));
    }

    /// Saved registers and their columns, in the order of the registers.
    fn columns(&self) -> Vec<(RegId, u32)> {
        let regs = (0u32..).map(RegId).take(self.kernel.registers.len());
        regs.filter_map(|reg| Some((reg, self.layout.column(reg)?))).collect()
    }

    fn has_shared(&self) -> bool {
        self.stops == Stops::Blocks
    }

    fn place_in_slot(&self, reg: RegId, column: u32) -> String {
        let width = self.kernel.width(reg).size_bytes();
        format!("slot + registers_at + {column}ul * block_size + {width}ul * thread")
    }

    /// The place in a slot of the thread's kept register number `i` of a width.
    fn column_in_slot(&self, width: Width) -> String {
        let size = width.size_bytes();
        let first = self.first_column(width).unwrap_or(0);
        format!(
            "((__global {} *)(slot + registers_at + ({first}ul + {size} * i) * block_size))[thread]",
            names::unsigned(size)
        )
    }

    /// A statement for each kept register of a width, whose number is `i`.
    fn copy_kept(&mut self, width: Width, statement: impl Fn(&str) -> String) {
        let count = self.num_kept(width);
        if self.stops == Stops::Blocks && count > 0 {
            self.plain_line(format_args!("for (uint i = 0; i < {count}; i++) {}", statement("i")));
        }
    }

    fn store(&mut self, reg: RegId, at: &str) {
        let ty = names::unsigned(self.kernel.width(reg).size_bytes());
        let name = self.reg(reg);
        self.plain_line(format_args!("*(__global {ty} *)({at}) = {name};"));
    }

    /// Copies shared memory, which has whole 16 bytes.
    fn copy_shared(&mut self, to: &str, from: &str) {
        if !self.has_shared() {
            return;
        }
        let place = |text: &str| {
            if text.starts_with("slot") {
                format!("((__global ulong2 *)({text}))[i]")
            } else {
                format!("{text}[i]")
            }
        };
        self.plain_line(format_args!(
            "for (uint i = thread; i < ({}u + dynamic_shared_bytes + 15) / 16; i += block_size) {} = {};",
            self.kernel.shared.static_bytes,
            place(to),
            place(from)
        ));
    }

    fn copy_frame(&mut self, assignment: impl Fn(&str, &str) -> String) {
        let size_bytes = self.kernel.local.size_bytes;
        if size_bytes > 0 {
            let slot = format!("((__global ulong2 *)(slot + local_at + {size_bytes}ul * thread))[i]");
            let assignment = assignment(&slot, "((__private ulong2 *)frame)[i]");
            self.plain_line(format_args!(
                "for (uint i = 0; i < {}; i++) {assignment}",
                size_bytes / 16
            ));
        }
    }
}

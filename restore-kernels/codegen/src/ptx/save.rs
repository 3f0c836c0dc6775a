//! What a stopping thread does, out of line: marks itself as not started, or saves itself in its block's slot
//! ([`hetckpt_abi::launch_control`]), and ends.
//!
//! Where threads of the block may be waiting at a barrier, or share memory, a thread that stops on its own then
//! *drains*: it joins the barrier with the word that all are to stop, so that nobody passes it, and nobody writes
//! shared memory any more once it is passed. Then the stopped threads share out the copying of shared memory, piece by
//! piece.

use hetckpt_abi::launch_control::{ARENA_BYTES, TOLD_WORD_AT, offset};
use hetckpt_ir::entity::{RegId, ResumePointId};
use hetckpt_ir::kernel::{Kernel, ResumePointKind};
use hetckpt_ir::types::Width;

use super::writer::Writer;
use super::{Error, names};

/// Bytes of shared memory that a thread copies at a time.
const SHARED_PIECE_BYTES: u32 = 512;

/// Local frames up to this size are copied without a loop.
const MAX_UNROLLED_FRAME_BYTES: u32 = 512;

/// Registers that hold where the parts of a slot lie.
pub(super) struct SlotParts {
    /// Linear index of the thread in its block.
    pub thread: String,
    /// Threads in the block.
    pub threads: String,
    /// Offset of the register area in the slot (32 bits).
    pub registers: String,
}

impl Writer<'_> {
    /// Writes the code of all resume points at which the kernel's probes can stop.
    pub(super) fn save_paths(&mut self) -> Result<(), Error> {
        let stops = std::mem::take(&mut self.stops);
        if stops.is_empty() {
            return Ok(());
        }
        for &point in &stops {
            self.label(names::save_label(point));
            if point == Kernel::ENTRY_POINT {
                self.save_not_started();
            } else {
                self.save_at(point)?;
            }
        }
        self.save_ends();
        Ok(())
    }

    /// Linear index of the thread, threads in the block.
    fn thread_numbers(&mut self) -> (String, String) {
        let t: Vec<String> = (0..6).map(|_| self.scratch(Width::W32)).collect();
        for (reg, special) in t
            .iter()
            .zip(["%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z"])
        {
            self.line(format_args!("mov.u32 {reg}, {special}"));
        }
        let (row, thread) = (self.scratch(Width::W32), self.scratch(Width::W32));
        self.line(format_args!("mad.lo.u32 {row}, {}, {}, {}", t[2], t[4], t[1]));
        self.line(format_args!("mad.lo.u32 {thread}, {row}, {}, {}", t[3], t[0]));
        let (plane, threads) = (self.scratch(Width::W32), self.scratch(Width::W32));
        self.line(format_args!("mul.lo.u32 {plane}, {}, {}", t[3], t[4]));
        self.line(format_args!("mul.lo.u32 {threads}, {plane}, {}", t[5]));
        (thread, threads)
    }

    /// Linear index of the launched block (64 bits).
    pub(super) fn launched_block(&mut self) -> String {
        let block = self.scratch(Width::W64);
        if self.facts.block_list {
            let x = self.scratch(Width::W32);
            self.line(format_args!("mov.u32 {x}, %ctaid.x"));
            self.line(format_args!("cvt.u64.u32 {block}, {x}"));
            return block;
        }
        let t: Vec<String> = (0..5).map(|_| self.scratch(Width::W32)).collect();
        for (reg, special) in t
            .iter()
            .zip(["%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y"])
        {
            self.line(format_args!("mov.u32 {reg}, {special}"));
        }
        let (plane, nx, y, x) = (
            self.scratch(Width::W64),
            self.scratch(Width::W64),
            self.scratch(Width::W64),
            self.scratch(Width::W64),
        );
        self.line(format_args!("cvt.u64.u32 {y}, {}", t[1]));
        self.line(format_args!("mad.wide.u32 {plane}, {}, {}, {y}", t[2], t[4]));
        self.line(format_args!("cvt.u64.u32 {nx}, {}", t[3]));
        self.line(format_args!("cvt.u64.u32 {x}, {}", t[0]));
        self.line(format_args!("mad.lo.u64 {block}, {plane}, {nx}, {x}"));
        block
    }

    /// Address `[%control + at]` holds, plus `scale * index`.
    fn table_entry(&mut self, at: u64, index: &str, scale: u32) -> String {
        let (base, entry) = (self.scratch(Width::W64), self.scratch(Width::W64));
        self.line(format_args!("ld.volatile.global.u64 {base}, [%control+{at}]"));
        self.line(format_args!("mad.lo.u64 {entry}, {index}, {scale}, {base}"));
        entry
    }

    fn save_not_started(&mut self) {
        self.wait_until_all_are_told("$told");
        let (thread, threads) = self.thread_numbers();
        let block = self.launched_block();
        let (words, words64, first) = (
            self.scratch(Width::W32),
            self.scratch(Width::W64),
            self.scratch(Width::W64),
        );
        self.line(format_args!("add.u32 {words}, {threads}, 31"));
        self.line(format_args!("shr.u32 {words}, {words}, 5"));
        self.line(format_args!("cvt.u64.u32 {words64}, {words}"));
        self.line(format_args!("mul.lo.u64 {first}, {block}, {words64}"));
        let row = self.table_entry(offset::ENTRY_BITS, &first, 4);
        let (word, at) = (self.scratch(Width::W32), self.scratch(Width::W64));
        self.line(format_args!("shr.u32 {word}, {thread}, 5"));
        self.line(format_args!("mad.wide.u32 {at}, {word}, 4, {row}"));
        // Consecutive threads make a warp, so its lanes are a word's bits; one lane enters all that are here.
        let (here, below, is_lowest) = (
            self.scratch(Width::W32),
            self.scratch(Width::W32),
            self.scratch(Width::Pred),
        );
        self.line(format_args!("mov.u32 {below}, %lanemask_lt"));
        self.line(format_args!("activemask.b32 {here}"));
        self.line(format_args!("and.b32 {below}, {below}, {here}"));
        self.line(format_args!("setp.eq.u32 {is_lowest}, {below}, 0"));
        self.line(format_args!("@{is_lowest} red.global.or.b32 [{at}], {here}"));
        if self.facts.drains {
            self.drain();
        }
        if self.facts.uses_shared {
            self.save_shared_of_started(&row, &words, &threads);
        }
        self.line("ret");
    }

    /// If other threads of the block have started, what they left in shared memory must be kept, even if they have
    /// ended.
    fn save_shared_of_started(&mut self, row: &str, words: &str, threads: &str) {
        let (count, i, at) = (
            self.scratch(Width::W32),
            self.scratch(Width::W32),
            self.scratch(Width::W64),
        );
        let (bits, ones, more) = (
            self.scratch(Width::W32),
            self.scratch(Width::W32),
            self.scratch(Width::Pred),
        );
        self.line(format_args!("mov.u32 {count}, 0"));
        self.line(format_args!("mov.u32 {i}, 0"));
        self.label("$count_not_started");
        self.line(format_args!("mad.wide.u32 {at}, {i}, 4, {row}"));
        self.line(format_args!("ld.volatile.global.u32 {bits}, [{at}]"));
        self.line(format_args!("popc.b32 {ones}, {bits}"));
        self.line(format_args!("add.u32 {count}, {count}, {ones}"));
        self.line(format_args!("add.u32 {i}, {i}, 1"));
        self.line(format_args!("setp.lt.u32 {more}, {i}, {words}"));
        self.line(format_args!("@{more} bra $count_not_started"));
        let all = self.scratch(Width::Pred);
        self.line(format_args!("setp.eq.u32 {all}, {count}, {threads}"));
        self.line(format_args!("@{all} ret"));
        self.claim_slot("$claimed_for_shared");
        self.line("bra.uni $save_shared");
    }

    /// Sets `%slot` to the address of the block's slot; the block's first thread takes one.
    fn claim_slot(&mut self, label: &str) {
        let block = self.launched_block();
        let claim = self.table_entry(offset::BLOCK_SLOT, &block, 4);
        let (old, won) = (self.scratch(Width::W32), self.scratch(Width::Pred));
        self.line(format_args!("atom.global.cas.b32 {old}, [{claim}], 0, 1"));
        self.line(format_args!("setp.ne.u32 {won}, {old}, 0"));
        self.line(format_args!("@{won} bra {label}"));
        let (counter, slot) = (self.scratch(Width::W64), self.scratch(Width::W32));
        self.line(format_args!(
            "ld.volatile.global.u64 {counter}, [%control+{}]",
            offset::SLOT_COUNTER
        ));
        self.line(format_args!("atom.global.add.u32 {slot}, [{counter}], 1"));
        self.line(format_args!("add.u32 {slot}, {slot}, 2"));
        self.line(format_args!("st.volatile.global.u32 [{claim}], {slot}"));
        self.label(label);
        let (seen, wait) = (self.scratch(Width::W32), self.scratch(Width::Pred));
        self.line(format_args!("ld.volatile.global.u32 {seen}, [{claim}]"));
        self.line(format_args!("setp.lt.u32 {wait}, {seen}, 2"));
        self.line(format_args!("@{wait} bra {label}"));
        let (limit, too_many) = (self.scratch(Width::W32), self.scratch(Width::Pred));
        self.line(format_args!("add.u32 {seen}, {seen}, -2"));
        self.line(format_args!(
            "ld.volatile.global.u32 {limit}, [%control+{}]",
            offset::NUM_SLOTS
        ));
        self.line(format_args!("setp.ge.u32 {too_many}, {seen}, {limit}"));
        self.line(format_args!("@{too_many} trap"));
        let (first, stride, index) = (
            self.scratch(Width::W64),
            self.scratch(Width::W64),
            self.scratch(Width::W64),
        );
        self.line(format_args!(
            "ld.volatile.global.u64 {first}, [%control+{}]",
            offset::SLOTS
        ));
        self.line(format_args!(
            "ld.volatile.global.u64 {stride}, [%control+{}]",
            offset::SLOT_STRIDE
        ));
        self.line(format_args!("cvt.u64.u32 {index}, {seen}"));
        self.line(format_args!("mad.lo.u64 %slot, {index}, {stride}, {first}"));
    }

    fn save_at(&mut self, point: ResumePointId) -> Result<(), Error> {
        self.wait_until_all_are_told(&format!("$told_rp{}", point.0));
        self.claim_slot(&format!("$claimed_rp{}", point.0));
        let parts = self.slot_parts();
        let (at, value) = (self.scratch(Width::W64), self.scratch(Width::W32));
        self.line(format_args!("mad.wide.u32 {at}, {}, 4, %slot", parts.thread));
        self.line(format_args!("mov.u32 {value}, {}", point.0 + 1));
        self.line(format_args!("st.global.u32 [{at}], {value}"));
        let live: Vec<RegId> = self.layout.live_at(point).iter().collect();
        for reg in live {
            let at = self.column_address(&parts, reg)?;
            let name = self.reg(reg);
            match self.kernel.width(reg) {
                Width::Pred => {
                    let byte = self.scratch(Width::W32);
                    self.line(format_args!("selp.u32 {byte}, 1, 0, {name}"));
                    self.line(format_args!("st.global.u8 [{at}], {byte}"));
                }
                width => self.line(format_args!("st.global.{} [{at}], {name}", names::width_type(width))),
            }
        }
        if self.kernel.local.size_bytes > 0 {
            self.copy_local(&parts, &format!("$save_local_rp{}", point.0), true);
        }
        // At a barrier all threads have arrived, or ended.
        let kind = self.kernel.resume_points.get(point.index()).map(|p| p.kind);
        let all_stop = kind == Some(ResumePointKind::BarrierArrive) || self.polls.stops_block(self.kernel, point);
        if self.facts.drains && !all_stop {
            self.drain();
        }
        self.line(if self.facts.uses_shared {
            "bra.uni $save_shared"
        } else {
            "ret"
        });
        Ok(())
    }

    /// Joins the block's barrier with the word that all are to stop.
    fn drain(&mut self) {
        if self.has_meeting() {
            self.meet_to_stop();
            return;
        }
        let (stop, all) = (self.scratch(Width::Pred), self.scratch(Width::Pred));
        self.line(format_args!("setp.eq.u32 {stop}, 0, 0"));
        self.gather_warp();
        self.line(format_args!("barrier.red.or.pred {all}, 0, {stop}"));
    }

    /// Waits until all multiprocessors have been told to stop.
    fn wait_until_all_are_told(&mut self, label: &str) {
        let (arena, told) = (self.scratch(Width::W64), self.scratch(Width::W32));
        let wait = self.scratch(Width::Pred);
        self.line(format_args!(
            "and.b64 {arena}, %control, {}",
            -ARENA_BYTES.cast_signed()
        ));
        self.label(label);
        self.line(format_args!("ld.volatile.global.u32 {told}, [{arena}+{TOLD_WORD_AT}]"));
        self.line(format_args!("setp.eq.u32 {wait}, {told}, 0"));
        self.line(format_args!("@{wait} bra {label}"));
    }

    /// Where the parts of `%slot` lie ([`hetckpt_abi::launch_control::SlotLayout`]).
    pub(super) fn slot_parts(&mut self) -> SlotParts {
        let (thread, threads) = self.thread_numbers();
        let registers = self.scratch(Width::W32);
        self.line(format_args!("shl.b32 {registers}, {threads}, 2"));
        self.round_up_to_16(&registers);
        self.line(format_args!("add.u32 {registers}, {registers}, 16"));
        SlotParts {
            thread,
            threads,
            registers,
        }
    }

    fn round_up_to_16(&mut self, reg: &str) {
        self.line(format_args!("add.u32 {reg}, {reg}, 15"));
        self.line(format_args!("and.b32 {reg}, {reg}, -16"));
    }

    /// Offset of shared memory in the slot, in a register.
    pub(super) fn shared_part(&mut self, parts: &SlotParts) -> String {
        let shared = self.scratch(Width::W32);
        let bytes = self.layout.bytes_per_thread;
        self.line(format_args!(
            "mad.lo.u32 {shared}, {}, {bytes}, {}",
            parts.threads, parts.registers
        ));
        self.round_up_to_16(&shared);
        shared
    }

    /// Address of the thread's value of `reg`.
    pub(super) fn column_address(&mut self, parts: &SlotParts, reg: RegId) -> Result<String, Error> {
        let column = self.layout.column(reg).ok_or_else(|| Error::WrongLayout {
            kernel: self.kernel.name.clone(),
            register: reg,
        })?;
        let (offset, at) = (self.scratch(Width::W32), self.scratch(Width::W64));
        let width = self.kernel.width(reg).size_bytes();
        self.line(format_args!(
            "mad.lo.u32 {offset}, {}, {column}, {}",
            parts.threads, parts.registers
        ));
        self.line(format_args!("mad.lo.u32 {offset}, {}, {width}, {offset}", parts.thread));
        self.line(format_args!("cvt.u64.u32 {at}, {offset}"));
        self.line(format_args!("add.s64 {at}, {at}, %slot"));
        Ok(at)
    }

    /// Copies the thread's local frame to its place in the slot, or back.
    pub(super) fn copy_local(&mut self, parts: &SlotParts, label: &str, saves: bool) {
        let frame = self.shared_part(parts);
        let (shared, to) = (self.scratch(Width::W32), self.scratch(Width::W64));
        self.line(format_args!("mov.u32 {shared}, %dynamic_smem_size"));
        self.line(format_args!("add.u32 {frame}, {frame}, {shared}"));
        self.round_up_to_16(&frame);
        self.line(format_args!("cvt.u64.u32 {to}, {frame}"));
        self.line(format_args!(
            "mad.wide.u32 {to}, {}, {}, {to}",
            parts.thread, self.kernel.local.size_bytes
        ));
        self.line(format_args!("add.s64 {to}, {to}, %slot"));
        let size = self.kernel.local.size_bytes;
        if size <= MAX_UNROLLED_FRAME_BYTES {
            // Constant offsets let the assembler keep the frame in registers, as it does without this copy.
            for offset in (0..size).step_by(4) {
                let word = self.scratch(Width::W32);
                let (frame, slot) = (format!("[hetckpt_local+{offset}]"), format!("[{to}+{offset}]"));
                if saves {
                    self.line(format_args!("ld.local.b32 {word}, {frame}"));
                    self.line(format_args!("st.global.b32 {slot}, {word}"));
                } else {
                    self.line(format_args!("ld.global.b32 {word}, {slot}"));
                    self.line(format_args!("st.local.b32 {frame}, {word}"));
                }
            }
            return;
        }
        let (here, left) = (self.scratch(Width::W64), self.scratch(Width::W32));
        self.line(format_args!("mov.u64 {here}, hetckpt_local"));
        self.line(format_args!("mov.u32 {left}, {}", self.kernel.local.size_bytes));
        self.label(label);
        let v: Vec<String> = (0..4).map(|_| self.scratch(Width::W32)).collect();
        let v = v.join(", ");
        let (load, store) = if saves {
            (
                format!("ld.local.v4.b32 {{{v}}}, [{here}]"),
                format!("st.global.v4.b32 [{to}], {{{v}}}"),
            )
        } else {
            (
                format!("ld.global.v4.b32 {{{v}}}, [{to}]"),
                format!("st.local.v4.b32 [{here}], {{{v}}}"),
            )
        };
        self.line(load);
        self.line(store);
        self.line(format_args!("add.s64 {here}, {here}, 16"));
        self.line(format_args!("add.s64 {to}, {to}, 16"));
        self.line(format_args!("add.s32 {left}, {left}, -16"));
        let more = self.scratch(Width::Pred);
        self.line(format_args!("setp.gt.s32 {more}, {left}, 0"));
        self.line(format_args!("@{more} bra {label}"));
    }

    /// Threads that are done with themselves take pieces of shared memory from a counter until none is left.
    fn save_ends(&mut self) {
        if !self.facts.uses_shared {
            return;
        }
        self.label("$save_shared");
        let parts = self.slot_parts();
        let shared = self.shared_part(&parts);
        let (size, claim, base) = (
            self.scratch(Width::W32),
            self.scratch(Width::W64),
            self.scratch(Width::W64),
        );
        self.line(format_args!("mov.u32 {size}, %dynamic_smem_size"));
        self.line(format_args!("cvt.u64.u32 {claim}, {}", parts.registers));
        self.line(format_args!("add.s64 {claim}, {claim}, %slot"));
        self.line(format_args!("cvt.u64.u32 {base}, {shared}"));
        self.line(format_args!("add.s64 {base}, {base}, %slot"));
        self.label("$next_piece");
        let (at, end) = (self.scratch(Width::W32), self.scratch(Width::W32));
        self.line(format_args!("atom.global.add.u32 {at}, [{claim}+-16], 1"));
        self.line(format_args!("mul.lo.u32 {at}, {at}, {SHARED_PIECE_BYTES}"));
        let (done, more) = (self.scratch(Width::Pred), self.scratch(Width::Pred));
        self.line(format_args!("setp.ge.u32 {done}, {at}, {size}"));
        self.line(format_args!("@{done} ret"));
        self.line(format_args!("add.u32 {end}, {at}, {SHARED_PIECE_BYTES}"));
        self.line(format_args!("min.u32 {end}, {end}, {size}"));
        self.label("$copy_piece");
        let v: Vec<String> = (0..4).map(|_| self.scratch(Width::W32)).collect();
        let (v, to) = (v.join(", "), self.scratch(Width::W64));
        self.line(format_args!(
            "ld.shared.v4.b32 {{{v}}}, [{at}+{}]",
            self.options.shared_base
        ));
        self.line(format_args!("cvt.u64.u32 {to}, {at}"));
        self.line(format_args!("add.s64 {to}, {to}, {base}"));
        self.line(format_args!("st.global.v4.b32 [{to}], {{{v}}}"));
        self.line(format_args!("add.u32 {at}, {at}, 16"));
        self.line(format_args!("setp.lt.u32 {more}, {at}, {end}"));
        self.line(format_args!("@{more} bra $copy_piece"));
        self.line("bra.uni $next_piece");
    }
}

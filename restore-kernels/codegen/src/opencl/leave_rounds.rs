//! What threads in rounds do at landings ([`super::landing`]): they tell where they are, leave the rounds, and go on
//! together.
//!
//! At a warp-level operation threads wait for those of other warps, which they need not. Some may never come, so they
//! wait in the first [`MAX_ROUNDS_OF_WAITING`] rounds only. And they may come in different iterations: the block lands
//! if registers that are the same for all threads which are together are so.
//!
//! A register that is the same for the whole block is taken from one thread, and what follows from the launch and the
//! thread's index is computed ([`super::rematerialization`]), so that compilers see both.

use hetckpt_ir::analysis::reg_set::RegSet;
use hetckpt_ir::entity::{RegId, ResumePointId, Span};
use hetckpt_ir::types::Width;

use super::Error;
use super::landing::Landing;
use super::writer::Writer;

/// Rounds in which threads wait at a warp-level operation for those of other warps.
const MAX_ROUNDS_OF_WAITING: u32 = 4096;

impl Writer<'_> {
    /// Declares the local memory that landings need.
    pub(super) fn declare_landings(&mut self) {
        if self.landings.is_empty() {
            return;
        }
        self.plain_line("__local uint away_words[16];");
        if self.has_warp_ops() {
            self.plain_line("__local uint ballots[4 * 32];");
        }
        let counts = self.landings.iter().map(|landing| self.common(landing).len());
        let count = counts.max().unwrap_or(0);
        if count > 0 {
            self.plain_line(format_args!("__local ulong common[{count}];"));
        }
    }

    /// Each thread tells where it is not.
    pub(super) fn tell_landings(&mut self) {
        let points: Vec<u32> = self.landings.iter().map(|landing| landing.arrive.0).collect();
        if points.is_empty() {
            return;
        }
        self.plain_line("__local uint *const away = away_words + 4 * (round & 3);");
        for (i, point) in points.iter().enumerate() {
            self.plain_line(format_args!(
                "if (thread == 0) away_words[4 * (round + 1 & 3) + {i}] = 0;"
            ));
            self.plain_line(format_args!("if (point != {point}) away[{i}] = 1;"));
        }
    }

    /// Leaves the rounds if all have come to a landing.
    pub(super) fn leave_rounds(&mut self) {
        let landings = std::mem::take(&mut self.landings);
        for (i, landing) in landings.iter().enumerate() {
            self.open(format_args!("if (!away[{i}])"));
            let common = self.common(landing);
            let is_in_doubt = landing.is_warp_op && !common.is_empty();
            if is_in_doubt {
                // Warps can be in different iterations. All threads have read the word before it changes.
                self.open("if (thread == 0)");
                self.take_common(landing);
                self.close();
                self.plain_line("block_barrier();");
                let differs: Vec<String> = (0..)
                    .zip(&common)
                    .filter_map(|(n, &reg)| Some(format!("common[{n}] != {}", self.kept(reg)?)))
                    .collect();
                self.plain_line(format_args!("if ({}) away[{i}] = 2;", differs.join(" || ")));
                self.plain_line("block_barrier();");
                self.open(format_args!("if (!away[{i}])"));
            }
            self.plain_line(format_args!("landing = {};", i + 1));
            self.plain_line("break;");
            self.close();
            if is_in_doubt {
                self.close();
            }
        }
        self.landings = landings;
    }

    /// The condition under which a thread waits for those of other warps at an operation.
    pub(super) fn waits_for_others(&self, arrive: ResumePointId) -> Option<String> {
        let mut landings = self.landings.iter();
        let i = landings.position(|landing| landing.is_warp_op && landing.arrive == arrive)?;
        Some(format!("if (away[{i}] == 1 && round < {MAX_ROUNDS_OF_WAITING}) break;"))
    }

    /// Writes what a block does that has come to a landing.
    pub(super) fn land(&mut self) -> Result<(), Error> {
        for (i, landing) in std::mem::take(&mut self.landings).into_iter().enumerate() {
            self.span = Span::default();
            self.open(format_args!("if (landing == {})", i + 1));
            self.plain_line("block_barrier();");
            self.open("if (thread == 0)");
            self.together = true;
            self.clear_words();
            self.take_common(&landing);
            self.close();
            self.plain_line("block_barrier();");
            self.declare_turns();
            for line in self.declarations().lines() {
                self.plain_line(line.trim_start());
            }
            self.take_kept(&landing)?;
            self.divergence = Some(landing.divergence);
            self.region(Some(landing.arrive), landing.start)?;
            self.divergence = None;
            self.together = false;
            self.close();
        }
        Ok(())
    }

    /// Live registers at a landing that are the same for the whole block, and are not computed.
    fn common(&self, landing: &Landing) -> Vec<RegId> {
        let live = self.layout.live_at(landing.arrive).iter();
        live.filter(|&reg| landing.divergence.is_uniform_register(reg) && !self.rematerialization.computes(reg))
            .collect()
    }

    /// One thread tells the others what all of them hold.
    fn take_common(&mut self, landing: &Landing) {
        for (i, reg) in self.common(landing).into_iter().enumerate() {
            if let Some(kept) = self.kept(reg) {
                self.plain_line(format_args!("common[{i}] = {kept};"));
            }
        }
    }

    /// Registers that are live at a landing.
    fn take_kept(&mut self, landing: &Landing) -> Result<(), Error> {
        let common = self.common(landing);
        let mut wanted = RegSet::with_capacity(self.kernel.registers.len());
        for reg in self.layout.live_at(landing.arrive).iter() {
            if self.rematerialization.computes(reg) {
                wanted.insert(reg);
                continue;
            }
            let place = common.iter().position(|each| *each == reg);
            let value = match place {
                Some(i) => format!("common[{i}]"),
                None => self.kept(reg).ok_or_else(|| self.malformed("resume point"))?,
            };
            let not_zero = if self.kernel.width(reg) == Width::Pred {
                " != 0"
            } else {
                ""
            };
            self.assign(reg, format_args!("{value}{not_zero}"));
        }
        for inst in self.rematerialization.all_for(wanted) {
            self.inst(&inst)?;
        }
        self.span = Span::default();
        Ok(())
    }
}

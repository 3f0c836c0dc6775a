//! What stands before a kernel's own code: which block this is, whether it starts at all, and where its threads do.

use hetckpt_abi::opencl_program::{Stops, count};
use hetckpt_abi::program::Program;
use hetckpt_ir::entity::Span;

use super::Error;
use super::writer::Writer;

impl Writer<'_> {
    /// Writes the start; `goes_on`: blocks may be told that they go on.
    pub(super) fn start(&mut self, goes_on: bool) {
        self.plain_line("__local uint told[1];");
        if self.stops == Stops::Blocks {
            self.plain_line("__local uint round_words[16];");
        }
        if self.goes_in_rounds() {
            self.declare_kept();
            self.declare_landings();
        } else if self.together {
            self.declare_turns();
            if self.has_warp_ops() {
                self.plain_line("__local uint ballots[4 * 32];");
            }
            if self.votes_in_sub_groups {
                self.plain_line("__local uint are_others[1];");
            }
        }
        let linear = "get_group_id(0) + get_num_groups(0) * (get_group_id(1) + get_num_groups(1) * get_group_id(2))";
        if goes_on {
            self.plain_line(format_args!("const uint group = {linear};"));
            self.plain_line("const bool goes_on = resumed != 0 && group < grid.w;");
            self.plain_line("const uint block = resumed != 0 ? resumed[group] : group;");
            self.plain_line("const uint ctaid_x = block % grid.x, ctaid_y = block / grid.x % grid.y;");
            self.plain_line("const uint ctaid_z = block / grid.x / grid.y;");
        } else {
            self.plain_line(format_args!("const uint block = {linear};"));
            self.plain_line(
                "const uint ctaid_x = get_group_id(0), ctaid_y = get_group_id(1), ctaid_z = get_group_id(2);",
            );
        }
        if self.never_stops() {
            self.first_words();
            return self.look_at_sub_groups();
        }
        self.open("if (thread == 0)");
        self.plain_line(format_args!("told[0] = {};", self.stop_asked()));
        self.clear_words();
        self.close();
        self.plain_line("block_barrier();");
        self.open("if (told[0])");
        self.plain_line(format_args!(
            "if (thread == 0) turned_away[atomic_inc(&counts[{}])] = block;",
            count::TURNED_AWAY
        ));
        self.plain_line("return;");
        self.close();
        // Compilers for processors run what is between barriers as loops over the threads: those of the kernel's own
        // code are not to have an end inside. Where threads stop each on its own they have: PoCL 3.1 and 5.0 then let
        // threads run twice, or from elsewhere, behind a second barrier.
        if self.stops == Stops::Blocks {
            self.plain_line("block_barrier();");
        }
        self.look_at_sub_groups();
        if goes_on {
            self.find_slot();
        }
    }

    /// Sub-groups vote where they are the block's warps, as all of its threads find.
    fn look_at_sub_groups(&mut self) {
        if !self.votes_in_sub_groups {
            return;
        }
        self.plain_line(
            "if (get_sub_group_id() != thread >> 5 || get_sub_group_local_id() != lane) are_others[0] = 1;",
        );
        self.plain_line("block_barrier();");
        self.plain_line("const bool are_warps = !are_others[0];");
    }

    /// Declares the turns that words and rows take.
    pub(super) fn declare_turns(&mut self) {
        // 0, but PoCL 3.1 must not see that it is the same for the whole block: it would update it once for each
        // thread.
        self.plain_line("uint turn = thread >> 31, row_turn = turn, vote_turn = turn;");
    }

    /// Makes the words ready through which threads vote.
    fn first_words(&mut self) {
        if self.stops == Stops::Blocks {
            self.open("if (thread == 0)");
            self.plain_line("told[0] = grid.w >> 31; // 0");
            self.clear_words();
            self.close();
            self.plain_line("block_barrier();");
        }
    }

    pub(super) fn clear_words(&mut self) {
        if self.stops == Stops::Blocks {
            self.plain_line("for (uint i = 0; i < 16; i++) round_words[i] = 0;");
        }
        if self.goes_in_rounds() && !self.landings.is_empty() {
            self.plain_line("for (uint i = 0; i < 16; i++) away_words[i] = 0;");
        }
        if self.together && self.has_warp_ops() {
            self.plain_line("for (uint i = 0; i < 32; i++) ballots[i] = 0;");
        }
        if self.votes_in_sub_groups {
            self.plain_line("are_others[0] = 0;");
        }
    }

    /// Threads that go on take what they held.
    fn find_slot(&mut self) {
        self.plain_line("uint point = 0;");
        self.open("if (goes_on)");
        self.slot_layout();
        self.plain_line("__global const uchar *const slot = resumed_slots + group * slot_bytes;");
        self.plain_line("point = ((__global const uint *)slot)[thread] - 1;");
        self.take_slot();
        self.close();
        if self.stops == Stops::Blocks {
            self.plain_line("block_barrier();");
        }
    }

    /// Writes the regions of a continuation whose threads go on each on its own.
    pub(super) fn entries(&mut self, program: &Program) -> Result<(), Error> {
        self.open("switch (point)");
        for &(point, block) in &program.entries {
            self.span = Span::default();
            self.depth -= 1;
            self.plain_line(format_args!("case {}:", point.0));
            self.depth += 1;
            self.region(Some(point), block)?;
        }
        self.close();
        Ok(())
    }
}

//! How many registers a thread can have, so that blocks have room on a multiprocessor.
//!
//! # Source
//! CUDA C++ Programming Guide, "Hardware Multithreading", and NVIDIA's occupancy calculator: registers are given out to
//! warps by 256, warps lie in four partitions.

use crate::device::Room;

const WARP: u32 = 32;
/// Registers are given out by so many for each thread of a warp.
const STEP: u32 = 8;
const PARTITIONS: u32 = 4;
/// No thread has more.
const MOST: u32 = 255;

/// What a multiprocessor has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Multiprocessor {
    /// Registers; 0: the driver does not say.
    pub registers: u32,
    /// Threads.
    pub threads: u32,
}

impl Multiprocessor {
    /// Most registers of a thread with which `room` is left, or as much of it as there can be threads.
    pub fn most(self, room: Room) -> u32 {
        if self.registers == 0 || room.threads == 0 {
            return MOST;
        }
        let a_block = room
            .threads
            .div_ceil(WARP)
            .next_multiple_of(PARTITIONS)
            .saturating_mul(WARP);
        let blocks = room.blocks.min(self.threads / a_block).max(1);
        let each = self.registers / a_block.saturating_mul(blocks);
        (each / STEP * STEP).min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_threads_share_what_there_is() {
        let h100 = Multiprocessor {
            registers: 65_536,
            threads: 2048,
        };
        let most = |threads, blocks| h100.most(Room { threads, blocks });
        assert_eq!(most(1024, 1), 64);
        assert_eq!(most(1000, 1), 64);
        assert_eq!(most(768, 1), 80);
        assert_eq!(most(512, 2), 64);
        assert_eq!(most(512, 4), 32);
        assert_eq!(most(32, 1), 255);
        assert_eq!(most(1024, 7), 32, "no more than two have room");
        assert_eq!(most(u32::MAX, u32::MAX), 0);
        assert_eq!(most(0, 1), 255);
    }
}

//! Where the threads of a stopped launch go on, and whether together.
//!
//! Threads of a block are *in step* if what one of them does next, the others do too. Code for GPUs lets a block or a
//! warp decide together at probes that its threads pass together; that is right as long as they are in step, as they
//! are from a kernel's start on. A device that runs threads one after another, as a CPU does, stops some before such a
//! probe and some behind it.

use std::collections::BTreeSet;

use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_abi::thread_state::FINISHED;
use hetckpt_ir::kernel::Kernel;

/// Threads of a warp.
const WARP: usize = 32;

/// Resume points at which the blocks of a stopped launch start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StartPoints {
    /// Ascending; 0 is the entry.
    pub points: Vec<u32>,
    /// The threads of each block are in step.
    pub in_step: bool,
    /// Lanes of a warp are at different points of a kernel that counts on their running in step.
    pub parts_warps: bool,
}

impl StartPoints {
    /// Those of `grid`, which is what is left of a launch of `num_blocks` blocks; `None` if it is the whole grid from
    /// the start. `stays_in_step`: whatever has stopped the threads keeps those in step that were.
    #[must_use]
    pub fn of(grid: &PausedGrid, num_blocks: u64, kernel: &Kernel, stays_in_step: bool) -> Option<Self> {
        if grid.paused.is_empty() && grid.num_not_started() == num_blocks {
            return None;
        }
        let mut points: BTreeSet<u32> = grid.paused.iter().flat_map(|b| &b.resume_points).copied().collect();
        points.remove(&FINISHED);
        if !grid.not_started.is_empty() || points.is_empty() {
            points.insert(0);
        }
        Some(Self {
            points: points.into_iter().collect(),
            in_step: stays_in_step || are_at_one_point(grid, kernel),
            parts_warps: !stays_in_step && kernel.runs_in_step() && !groups_are_at_one_point(grid, WARP),
        })
    }
}

/// True if those threads of each block that have not finished are at one resume point; in a kernel without barriers,
/// those of each warp.
fn are_at_one_point(grid: &PausedGrid, kernel: &Kernel) -> bool {
    let together = match (kernel.has_barrier(), kernel.has_warp_op()) {
        (true, _) => usize::MAX,
        (false, true) => WARP,
        (false, false) => return true,
    };
    groups_are_at_one_point(grid, together)
}

/// True if those of each `together` threads that have not finished are at one resume point.
fn groups_are_at_one_point(grid: &PausedGrid, together: usize) -> bool {
    let is_one = |threads: &[u32]| {
        let mut points = threads.iter().filter(|&&point| point != FINISHED);
        let first = points.next();
        points.all(|point| Some(point) == first)
    };
    let mut groups = grid.paused.iter().flat_map(|b| b.resume_points.chunks(together));
    groups.all(is_one)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use hetckpt_abi::paused_block::PausedBlock;

    use super::*;

    fn left(points: &[u32]) -> PausedGrid {
        let block = PausedBlock {
            block: 0,
            resume_points: points.to_vec(),
            registers: vec![],
            shared: vec![],
            local: vec![],
        };
        PausedGrid {
            paused: vec![block],
            not_started: vec![(1, 2)],
        }
    }

    fn kernel(body: &str) -> Kernel {
        let text = format!("kernel \"k\" {{\n  reg %r0 w32\nbb0:\n{body}}}\n");
        hetckpt_ir::text::parse::kernel(&text).unwrap()
    }

    const BARRIER: &str = "  barrier 0 next bb1\nbb1:\n  exit\n";

    #[test]
    fn threads_between_the_same_barriers_may_be_out_of_step() {
        let kernel = kernel(BARRIER);
        let of = |points: &[u32], stays| StartPoints::of(&left(points), 2, &kernel, stays).unwrap();
        assert!(of(&[1, 1, FINISHED], false).in_step);
        assert!(!of(&[1, 2, 1], false).in_step);
        assert!(!of(&[0, 1, 1], false).in_step);
        assert!(of(&[1, 2, 1], true).in_step);
        assert_eq!(of(&[2, 1], false).points, [0, 1, 2]);
    }

    #[test]
    fn lanes_apart_matter_where_they_are_to_run_in_step() {
        let of = |points: &[u32], body| StartPoints::of(&left(points), 2, &kernel(body), false).unwrap();
        let warps = [[1; WARP], [2; WARP]].concat();
        let step = "  warp.step _|_ mask 0xffffffff\n  exit\n";
        assert!(!of(&warps, step).parts_warps);
        assert!(of(&warps[1..], step).parts_warps);
        assert!(!of(&warps[1..], BARRIER).parts_warps);
    }

    #[test]
    fn independent_threads_are_always_in_step() {
        assert!(
            StartPoints::of(&left(&[1, 2]), 2, &kernel("  exit\n"), false)
                .unwrap()
                .in_step
        );
    }

    #[test]
    fn a_grid_that_has_not_begun_has_no_start_points() {
        let grid = PausedGrid {
            paused: vec![],
            not_started: vec![(0, 2)],
        };
        assert_eq!(StartPoints::of(&grid, 2, &kernel(BARRIER), false), None);
    }
}

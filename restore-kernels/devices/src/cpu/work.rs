//! Which blocks of a launch are still to be run, and by whom.

use std::collections::VecDeque;

use hetckpt_abi::paused_block::{PausedBlock, PausedGrid};

use super::context::BlockMemory;

/// A block that has had a turn and is not at its end.
pub struct SuspendedBlock {
    /// Linear index.
    pub block: u64,
    /// Its state.
    pub memory: Box<BlockMemory>,
}

/// Something for a worker to do.
pub enum Task {
    /// Blocks not started: linear indices, end exclusive.
    Fresh(u64, u64),
    /// The block at this place in the launch's paused grid.
    Paused(usize),
    /// A block whose turn it is again.
    Suspended(SuspendedBlock),
}

/// Blocks left of one launch.
pub struct Work {
    /// Paused blocks of the grid that the launch continues, from here on not taken yet.
    next_paused: usize,
    num_paused: usize,
    /// Not started and not taken.
    fresh: VecDeque<(u64, u64)>,
    suspended: VecDeque<SuspendedBlock>,
    /// Blocks that stopped because of a pause.
    stopped: Vec<PausedBlock>,
    /// Workers that hold a task.
    pub num_busy: usize,
}

impl Work {
    /// All of a grid.
    pub fn all(num_blocks: u64) -> Self {
        Self::rest(0, vec![(0, num_blocks)])
    }

    /// What a pause left.
    pub fn rest(num_paused: usize, not_started: Vec<(u64, u64)>) -> Self {
        Self {
            next_paused: 0,
            num_paused,
            fresh: not_started.into_iter().filter(|(first, end)| first < end).collect(),
            suspended: VecDeque::new(),
            stopped: Vec::new(),
            num_busy: 0,
        }
    }

    /// True if a worker could be given something.
    pub fn has_task(&self) -> bool {
        self.next_paused < self.num_paused || !self.fresh.is_empty() || !self.suspended.is_empty()
    }

    /// Takes a task: what was stopped first, then new blocks (at most `max_fresh` at once), then those whose turn it is
    /// again; but those first once `max_suspended` are set aside, since each holds memory.
    pub fn take(&mut self, max_fresh: u64, max_suspended: usize) -> Option<Task> {
        let task = if self.next_paused < self.num_paused {
            self.next_paused += 1;
            Some(Task::Paused(self.next_paused - 1))
        } else if self.suspended.len() >= max_suspended || self.fresh.is_empty() {
            self.suspended.pop_front().map(Task::Suspended)
        } else {
            self.fresh.front_mut().map(|range| {
                let end = range.1.min(range.0.saturating_add(max_fresh));
                let task = Task::Fresh(range.0, end);
                range.0 = end;
                task
            })
        };
        if self.fresh.front().is_some_and(|(first, end)| first >= end) {
            self.fresh.pop_front();
        }
        self.num_busy += usize::from(task.is_some());
        task
    }

    /// Blocks not started and not taken.
    pub fn num_fresh(&self) -> u64 {
        self.fresh.iter().map(|(first, end)| end - first).sum()
    }

    /// True if blocks wait for their next turn.
    pub fn has_suspended(&self) -> bool {
        !self.suspended.is_empty()
    }

    /// A block waits for its next turn.
    pub fn suspend(&mut self, block: SuspendedBlock) {
        self.suspended.push_back(block);
    }

    /// A block stopped because of a pause.
    pub fn stop(&mut self, block: PausedBlock) {
        self.stopped.push(block);
    }

    /// Blocks that were taken but not started.
    pub fn give_back(&mut self, first: u64, end: u64) {
        if first < end {
            self.fresh.push_front((first, end));
        }
    }

    /// Takes out everything that is left, as a paused grid. `capture` turns a suspended block into a stopped one;
    /// `grid` is the one that the launch continues.
    pub fn take_rest(
        &mut self,
        grid: Option<&PausedGrid>,
        capture: impl Fn(&SuspendedBlock) -> PausedBlock,
    ) -> PausedGrid {
        let mut paused = std::mem::take(&mut self.stopped);
        paused.extend(self.suspended.drain(..).map(|block| capture(&block)));
        let untouched = grid.map_or(&[][..], |grid| &grid.paused[self.next_paused..]);
        paused.extend(untouched.iter().cloned());
        self.next_paused = self.num_paused;
        paused.sort_by_key(|block| block.block);
        let mut ranges: Vec<(u64, u64)> = self.fresh.drain(..).collect();
        ranges.sort_unstable();
        let mut not_started: Vec<(u64, u64)> = Vec::new();
        for (first, end) in ranges {
            match not_started.last_mut() {
                Some(last) if last.1 == first => last.1 = end,
                _ => not_started.push((first, end)),
            }
        }
        PausedGrid { paused, not_started }
    }

    /// Forgets what is left, after a failure.
    pub fn clear(&mut self) {
        self.fresh.clear();
        self.suspended.clear();
        self.next_paused = self.num_paused;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(block: &SuspendedBlock) -> PausedBlock {
        PausedBlock {
            block: block.block,
            ..PausedBlock::default()
        }
    }

    #[test]
    fn what_nobody_took_and_what_came_back_is_not_started() {
        let mut work = Work::rest(0, vec![(0, 4), (10, 20)]);
        assert!(matches!(work.take(3, 1), Some(Task::Fresh(0, 3))));
        assert!(matches!(work.take(3, 1), Some(Task::Fresh(3, 4))));
        assert!(matches!(work.take(3, 1), Some(Task::Fresh(10, 13))));
        work.give_back(2, 3);
        work.give_back(3, 4);
        assert_eq!(work.num_fresh(), 9);
        work.suspend(SuspendedBlock {
            block: 12,
            memory: Box::default(),
        });
        work.stop(PausedBlock {
            block: 1,
            ..PausedBlock::default()
        });
        let rest = work.take_rest(None, capture);
        assert_eq!(rest.not_started, [(2, 4), (13, 20)]);
        assert_eq!(rest.paused.iter().map(|b| b.block).collect::<Vec<_>>(), [1, 12]);
        assert!(!work.has_task());
    }

    #[test]
    fn new_blocks_start_before_others_have_a_second_turn_up_to_the_limit() {
        let mut work = Work::all(3);
        work.suspend(SuspendedBlock {
            block: 7,
            memory: Box::default(),
        });
        assert!(matches!(work.take(1, 2), Some(Task::Fresh(0, 1))));
        work.suspend(SuspendedBlock {
            block: 0,
            memory: Box::default(),
        });
        assert!(matches!(
            work.take(1, 2),
            Some(Task::Suspended(SuspendedBlock { block: 7, .. }))
        ));
        assert_eq!(work.num_fresh(), 2);
        assert_eq!(work.num_busy, 2);
    }
}

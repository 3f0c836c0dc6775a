//! What a stopped launch has left, from the bytes that its kernels wrote. Nothing in them is taken on trust: an error
//! says what cannot be.

use std::collections::{BTreeMap, BTreeSet};

use hetckpt_abi::opencl_program::{RecordLayout, Stops};
use hetckpt_abi::paused_block::{PausedBlock, PausedGrid};
use hetckpt_abi::thread_state::FINISHED;

use crate::control::{BlockShape, read_slot};

/// What a launch has left and what it was given.
pub(super) struct Remains<'a> {
    /// Shape of its blocks.
    pub shape: BlockShape,
    /// What `stopped` holds.
    pub stops: Stops,
    /// Registers live at each resume point: bytes per thread before the column, bytes of a value.
    pub live_columns: &'a [Vec<(u32, u32)>],
    /// Blocks of the program's grid.
    pub num_blocks: u64,
    /// What a continuation was given.
    pub given: Option<&'a PausedGrid>,
    /// Blocks turned away.
    pub turned_away: &'a [u32],
    /// Slots or records.
    pub stopped: &'a [u8],
}

type Result<T> = std::result::Result<T, RemainsError>;

/// What cannot be in what kernels have left (a bug in us, or in the device's compiler or driver).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RemainsError {
    #[error("block {block} was turned away twice")]
    AwayTwice { block: u64 },
    #[error("block {block} was turned away and has stopped")]
    AwayAndStopped { block: u64 },
    #[error("block {block} was not launched")]
    NotLaunched { block: u64 },
    #[error("block {block} has no thread {thread}")]
    NoThread { block: u64, thread: u32 },
    #[error("thread {thread} of block {block} has stopped twice")]
    ThreadTwice { block: u64, thread: u32 },
    #[error("block {block} has stopped twice")]
    BlockTwice { block: u64 },
    #[error("there is no resume point {point}")]
    NoPoint { point: u32 },
}

impl Remains<'_> {
    /// What is left.
    pub fn collect(&self) -> Result<PausedGrid> {
        let mut away = BTreeSet::new();
        let mut grid = PausedGrid::default();
        let before = self
            .given
            .map(|given| given.paused.iter().map(|b| (b.block, b)).collect());
        let before: BTreeMap<u64, &PausedBlock> = before.unwrap_or_default();
        for &block in self.turned_away {
            let block = self.known(block, &before)?;
            if !away.insert(block) {
                return Err(RemainsError::AwayTwice { block });
            }
        }
        for &block in &away {
            match (before.get(&block), grid.not_started.last_mut()) {
                // It is what it was before.
                (Some(&paused), _) => grid.paused.push(paused.clone()),
                (None, Some((_, end))) if *end == block => *end += 1,
                (None, _) => grid.not_started.push((block, block + 1)),
            }
        }
        let stopped = match self.stops {
            Stops::Threads => self.stopped_threads(&before)?,
            Stops::Blocks => self.stopped_blocks(&before)?,
        };
        if let Some(&block) = stopped.keys().find(|block| away.contains(block)) {
            return Err(RemainsError::AwayAndStopped { block });
        }
        grid.paused.extend(stopped.into_values());
        grid.paused.sort_by_key(|block| block.block);
        Ok(grid)
    }

    /// Checks that the launch had this block.
    fn known(&self, block: u32, before: &BTreeMap<u64, &PausedBlock>) -> Result<u64> {
        let block = u64::from(block);
        let was_given = self.given.is_none_or(|given| {
            let ranges = &given.not_started;
            let at = ranges.partition_point(|&(_, end)| end <= block);
            before.contains_key(&block) || ranges.get(at).is_some_and(|&(first, _)| first <= block)
        });
        if block >= self.num_blocks || !was_given {
            return Err(RemainsError::NotLaunched { block });
        }
        Ok(block)
    }

    fn stopped_threads(&self, before: &BTreeMap<u64, &PausedBlock>) -> Result<BTreeMap<u64, PausedBlock>> {
        let layout = RecordLayout::new(self.shape.bytes_per_thread, self.shape.local_bytes);
        let mut blocks = BTreeMap::new();
        for record in self.stopped.chunks_exact(layout.stride as usize) {
            let block = self.known(word(record, 0), before)?;
            let (thread, point) = (word(record, 4), word(record, 8));
            let columns = self.columns(point)?;
            let state = blocks.entry(block).or_insert_with(|| self.all_finished(block));
            let old = state.resume_points.get_mut(thread as usize);
            let old = old.ok_or(RemainsError::NoThread { block, thread })?;
            if *old != FINISHED {
                return Err(RemainsError::ThreadTwice { block, thread });
            }
            *old = point;
            let (n, thread) = (self.shape.threads as usize, thread as usize);
            let saved = &record[layout.registers as usize..];
            for &(column, size) in columns {
                let (column, size) = (column as usize, size as usize);
                let to = column * n + thread * size;
                state.registers[to..to + size].copy_from_slice(&saved[column..column + size]);
            }
            let (frame, from) = (self.shape.local_bytes as usize, layout.local as usize);
            state.local[thread * frame..(thread + 1) * frame].copy_from_slice(&record[from..from + frame]);
        }
        Ok(blocks)
    }

    fn stopped_blocks(&self, before: &BTreeMap<u64, &PausedBlock>) -> Result<BTreeMap<u64, PausedBlock>> {
        let layout = self.shape.slot();
        let mut blocks = BTreeMap::new();
        for slot in self.stopped.chunks_exact(layout.stride as usize) {
            let block = self.known(word(slot, layout.shared_claim as usize), before)?;
            let saved = read_slot(&self.shape, slot);
            let mut state = PausedBlock {
                resume_points: saved.resume_points,
                shared: saved.shared,
                local: saved.local,
                ..self.all_finished(block)
            };
            let n = self.shape.threads as usize;
            for (thread, &point) in state.resume_points.iter().enumerate() {
                if point == FINISHED {
                    continue;
                }
                for &(column, size) in self.columns(point)? {
                    let at = column as usize * n + thread * size as usize;
                    let range = at..at + size as usize;
                    state.registers[range.clone()].copy_from_slice(&saved.registers[range]);
                }
            }
            if state.resume_points.iter().all(|&point| point == FINISHED) {
                continue;
            }
            if blocks.insert(block, state).is_some() {
                return Err(RemainsError::BlockTwice { block });
            }
        }
        Ok(blocks)
    }

    fn columns(&self, point: u32) -> Result<&[(u32, u32)]> {
        let columns = self.live_columns.get(point as usize);
        columns.map(Vec::as_slice).ok_or(RemainsError::NoPoint { point })
    }

    fn all_finished(&self, block: u64) -> PausedBlock {
        let shape = &self.shape;
        let threads = shape.threads as usize;
        PausedBlock {
            block,
            resume_points: vec![FINISHED; threads],
            registers: vec![0; threads * shape.bytes_per_thread as usize],
            shared: vec![0; shape.shared_bytes as usize],
            local: vec![0; threads * shape.local_bytes as usize],
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(u32::MAX, |w| u32::from_le_bytes(*w))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: BlockShape = BlockShape {
        threads: 3,
        bytes_per_thread: 12,
        shared_bytes: 4,
        local_bytes: 16,
    };

    fn remains<'a>(
        live: &'a [Vec<(u32, u32)>],
        given: Option<&'a PausedGrid>,
        turned_away: &'a [u32],
        stopped: &'a [u8],
    ) -> Remains<'a> {
        Remains {
            shape: SHAPE,
            stops: Stops::Threads,
            live_columns: live,
            num_blocks: 10,
            given,
            turned_away,
            stopped,
        }
    }

    fn live() -> Vec<Vec<(u32, u32)>> {
        vec![vec![], vec![(0, 8), (8, 4)], vec![(8, 4)]]
    }

    fn record(block: u32, thread: u32, point: u32, fill: u8) -> Vec<u8> {
        let layout = RecordLayout::new(12, 16);
        let mut bytes = vec![fill; layout.stride as usize];
        for (at, value) in [(0, block), (4, thread), (8, point), (12, 0)] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn threads_without_a_record_have_finished() {
        let records = [record(4, 2, 1, 7), record(4, 0, 2, 9)].concat();
        let live = live();
        let left = remains(&live, None, &[9, 1, 2], &records).collect().unwrap();
        assert_eq!(left.not_started, [(1, 3), (9, 10)]);
        let block = &left.paused[0];
        assert_eq!((block.block, &block.resume_points[..]), (4, &[2, FINISHED, 1][..]));
        // A column of 8 bytes, then one of 4; the first is not live at point 2.
        let columns = [[0; 8], [0; 8], [7; 8]].concat();
        assert_eq!(block.registers[..24], columns[..]);
        assert_eq!(block.registers[24..], [9, 9, 9, 9, 0, 0, 0, 0, 7, 7, 7, 7]);
        assert_eq!(block.local, [[9; 16], [0; 16], [7; 16]].concat());
        assert_eq!(block.shared, [0; 4]);
    }

    #[test]
    fn a_block_turned_away_is_what_it_was() {
        let paused = PausedBlock {
            block: 3,
            resume_points: vec![1; 3],
            registers: vec![5; 36],
            shared: vec![6; 4],
            local: vec![7; 48],
        };
        let given = PausedGrid {
            paused: vec![paused.clone()],
            not_started: vec![(5, 7)],
        };
        let live = live();
        let left = remains(&live, Some(&given), &[6, 3], &[]).collect().unwrap();
        assert_eq!((left.paused, left.not_started), (vec![paused], vec![(6, 7)]));
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        let live = live();
        let given = PausedGrid {
            paused: vec![],
            not_started: vec![(5, 7)],
        };
        let refused = |given: Option<&PausedGrid>, away: &[u32], stopped: &[u8]| {
            remains(&live, given, away, stopped).collect().unwrap_err()
        };
        assert_eq!(refused(None, &[10], &[]), RemainsError::NotLaunched { block: 10 });
        assert_eq!(refused(Some(&given), &[4], &[]), RemainsError::NotLaunched { block: 4 });
        assert_eq!(refused(None, &[4, 4], &[]), RemainsError::AwayTwice { block: 4 });
        let both = refused(None, &[4], &record(4, 0, 1, 0));
        assert_eq!(both, RemainsError::AwayAndStopped { block: 4 });
        let beyond = refused(None, &[], &record(4, 3, 1, 0));
        assert_eq!(beyond, RemainsError::NoThread { block: 4, thread: 3 });
        assert_eq!(
            refused(None, &[], &record(4, 0, 3, 0)),
            RemainsError::NoPoint { point: 3 }
        );
        let twice = [record(4, 0, 1, 0), record(4, 0, 1, 0)].concat();
        let expected = RemainsError::ThreadTwice { block: 4, thread: 0 };
        assert_eq!(refused(None, &[], &twice), expected);
    }
}

//! The host's half of the control block's memory ([`hetckpt_abi::launch_control`]): filling slots for threads that go
//! on, and reading what stopped threads have left. Works on bytes; devices move them.

use hetckpt_abi::launch_control::{LAUNCH_CONTROL_BYTES, SlotLayout, offset};
use hetckpt_abi::paused_block::{PausedBlock, PausedGrid};
use hetckpt_abi::thread_state::{FINISHED, ThreadStateLayout};

/// Words of a control block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlWords {
    /// Number of slots.
    pub num_slots: u32,
    /// Address of the count of slots taken.
    pub slot_counter: u64,
    /// Address of the launched blocks' slots.
    pub block_slot: u64,
    /// Address of the bits of threads not started.
    pub entry_bits: u64,
    /// Address of slot 0.
    pub slots: u64,
    /// Bytes from slot to slot.
    pub slot_stride: u64,
    /// Address of the list of blocks.
    pub resumed_blocks: u64,
    /// The grid as the program sees it.
    pub grid: [u32; 3],
}

impl ControlWords {
    /// The control block's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; LAUNCH_CONTROL_BYTES as usize] {
        let mut bytes = [0; LAUNCH_CONTROL_BYTES as usize];
        let mut put = |at: u64, value: &[u8]| {
            let at = at as usize;
            bytes[at..at + value.len()].copy_from_slice(value);
        };
        put(offset::NUM_SLOTS, &self.num_slots.to_le_bytes());
        put(offset::SLOT_COUNTER, &self.slot_counter.to_le_bytes());
        put(offset::BLOCK_SLOT, &self.block_slot.to_le_bytes());
        put(offset::ENTRY_BITS, &self.entry_bits.to_le_bytes());
        put(offset::SLOTS, &self.slots.to_le_bytes());
        put(offset::SLOT_STRIDE, &self.slot_stride.to_le_bytes());
        put(offset::RESUMED_BLOCKS, &self.resumed_blocks.to_le_bytes());
        for (i, extent) in (0u64..).zip(self.grid) {
            put(offset::GRID + 4 * i, &extent.to_le_bytes());
        }
        bytes
    }
}

/// Sizes of the state of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    /// Threads.
    pub threads: u32,
    /// Saved registers of a thread, bytes.
    pub bytes_per_thread: u32,
    /// Shared memory, static and dynamic, bytes.
    pub shared_bytes: u32,
    /// Local frame of a thread, bytes.
    pub local_bytes: u32,
}

impl BlockShape {
    /// Layout of a slot.
    #[must_use]
    pub fn slot(&self) -> SlotLayout {
        SlotLayout::new(self.threads, self.bytes_per_thread, self.shared_bytes, self.local_bytes)
    }

    /// Words of entry bits for each block.
    #[must_use]
    pub fn entry_words(&self) -> u32 {
        self.threads.div_ceil(32)
    }

    /// True if `block` has this shape.
    #[must_use]
    pub fn fits(&self, block: &PausedBlock) -> bool {
        let threads = u64::from(self.threads);
        block.resume_points.len() as u64 == threads
            && block.registers.len() as u64 == threads * u64::from(self.bytes_per_thread)
            && block.shared.len() as u64 == u64::from(self.shared_bytes)
            && block.local.len() as u64 == threads * u64::from(self.local_bytes)
    }
}

/// Writes `block` as a slot. `slot` is as long as the layout's stride; `block` fits `shape`.
pub fn fill_slot(shape: &BlockShape, block: &PausedBlock, slot: &mut [u8]) {
    let layout = shape.slot();
    for (word, point) in slot.chunks_exact_mut(4).zip(&block.resume_points) {
        // FINISHED wraps to 0.
        word.copy_from_slice(&point.wrapping_add(1).to_le_bytes());
    }
    let mut put = |at: u64, bytes: &[u8]| {
        let at = at as usize;
        slot[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(layout.registers, &block.registers);
    put(layout.shared, &block.shared);
    put(layout.local, &block.local);
}

/// Reads a slot; the block's index is left 0.
pub(crate) fn read_slot(shape: &BlockShape, slot: &[u8]) -> PausedBlock {
    let layout = shape.slot();
    let part = |at: u64, size: u64| {
        let at = at as usize;
        slot[at..at + size as usize].to_vec()
    };
    let threads = u64::from(shape.threads);
    let words = part(0, threads * 4);
    PausedBlock {
        block: 0,
        resume_points: words
            .chunks_exact(4)
            .map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]).wrapping_sub(1))
            .collect(),
        registers: part(layout.registers, threads * u64::from(shape.bytes_per_thread)),
        shared: part(layout.shared, u64::from(shape.shared_bytes)),
        local: part(layout.local, threads * u64::from(shape.local_bytes)),
    }
}

/// Blocks of a launch over a list: those stopped part-way first, then those not started. Linear indices in the
/// program's grid, in the order of the launch.
#[must_use]
pub fn listed_blocks(rest: &PausedGrid) -> Vec<u64> {
    let paused = rest.paused.iter().map(|block| block.block);
    paused
        .chain(rest.not_started.iter().flat_map(|&(first, end)| first..end))
        .collect()
}

/// Columns of the registers that `layout` saves, ascending: bytes per thread before it, bytes of a value.
#[must_use]
pub fn register_columns(layout: &ThreadStateLayout) -> Vec<(u32, u32)> {
    let mut starts: Vec<u32> = layout
        .live
        .iter()
        .flat_map(|set| set.iter().filter_map(|reg| layout.column(reg)))
        .collect();
    starts.sort_unstable();
    starts.dedup();
    // Columns lie one right after another.
    let ends: Vec<u32> = starts
        .iter()
        .copied()
        .skip(1)
        .chain([layout.bytes_per_thread])
        .collect();
    starts
        .into_iter()
        .zip(ends)
        .map(|(start, end)| (start, end - start))
        .collect()
}

/// What one launched block has left.
enum Left {
    Nothing,
    /// It is still what it was before the launch.
    AsBefore,
    Paused(PausedBlock),
}

/// What a launch has left in device memory, and what it was given.
pub struct Remains<'a> {
    /// Shape of its blocks.
    pub shape: BlockShape,
    /// Columns of the registers that are saved ([`register_columns`]).
    pub columns: &'a [(u32, u32)],
    /// Slot word of each launched block.
    pub block_slot: &'a [u32],
    /// Entry bits of each launched block, [`BlockShape::entry_words`] each.
    pub entry_bits: &'a [u32],
    /// The slots read back.
    pub slots: &'a [u8],
    /// Number of the first slot in `slots`.
    pub first_slot: u32,
    /// Bytes from slot to slot.
    pub slot_stride: usize,
    /// What the launch was given; `None`: the whole grid from the start.
    pub given: Option<&'a PausedGrid>,
}

impl Remains<'_> {
    /// What is left of the launch.
    #[must_use]
    pub fn collect(&self) -> PausedGrid {
        let listed = self.given.map(listed_blocks);
        let left = self.each_block();
        let mut grid = PausedGrid::default();
        for (i, left) in left.into_iter().enumerate() {
            let index = listed.as_ref().map_or(i as u64, |l| l[i]);
            match (left, self.before(i)) {
                (Left::Nothing, _) => {}
                (Left::AsBefore, Some(block)) => grid.paused.push(block.clone()),
                (Left::AsBefore, None) => match grid.not_started.last_mut() {
                    Some((_, end)) if *end == index => *end += 1,
                    _ => grid.not_started.push((index, index + 1)),
                },
                (Left::Paused(block), _) => grid.paused.push(PausedBlock { block: index, ..block }),
            }
        }
        grid.paused.sort_by_key(|block| block.block);
        grid
    }

    /// The state with which launched block `i` began, if not at its start.
    fn before(&self, i: usize) -> Option<&PausedBlock> {
        self.given.and_then(|given| given.paused.get(i))
    }

    fn each_block(&self) -> Vec<Left> {
        let count = self.block_slot.len();
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(16);
        let per_worker = count.div_ceil(workers);
        if self.slots.len() < 1 << 20 || per_worker == 0 {
            return (0..count).map(|i| self.left_of(i)).collect();
        }
        std::thread::scope(|scope| {
            let ranges = (0..count)
                .step_by(per_worker)
                .map(|first| first..count.min(first + per_worker));
            let handles: Vec<_> = ranges
                .map(|range| scope.spawn(move || range.map(|i| self.left_of(i)).collect::<Vec<_>>()))
                .collect();
            handles
                .into_iter()
                .flat_map(|handle| handle.join().unwrap_or_default())
                .collect()
        })
    }

    fn left_of(&self, i: usize) -> Left {
        let words = self.shape.entry_words() as usize;
        let bits = &self.entry_bits[i * words..(i + 1) * words];
        let num_at_entry: u32 = bits.iter().map(|word| word.count_ones()).sum();
        let slot = self.slot_of(i);
        match (slot, num_at_entry) {
            (None, 0) => return Left::Nothing,
            (_, all) if all == self.shape.threads => return Left::AsBefore,
            _ => {}
        }
        let mut block = slot.map_or_else(|| self.all_finished(), |bytes| read_slot(&self.shape, bytes));
        let before = self.before(i);
        if let (None, Some(before)) = (slot, before) {
            block.shared.clone_from(&before.shared);
        }
        for thread in 0..self.shape.threads as usize {
            if bits[thread / 32] >> (thread % 32) & 1 != 0 {
                self.put_back(&mut block, before, thread);
            }
        }
        if block.resume_points.iter().all(|&point| point == FINISHED) {
            Left::Nothing
        } else {
            Left::Paused(block)
        }
    }

    fn slot_of(&self, i: usize) -> Option<&[u8]> {
        let k = self.block_slot[i].checked_sub(2)?.checked_sub(self.first_slot)? as usize;
        self.slots.get(k * self.slot_stride..(k + 1) * self.slot_stride)
    }

    fn all_finished(&self) -> PausedBlock {
        let shape = &self.shape;
        PausedBlock {
            block: 0,
            resume_points: vec![FINISHED; shape.threads as usize],
            registers: vec![0; shape.threads as usize * shape.bytes_per_thread as usize],
            shared: vec![0; shape.shared_bytes as usize],
            local: vec![0; shape.threads as usize * shape.local_bytes as usize],
        }
    }

    /// Gives `thread`, which has not run, the state it had before the launch.
    fn put_back(&self, block: &mut PausedBlock, before: Option<&PausedBlock>, thread: usize) {
        let Some(before) = before else {
            block.resume_points[thread] = 0;
            return;
        };
        block.resume_points[thread] = before.resume_points[thread];
        let threads = self.shape.threads as usize;
        for &(column, size) in self.columns {
            let size = size as usize;
            let at = column as usize * threads + thread * size;
            block.registers[at..at + size].copy_from_slice(&before.registers[at..at + size]);
        }
        let frame = self.shape.local_bytes as usize;
        block.local[thread * frame..(thread + 1) * frame]
            .copy_from_slice(&before.local[thread * frame..(thread + 1) * frame]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: BlockShape = BlockShape {
        threads: 33,
        bytes_per_thread: 12,
        shared_bytes: 20,
        local_bytes: 16,
    };
    const COLUMNS: [(u32, u32); 2] = [(0, 8), (8, 4)];

    fn block(index: u64, seed: u8, points: impl Fn(usize) -> u32) -> PausedBlock {
        let bytes = |n: usize| {
            (0..n)
                .map(|i| seed.wrapping_add(u8::try_from(i % 251).unwrap_or(0)))
                .collect()
        };
        PausedBlock {
            block: index,
            resume_points: (0..33).map(points).collect(),
            registers: bytes(33 * 12),
            shared: bytes(20),
            local: bytes(33 * 16),
        }
    }

    fn stride() -> usize {
        (SHAPE.slot().stride) as usize
    }

    fn remains<'a>(slots: &'a [u8], words: &'a [u32], bits: &'a [u32], given: Option<&'a PausedGrid>) -> Remains<'a> {
        Remains {
            shape: SHAPE,
            columns: &COLUMNS,
            block_slot: words,
            entry_bits: bits,
            slots,
            first_slot: 0,
            slot_stride: stride(),
            given,
        }
    }

    #[test]
    fn reads_back_the_slot_that_it_fills() {
        let original = block(7, 3, |t| if t % 2 == 0 { 5 } else { FINISHED });
        let mut slot = vec![0; stride()];
        fill_slot(&SHAPE, &original, &mut slot);
        let given = PausedGrid {
            paused: vec![block(7, 0, |_| 1)],
            not_started: vec![],
        };
        let left = remains(&slot, &[2], &[0, 0], Some(&given)).collect();
        assert_eq!(
            left,
            PausedGrid {
                paused: vec![original],
                not_started: vec![]
            }
        );
    }

    #[test]
    fn tells_finished_from_not_started_blocks() {
        let words = [0, 0, 0, 0];
        let all = [u32::MAX, 1];
        let bits = [all, [0, 0], all, all].concat();
        let left = remains(&[], &words, &bits, None).collect();
        assert_eq!(
            left,
            PausedGrid {
                paused: vec![],
                not_started: vec![(0, 1), (2, 4)]
            }
        );
    }

    #[test]
    fn blocks_that_a_continuation_did_not_start_are_what_they_were() {
        let given = PausedGrid {
            paused: vec![block(3, 9, |_| 4), block(8, 1, |_| 2)],
            not_started: vec![(20, 22)],
        };
        let all = [u32::MAX, 1];
        let bits = [all, all, all, [0, 0]].concat();
        let left = remains(&[], &[0; 4], &bits, Some(&given)).collect();
        assert_eq!(
            left,
            PausedGrid {
                paused: given.paused.clone(),
                not_started: vec![(20, 21)]
            }
        );
    }

    #[test]
    fn threads_that_did_not_start_keep_their_state_beside_those_that_did() {
        let before = block(3, 9, |_| 4);
        let after = block(3, 50, |t| if t == 32 { FINISHED } else { 6 });
        let mut slot = vec![0; stride()];
        fill_slot(&SHAPE, &after, &mut slot);
        let given = PausedGrid {
            paused: vec![before.clone()],
            not_started: vec![],
        };
        let left = remains(&slot, &[2], &[0, 1], Some(&given)).collect();
        let got = &left.paused[0];
        assert_eq!(got.resume_points[31..], [6, 4]);
        assert_eq!(got.registers[32 * 8..33 * 8], before.registers[32 * 8..33 * 8]);
        assert_eq!(got.registers[33 * 8 + 32 * 4..], before.registers[33 * 8 + 32 * 4..]);
        assert_eq!(got.registers[..32 * 8], after.registers[..32 * 8]);
        assert_eq!(got.local[32 * 16..], before.local[32 * 16..]);
        assert_eq!(got.shared, after.shared);
    }

    #[test]
    fn a_block_with_some_threads_at_the_entry_and_the_rest_finished_is_paused() {
        let left = remains(&[], &[0], &[0b10, 0], None).collect();
        assert_eq!(left.paused.len(), 1);
        assert_eq!(left.paused[0].resume_points[..3], [FINISHED, 0, FINISHED]);
    }
}

//! Saved registers as values.

use hetckpt_abi::cpu_tables::{Column, Source};

/// The register area of one block.
pub struct ThreadColumns<'a> {
    bytes: &'a mut [u8],
    num_threads: usize,
}

impl<'a> ThreadColumns<'a> {
    /// A view of the register area of a block of `num_threads`.
    pub fn new(bytes: &'a mut [u8], num_threads: usize) -> Self {
        Self { bytes, num_threads }
    }

    fn range(&self, column: Column, thread: usize) -> std::ops::Range<usize> {
        let width = column.width_bytes as usize;
        let start = column.offset as usize * self.num_threads + thread * width;
        start..start + width
    }

    /// A thread's register, zero-extended; 0 outside of the area, which no table of ours names.
    pub fn get(&self, column: Column, thread: usize) -> u64 {
        let mut value = [0; 8];
        if let Some(bytes) = self.bytes.get(self.range(column, thread)) {
            value[..bytes.len()].copy_from_slice(bytes);
        }
        u64::from_le_bytes(value)
    }

    /// Sets a thread's register; upper bits are cut off.
    pub fn set(&mut self, column: Column, thread: usize, value: u64) {
        let range = self.range(column, thread);
        if let Some(bytes) = self.bytes.get_mut(range) {
            let width = bytes.len();
            bytes.copy_from_slice(&value.to_le_bytes()[..width]);
        }
    }

    /// A thread's operand.
    pub fn source(&self, source: Source, thread: usize) -> u64 {
        match source {
            Source::Column(column) => self.get(column, thread),
            Source::Imm(value) => value,
        }
    }

    /// A register of `N` neighbouring threads at most, from `first` on; 0 for threads beyond the block.
    pub fn get_many<const N: usize>(&self, column: Column, first: usize) -> [u64; N] {
        let width = column.width_bytes as usize;
        let start = self.range(column, first).start;
        let count = N.min(self.num_threads.saturating_sub(first));
        let mut values = [0; N];
        let Some(bytes) = self.bytes.get(start..start + count * width) else {
            return values;
        };
        // One loop for each width, so that the compiler sees the stride.
        match width {
            4 => fill(&mut values, bytes, |b: [u8; 4]| u32::from_le_bytes(b).into()),
            8 => fill(&mut values, bytes, u64::from_le_bytes),
            1 => fill(&mut values, bytes, |b: [u8; 1]| b[0].into()),
            _ => fill(&mut values, bytes, |b: [u8; 2]| u16::from_le_bytes(b).into()),
        }
        values
    }

    /// Sets a register of those of `N` neighbouring threads that have a bit in `lanes`.
    pub fn set_many<const N: usize>(&mut self, column: Column, first: usize, lanes: u32, values: &[u64; N]) {
        let count = N.min(self.num_threads.saturating_sub(first));
        let all = if count >= 32 { u32::MAX } else { (1 << count) - 1 };
        let start = self.range(column, first).start;
        if lanes == all
            && column.width_bytes == 4
            && let Some(bytes) = self.bytes.get_mut(start..start + count * 4)
        {
            for (out, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                *out = (*value as u32).to_le_bytes();
            }
            return;
        }
        for (lane, value) in values.iter().enumerate().take(count) {
            if lanes >> lane & 1 != 0 {
                self.set(column, first + lane, *value);
            }
        }
    }

    /// An operand of `N` neighbouring threads.
    pub fn source_many<const N: usize>(&self, source: Source, first: usize) -> [u64; N] {
        match source {
            Source::Column(column) => self.get_many(column, first),
            Source::Imm(value) => [value; N],
        }
    }
}

fn fill<const N: usize, const W: usize>(values: &mut [u64; N], bytes: &[u8], f: impl Fn([u8; W]) -> u64) {
    for (value, chunk) in values.iter_mut().zip(bytes.as_chunks::<W>().0) {
        *value = f(*chunk);
    }
}

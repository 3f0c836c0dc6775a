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
}

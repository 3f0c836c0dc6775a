//! Device memory as a map of address ranges.

use std::collections::BTreeMap;

use hetckpt_ir::types::Space;

use crate::error::Error;

/// Global memory: ranges that do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlobalMemory {
    ranges: BTreeMap<u64, Vec<u8>>,
}

impl GlobalMemory {
    /// No memory at all.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps `bytes` at `address`; a range that began there is replaced.
    pub fn map(&mut self, address: u64, bytes: Vec<u8>) {
        self.ranges.insert(address, bytes);
    }

    /// The bytes of the range that begins at `address`.
    #[must_use]
    pub fn range(&self, address: u64) -> Option<&[u8]> {
        self.ranges.get(&address).map(Vec::as_slice)
    }

    /// `bytes` bytes at `address`, within one range.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn slice(&self, address: u64, bytes: usize) -> Result<&[u8], Error> {
        let range = self.ranges.range(..=address).next_back();
        range
            .and_then(|(start, data)| window(data, address - start, bytes).map(|w| &data[w]))
            .ok_or(Error::OutOfBounds {
                space: Space::Global,
                address,
                bytes,
            })
    }

    /// Like [`GlobalMemory::slice`], to write to.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn slice_mut(&mut self, address: u64, bytes: usize) -> Result<&mut [u8], Error> {
        let range = self.ranges.range_mut(..=address).next_back();
        range
            .and_then(|(start, data)| window(data, address - start, bytes).map(|w| &mut data[w]))
            .ok_or(Error::OutOfBounds {
                space: Space::Global,
                address,
                bytes,
            })
    }
}

/// The index range of `bytes` bytes at `offset`, if it lies inside.
pub(crate) fn window(data: &[u8], offset: u64, bytes: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(bytes)?;
    (end <= data.len()).then_some(start..end)
}

/// A little-endian value of up to 8 bytes.
pub(crate) fn load_le(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Stores the low bytes of a value.
pub(crate) fn store_le(bytes: &mut [u8], value: u64) {
    for (byte, from) in bytes.iter_mut().zip(value.to_le_bytes()) {
        *byte = from;
    }
}

//! The table of pinned host memory, kept in the ring so that a restorer finds each area's memfd by number.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::error::RingError;
use crate::layout;
use crate::shared_memory::SharedMemory;

/// Addresses of pinned memory.
pub const PINNED_ADDRESSES: Range<u64> = 0x2f00_0000_0000..0x3700_0000_0000;
/// Addresses of managed memory, which is pinned memory that kernels are known to reach.
pub const MANAGED_ADDRESSES: Range<u64> = 0x3700_0000_0000..0x3f00_0000_0000;

/// One area of pinned memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PinnedArea {
    /// Address, the same in application and server.
    pub addr: u64,
    /// Size, whole pages.
    pub size_bytes: u64,
    /// Descriptor number of its memfd in the application.
    pub fd: i32,
}

/// The table. The application writes it, under a lock of its own.
#[derive(Clone, Copy, Debug)]
pub struct PinnedTable<'a> {
    memory: &'a SharedMemory,
}

impl<'a> PinnedTable<'a> {
    pub(crate) fn new(memory: &'a SharedMemory) -> Self {
        Self { memory }
    }

    /// Adds an area.
    ///
    /// # Errors
    /// [`RingError::TooManyPinned`].
    pub fn insert(&self, area: PinnedArea) -> Result<(), RingError> {
        let limit = layout::MAX_PINNED;
        let free = (0..limit).find(|&i| self.fd_word(i).load(Ordering::Acquire) == 0);
        let entry = free.ok_or(RingError::TooManyPinned { limit })?;
        let offset = layout::PINNED_TABLE + entry * layout::PINNED_ENTRY_BYTES;
        self.memory.u64_at(offset).store(area.addr, Ordering::Relaxed);
        self.memory.u64_at(offset + 8).store(area.size_bytes, Ordering::Relaxed);
        self.fd_word(entry)
            .store(area.fd.cast_unsigned() + 1, Ordering::Release);
        Ok(())
    }

    /// Removes the area at `addr`; true if there was one.
    #[must_use]
    pub fn remove(&self, addr: u64) -> bool {
        let entry = (0..layout::MAX_PINNED).find(|&i| self.get(i).is_some_and(|area| area.addr == addr));
        if let Some(entry) = entry {
            self.fd_word(entry).store(0, Ordering::Release);
        }
        entry.is_some()
    }

    /// All areas.
    #[must_use]
    pub fn areas(&self) -> Vec<PinnedArea> {
        (0..layout::MAX_PINNED).filter_map(|i| self.get(i)).collect()
    }

    fn get(&self, entry: usize) -> Option<PinnedArea> {
        let fd = self
            .fd_word(entry)
            .load(Ordering::Acquire)
            .checked_sub(1)?
            .cast_signed();
        let offset = layout::PINNED_TABLE + entry * layout::PINNED_ENTRY_BYTES;
        let addr = self.memory.u64_at(offset).load(Ordering::Relaxed);
        let size_bytes = self.memory.u64_at(offset + 8).load(Ordering::Relaxed);
        Some(PinnedArea { addr, size_bytes, fd })
    }

    fn fd_word(&self, entry: usize) -> &'a std::sync::atomic::AtomicU32 {
        self.memory
            .u32_at(layout::PINNED_TABLE + entry * layout::PINNED_ENTRY_BYTES + 16)
    }
}

//! Virtual memory that the program manages: addresses it reserves, memory it makes, and which lies where.
//!
//! Memory is made on the device when it is mapped. So it can be mapped at one place only, and once: what it holds would
//! not come along to another. Reservations are the program's own affair; the server knows only what is mapped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use hetckpt_ring::command::{PLACED_ADDRESSES, PLACED_GRANULARITY};

use crate::result::{CuResult, Outcome};

/// Memory that the program has made.
#[derive(Debug)]
pub struct Physical {
    /// Its size, bytes.
    pub size_bytes: u64,
    /// `CUmemAllocationProp`.
    pub properties: [u64; 4],
    /// How often it must be released.
    pub references: AtomicU64,
}

/// A piece of mapped memory.
#[derive(Clone, Debug)]
struct Mapping {
    size_bytes: u64,
    memory: Arc<Physical>,
    is_accessible: bool,
}

/// All of it.
#[derive(Debug, Default)]
pub struct VirtualMemory {
    /// First address → length.
    reservations: BTreeMap<u64, u64>,
    mappings: BTreeMap<u64, Mapping>,
    /// Memory that has been mapped once. As long as it is in here it exists, so no other has its address.
    used: Vec<Arc<Physical>>,
}

impl VirtualMemory {
    /// Reserves addresses: those from `wanted` on, if they are free, else the lowest that are.
    pub fn reserve(&mut self, size_bytes: u64, alignment: u64, wanted: u64) -> Outcome<u64> {
        let is_power = alignment == 0 || alignment.is_power_of_two();
        if size_bytes == 0 || !size_bytes.is_multiple_of(PLACED_GRANULARITY) || !is_power {
            return Err(CuResult::INVALID_VALUE);
        }
        let alignment = alignment.max(PLACED_GRANULARITY);
        let addr = if wanted.is_multiple_of(alignment) && self.is_free(wanted, size_bytes) {
            wanted
        } else {
            self.lowest_free(size_bytes, alignment).ok_or(CuResult::OUT_OF_MEMORY)?
        };
        self.reservations.insert(addr, size_bytes);
        Ok(addr)
    }

    fn is_free(&self, addr: u64, size_bytes: u64) -> bool {
        let end = addr.checked_add(size_bytes).filter(|&end| end <= PLACED_ADDRESSES.end);
        addr >= PLACED_ADDRESSES.start
            && end.is_some_and(|end| {
                let before = self.reservations.range(..end).next_back();
                before.is_none_or(|(&start, &length)| start + length <= addr)
            })
    }

    fn lowest_free(&self, size_bytes: u64, alignment: u64) -> Option<u64> {
        let ends = self.reservations.iter().map(|(&start, &length)| start + length);
        let candidates = std::iter::once(PLACED_ADDRESSES.start).chain(ends);
        let mut aligned = candidates.filter_map(|addr| addr.checked_next_multiple_of(alignment));
        aligned.find(|&addr| self.is_free(addr, size_bytes))
    }

    /// Gives a reservation back, all of it, with nothing mapped in it.
    pub fn unreserve(&mut self, addr: u64, size_bytes: u64) -> Outcome {
        let is_empty = self
            .mappings
            .range(addr..addr.saturating_add(size_bytes))
            .next()
            .is_none();
        if !is_empty || self.reservations.get(&addr) != Some(&size_bytes) {
            return Err(CuResult::INVALID_VALUE);
        }
        self.reservations.remove(&addr);
        Ok(())
    }

    /// That memory can be mapped at `addr`.
    pub fn check_map(&self, addr: u64, size_bytes: u64, memory: &Arc<Physical>) -> Outcome {
        let reserved = self.reservations.range(..=addr).next_back();
        let is_reserved = reserved.is_some_and(|(&start, &length)| addr - start <= length.saturating_sub(size_bytes));
        let is_aligned = addr.is_multiple_of(PLACED_GRANULARITY) && size_bytes.is_multiple_of(PLACED_GRANULARITY);
        let before = self.mappings.range(..addr.saturating_add(size_bytes)).next_back();
        let is_free = before.is_none_or(|(&start, mapping)| start + mapping.size_bytes <= addr);
        if !is_reserved || !is_aligned || !is_free || size_bytes == 0 || size_bytes > memory.size_bytes {
            return Err(CuResult::INVALID_VALUE);
        }
        if size_bytes != memory.size_bytes || self.used.iter().any(|used| Arc::ptr_eq(used, memory)) {
            return Err(CuResult::NOT_SUPPORTED);
        }
        Ok(())
    }

    /// Enters that memory has been mapped.
    pub fn map(&mut self, addr: u64, memory: Arc<Physical>) {
        self.used.push(Arc::clone(&memory));
        let mapping = Mapping {
            size_bytes: memory.size_bytes,
            memory,
            is_accessible: false,
        };
        self.mappings.insert(addr, mapping);
    }

    /// The mappings that a range consists of, by their first addresses.
    pub fn mappings_in(&self, addr: u64, size_bytes: u64) -> Outcome<Vec<u64>> {
        let end = addr.checked_add(size_bytes).ok_or(CuResult::INVALID_VALUE)?;
        let (mut at, mut found) = (addr, Vec::new());
        for (&start, mapping) in self.mappings.range(addr..end) {
            if start != at {
                break;
            }
            found.push(start);
            at += mapping.size_bytes;
        }
        if at == end && !found.is_empty() {
            Ok(found)
        } else {
            Err(CuResult::INVALID_VALUE)
        }
    }

    /// Enters that a mapping is gone.
    pub fn unmap(&mut self, addr: u64) {
        self.mappings.remove(&addr);
        self.forget_released();
    }

    /// What nobody can map or ask about any more.
    pub fn forget_released(&mut self) {
        self.used.retain(|memory| Arc::strong_count(memory) > 1);
    }

    /// Allows or forbids access.
    pub fn set_access(&mut self, addr: u64, is_accessible: bool) {
        if let Some(mapping) = self.mappings.get_mut(&addr) {
            mapping.is_accessible = is_accessible;
        }
    }

    /// True if kernels may use what is mapped around `addr`.
    pub fn is_accessible(&self, addr: u64) -> Outcome<bool> {
        Ok(self.around(addr)?.is_accessible)
    }

    /// The memory that is mapped around `addr`.
    pub fn memory(&self, addr: u64) -> Outcome<Arc<Physical>> {
        Ok(Arc::clone(&self.around(addr)?.memory))
    }

    fn around(&self, addr: u64) -> Outcome<&Mapping> {
        let before = self.mappings.range(..=addr).next_back();
        let found = before.filter(|(start, mapping)| addr - **start < mapping.size_bytes);
        found.map(|(_, mapping)| mapping).ok_or(CuResult::INVALID_VALUE)
    }

    /// Forgets what is mapped: the device is reset.
    pub fn clear_mappings(&mut self) {
        self.mappings.clear();
        self.forget_released();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const UNIT: u64 = PLACED_GRANULARITY;
    const START: u64 = PLACED_ADDRESSES.start;

    fn memory(units: u64) -> Arc<Physical> {
        Arc::new(Physical {
            size_bytes: units * UNIT,
            properties: [0; 4],
            references: AtomicU64::new(1),
        })
    }

    #[test]
    fn reservations_do_not_overlap() {
        let mut all = VirtualMemory::default();
        assert_eq!(all.reserve(4 * UNIT, 0, 0), Ok(START));
        assert_eq!(all.reserve(UNIT, 0, START + 8 * UNIT), Ok(START + 8 * UNIT));
        assert_eq!(all.reserve(2 * UNIT, 0, START + 3 * UNIT), Ok(START + 4 * UNIT));
        assert_eq!(all.reserve(4 * UNIT, 8 * UNIT, 0), Ok(START + 16 * UNIT));
        assert_eq!(all.reserve(UNIT, 3, 0), Err(CuResult::INVALID_VALUE));
        assert_eq!(all.reserve(UNIT - 1, 0, 0), Err(CuResult::INVALID_VALUE));
        assert_eq!(all.reserve(3 << 40, 0, 0), Err(CuResult::OUT_OF_MEMORY));
        assert_eq!(all.unreserve(START, UNIT), Err(CuResult::INVALID_VALUE));
        assert_eq!(all.unreserve(START, 4 * UNIT), Ok(()));
        assert_eq!(all.reserve(3 * UNIT, 0, 0), Ok(START));
    }

    #[test]
    fn memory_is_mapped_once_in_what_is_reserved() {
        let mut all = VirtualMemory::default();
        let (small, large) = (memory(1), memory(3));
        all.reserve(4 * UNIT, 0, 0).unwrap();
        for (at, size_bytes, memory, expected) in [
            (START, UNIT, &small, Ok(())),
            (START + 4 * UNIT, UNIT, &small, Err(CuResult::INVALID_VALUE)),
            (START + 2 * UNIT, 3 * UNIT, &large, Err(CuResult::INVALID_VALUE)),
            (START, 2 * UNIT, &small, Err(CuResult::INVALID_VALUE)),
            (START, 2 * UNIT, &large, Err(CuResult::NOT_SUPPORTED)),
            (0, UNIT, &small, Err(CuResult::INVALID_VALUE)),
        ] {
            assert_eq!(
                all.check_map(at, size_bytes, memory),
                expected,
                "{at:#x} {size_bytes:#x}"
            );
        }
        all.map(START, Arc::clone(&small));
        all.map(START + UNIT, Arc::clone(&large));
        assert_eq!(all.check_map(START, UNIT, &memory(1)), Err(CuResult::INVALID_VALUE));
        assert_eq!(all.mappings_in(START, 4 * UNIT), Ok(vec![START, START + UNIT]));
        assert_eq!(all.mappings_in(START, 2 * UNIT), Err(CuResult::INVALID_VALUE));
        assert_eq!(all.unreserve(START, 4 * UNIT), Err(CuResult::INVALID_VALUE));
        all.set_access(START, true);
        assert_eq!(
            (all.is_accessible(START + 5), all.is_accessible(START + UNIT)),
            (Ok(true), Ok(false))
        );
        assert!(Arc::ptr_eq(&all.memory(START + 3 * UNIT).unwrap(), &large));
        all.unmap(START);
        assert_eq!(
            all.check_map(START, UNIT, &small),
            Err(CuResult::NOT_SUPPORTED),
            "its bytes are gone"
        );
        drop(small);
        all.forget_released();
        assert_eq!(all.used.len(), 1);
    }
}

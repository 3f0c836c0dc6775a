//! Device memory: which addresses are mapped, and what the program has allocated in them.
//!
//! Addresses are chosen here, lowest free first, the same way on every device. Large allocations have a mapping of
//! their own; small ones share mappings of [`GRANULARITY`] bytes.
//!
//! A mapping whose last allocation is freed is *spare*: the next allocation of its size takes it as it is, so that a
//! program that allocates and frees in a loop does not map each time. For the program and for snapshots it is not
//! there. There are so many at most; all go when the device or the limit has no more room.
//!
//! The application can also place allocations itself ([`PLACED_ADDRESSES`]). Those have mappings of their own, and
//! never become spare.
//!
//! # Room
//! Programs read a little before their first allocation or behind their last one, and are used to find something there,
//! because NVIDIA's driver maps by [`GRANULARITY`]. So that much is mapped before all mappings and behind the last.
//! This *room* is no mapping: it is zero, no copy reaches it, no limit counts it, and no archive has it; a restore
//! makes it anew. What is allocated behind the last mapping takes the room there for its beginning, and new room
//! follows it. So nothing has to be unmapped, which waits for running kernels. Archives from before there was room have
//! a mapping where the room before all mappings lies; they keep it.

use std::collections::BTreeMap;
use std::sync::Arc;

use hetckpt_devices::device::{DEVICE_BASE, Device, GRANULARITY};
use hetckpt_devices::error::DeviceError;
use hetckpt_ring::command::{DeviceIndex, PLACED_ADDRESSES, PLACED_GRANULARITY};
use hetckpt_state::allocation::{Allocation, Mapping, Owner};

/// Alignment of every allocation; also the pitch's.
pub const ALIGN_BYTES: u64 = 512;
/// From this size on an allocation has its own mapping.
const OWN_MAPPING_BYTES: u64 = 1 << 20;
/// What room takes before and behind.
pub const ROOM_BYTES: u64 = 2 * GRANULARITY;
/// Where the first mapping can lie: behind the room.
const FIRST_MAPPING: u64 = DEVICE_BASE + GRANULARITY;
/// Spare mappings have so much of the limit together, as a divisor, ...
const SPARE_SHARE: u64 = 16;
/// ... and never more than this.
const MAX_SPARE_BYTES: u64 = 1 << 30;
/// End of the address range: what every device can reserve.
const DEVICE_END: u64 = DEVICE_BASE + (4 << 40);

/// The device memory of one application.
pub struct DeviceMemory {
    device: Arc<dyn Device>,
    limit_bytes: u64,
    /// First address → mapping.
    mappings: BTreeMap<u64, MappedRange>,
    /// First address → allocation.
    allocations: BTreeMap<u64, Allocation>,
    /// Spare mappings of single allocations: size → addresses.
    spares: BTreeMap<u64, Vec<u64>>,
    /// What spare mappings take, shared ones included.
    spare_bytes: u64,
    /// There is room at [`DEVICE_BASE`].
    has_room_before: bool,
    /// Where the room behind the last mapping lies, if there is any.
    room_behind: Option<u64>,
    /// First address of each variable of a module that the device has placed → its size, and its module.
    placed_by_device: BTreeMap<u64, (u64, Owner)>,
}

#[derive(Clone, Copy, Debug)]
struct MappedRange {
    size_bytes: u64,
    /// Its beginning was room, so the device has mapped [`GRANULARITY`] bytes and the others one by one.
    is_split: bool,
    /// Shared by small allocations.
    is_shared: bool,
    num_allocations: u64,
}

impl MappedRange {
    /// Size of what the device has mapped first.
    fn first_bytes(&self) -> u64 {
        if self.is_split { GRANULARITY } else { self.size_bytes }
    }
}

impl DeviceMemory {
    /// No memory yet; the application may have `limit_bytes` mapped at most.
    #[must_use]
    pub fn new(device: Arc<dyn Device>, limit_bytes: u64) -> Self {
        Self {
            device,
            limit_bytes,
            mappings: BTreeMap::new(),
            allocations: BTreeMap::new(),
            spares: BTreeMap::new(),
            spare_bytes: 0,
            has_room_before: false,
            room_behind: None,
            placed_by_device: BTreeMap::new(),
        }
    }

    /// Bytes mapped on the device for allocations.
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.all_mapped_bytes() - self.spare_bytes
    }

    fn all_mapped_bytes(&self) -> u64 {
        self.mappings.values().map(|m| m.size_bytes).sum()
    }

    /// Bytes the application can still have.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.mapped_bytes())
    }

    /// The limit.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Allocates.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], or what the device says to the mapping.
    pub fn allocate(&mut self, size_bytes: u64, owner: Owner) -> Result<u64, DeviceError> {
        let out_of_memory = |free_bytes| DeviceError::OutOfMemory {
            requested_bytes: size_bytes,
            free_bytes,
        };
        let rounded = size_bytes
            .max(1)
            .checked_next_multiple_of(ALIGN_BYTES)
            .filter(|&n| n <= DEVICE_END - DEVICE_BASE)
            .ok_or_else(|| out_of_memory(self.free_bytes()))?;
        let addr = if rounded >= OWN_MAPPING_BYTES {
            let mapped = rounded.next_multiple_of(GRANULARITY);
            match self.spares.get_mut(&mapped).and_then(Vec::pop) {
                Some(spare) => spare,
                None => self.add_mapping(mapped, false, size_bytes)?,
            }
        } else if let Some(addr) = self.find_shared(rounded) {
            addr
        } else {
            self.add_mapping(GRANULARITY, true, size_bytes)?
        };
        if let Some(range) = self.mapping_of(addr) {
            range.num_allocations += 1;
            if range.num_allocations == 1 {
                self.spare_bytes -= range.size_bytes;
            }
        }
        self.allocations.insert(
            addr,
            Allocation {
                addr,
                size_bytes,
                owner,
            },
        );
        Ok(addr)
    }

    /// Allocates where the application wants it; false if that cannot be, or something is there.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    pub fn allocate_at(&mut self, addr: u64, size_bytes: u64, owner: Owner) -> Result<bool, DeviceError> {
        let is_aligned = addr.is_multiple_of(PLACED_GRANULARITY) && size_bytes.is_multiple_of(PLACED_GRANULARITY);
        let end = addr.checked_add(size_bytes).filter(|&end| end <= PLACED_ADDRESSES.end);
        let Some(end) = end.filter(|_| is_aligned && size_bytes > 0 && addr >= PLACED_ADDRESSES.start) else {
            return Ok(false);
        };
        let before = self.mappings.range(..end).next_back();
        if before.is_some_and(|(&start, range)| start + range.size_bytes > addr) {
            return Ok(false);
        }
        self.make_spares_way(size_bytes, size_bytes)?;
        self.map_at(addr, size_bytes, false)?;
        if let Some(range) = self.mapping_of(addr) {
            range.num_allocations = 1;
            self.spare_bytes -= size_bytes;
        }
        let allocation = Allocation {
            addr,
            size_bytes,
            owner,
        };
        self.allocations.insert(addr, allocation);
        Ok(true)
    }

    /// Frees the allocation that starts at `addr`; false if none does.
    ///
    /// # Errors
    /// What the device says to the unmapping; the allocation is gone all the same.
    pub fn free(&mut self, addr: u64) -> Result<bool, DeviceError> {
        if self.allocations.remove(&addr).is_none() {
            return Ok(false);
        }
        let Some((&start, range)) = self.mappings.range_mut(..=addr).next_back() else {
            return Ok(true);
        };
        range.num_allocations = range.num_allocations.saturating_sub(1);
        if range.num_allocations > 0 {
            return Ok(true);
        }
        let (size_bytes, is_shared) = (range.size_bytes, range.is_shared);
        self.spare_bytes += size_bytes;
        // What the application has placed, it may place elsewhere.
        let is_placed = PLACED_ADDRESSES.contains(&start);
        if is_placed || self.spare_bytes > MAX_SPARE_BYTES.min(self.limit_bytes / SPARE_SHARE).max(GRANULARITY) {
            return self.remove_spare(start).map(|()| true);
        }
        if !is_shared {
            self.spares.entry(size_bytes).or_default().push(start);
        }
        Ok(true)
    }

    /// Unmaps a spare mapping that is in no list.
    fn remove_spare(&mut self, start: u64) -> Result<(), DeviceError> {
        self.spare_bytes -= self.mappings.get(&start).map_or(0, |range| range.size_bytes);
        self.remove_mapping(start)
    }

    /// Unmaps all spare mappings; the first failure.
    fn remove_spares(&mut self) -> Result<(), DeviceError> {
        self.spares.clear();
        let spares = self.mappings.iter().filter(|(_, range)| range.num_allocations == 0);
        // From the last on, so that the room behind moves only forwards.
        let mut starts: Vec<u64> = spares.map(|(&start, _)| start).collect();
        starts.reverse();
        let mut result = Ok(());
        for start in starts {
            result = result.and(self.remove_spare(start));
        }
        result
    }

    /// Enters a variable of a module of `owner`'s that the device has placed: copies may reach it.
    pub fn note_placed(&mut self, addr: u64, size_bytes: u64, owner: Owner) {
        self.placed_by_device.insert(addr, (size_bytes, owner));
    }

    /// Frees all that `owner` owns.
    ///
    /// # Errors
    /// The first failure; everything is freed all the same.
    pub fn free_owned_by(&mut self, owner: Owner) -> Result<(), DeviceError> {
        self.placed_by_device.retain(|_, (_, of)| *of != owner);
        let addrs: Vec<u64> = self
            .allocations
            .values()
            .filter(|a| a.owner == owner)
            .map(|a| a.addr)
            .collect();
        let mut result = Ok(());
        for addr in addrs {
            result = result.and(self.free(addr).map(|_| ()));
        }
        result
    }

    /// Frees everything and unmaps it.
    pub fn clear(&mut self) {
        self.allocations.clear();
        self.placed_by_device.clear();
        self.spares.clear();
        self.spare_bytes = 0;
        let mut result = Ok(());
        for (addr, range) in std::mem::take(&mut self.mappings) {
            result = result.and(self.unmap(addr, &range, 0));
        }
        let before = std::mem::take(&mut self.has_room_before).then_some(DEVICE_BASE);
        for room in before.into_iter().chain(self.room_behind.take()) {
            result = result.and(self.device.unmap(room, GRANULARITY));
        }
        if let Err(error) = result {
            tracing::warn!(%error, "device memory cannot be unmapped");
        }
    }

    /// True if all of the range lies inside mapped memory that is not spare, or in a variable that the device has
    /// placed.
    #[must_use]
    pub fn contains(&self, addr: u64, size_bytes: u64) -> bool {
        self.lies_in(addr, size_bytes, |range| range.num_allocations > 0) || self.is_placed(addr, size_bytes)
    }

    fn is_placed(&self, addr: u64, size_bytes: u64) -> bool {
        let before = self.placed_by_device.range(..=addr).next_back();
        before.is_some_and(|(start, (size, _))| {
            let offset = addr - start;
            offset.checked_add(size_bytes).is_some_and(|end| end <= *size)
        })
    }

    fn lies_in(&self, addr: u64, size_bytes: u64, counts: impl Fn(&MappedRange) -> bool) -> bool {
        let Some(end) = addr.checked_add(size_bytes) else {
            return false;
        };
        let mut at = addr;
        loop {
            let Some((start, range)) = self.mappings.range(..=at).next_back() else {
                return false;
            };
            let range_end = start + range.size_bytes;
            if at >= range_end || !counts(range) {
                return false;
            }
            if end <= range_end {
                return true;
            }
            at = range_end;
        }
    }

    /// Everything mapped but what is spare, by ascending address.
    #[must_use]
    pub fn mappings(&self) -> Vec<Mapping> {
        let used = self.mappings.iter().filter(|(_, range)| range.num_allocations > 0);
        used.map(|(&addr, m)| Mapping {
            addr,
            size_bytes: m.size_bytes,
            device: DeviceIndex::FIRST.0,
        })
        .collect()
    }

    /// What the program has asked for, bytes.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.allocations
            .values()
            .map(|allocation| allocation.size_bytes)
            .fold(0, u64::saturating_add)
    }

    /// Everything allocated, by ascending address.
    #[must_use]
    pub fn allocations(&self) -> Vec<Allocation> {
        self.allocations.values().copied().collect()
    }

    /// Maps and enters what a snapshot says, on a device that has nothing mapped.
    ///
    /// # Errors
    /// What the device says; `None` for contradictions in the snapshot.
    pub fn restore(&mut self, mappings: &[Mapping], allocations: &[Allocation]) -> Result<(), Option<DeviceError>> {
        let mut end = DEVICE_BASE;
        for mapping in mappings {
            let aligned = mapping.addr.is_multiple_of(GRANULARITY) && mapping.size_bytes.is_multiple_of(GRANULARITY);
            let fits = mapping.addr >= end
                && mapping
                    .addr
                    .checked_add(mapping.size_bytes)
                    .is_some_and(|e| e <= DEVICE_END);
            if !aligned || !fits || mapping.size_bytes == 0 {
                return Err(None);
            }
            end = mapping.addr + mapping.size_bytes;
        }
        for mapping in mappings {
            self.device.map(mapping.addr, mapping.size_bytes).map_err(Some)?;
            let range = MappedRange {
                size_bytes: mapping.size_bytes,
                is_split: false,
                is_shared: false,
                num_allocations: 0,
            };
            self.mappings.insert(mapping.addr, range);
        }
        let mut end = DEVICE_BASE;
        for allocation in allocations {
            if allocation.addr < end || !self.lies_in(allocation.addr, allocation.size_bytes, |_| true) {
                return Err(None);
            }
            end = allocation.addr + allocation.size_bytes;
            let range = self.mapping_of(allocation.addr).ok_or(None)?;
            range.num_allocations += 1;
            let is_small = allocation.size_bytes.next_multiple_of(ALIGN_BYTES) < OWN_MAPPING_BYTES;
            range.is_shared = is_small && range.size_bytes == GRANULARITY;
            self.allocations.insert(allocation.addr, *allocation);
        }
        let spares = self.mappings.values().filter(|range| range.num_allocations == 0);
        self.spare_bytes = spares.map(|range| range.size_bytes).sum();
        self.make_room();
        Ok(())
    }

    fn mapping_of(&mut self, addr: u64) -> Option<&mut MappedRange> {
        self.mappings.range_mut(..=addr).next_back().map(|(_, range)| range)
    }

    fn find_shared(&self, size_bytes: u64) -> Option<u64> {
        self.mappings
            .iter()
            .filter(|(_, m)| m.is_shared)
            .find_map(|(&start, range)| {
                let mut at = start;
                for allocation in self.allocations.range(start..start + range.size_bytes).map(|(_, a)| a) {
                    if allocation.addr - at >= size_bytes {
                        return Some(at);
                    }
                    at = allocation.addr + allocation.size_bytes.max(1).next_multiple_of(ALIGN_BYTES);
                }
                (start + range.size_bytes - at >= size_bytes).then_some(at)
            })
    }

    /// A new mapping without allocations; spare ones make room for it if need be.
    fn add_mapping(&mut self, size_bytes: u64, is_shared: bool, requested_bytes: u64) -> Result<u64, DeviceError> {
        self.make_spares_way(size_bytes, requested_bytes)?;
        match self.map_new(size_bytes, is_shared, requested_bytes) {
            Err(_) if self.spare_bytes > 0 => {
                self.remove_spares()?;
                self.map_new(size_bytes, is_shared, requested_bytes)
            }
            mapped => mapped,
        }
    }

    /// Has spare mappings make room for a new one within the limit.
    fn make_spares_way(&mut self, size_bytes: u64, requested_bytes: u64) -> Result<(), DeviceError> {
        let free_bytes = self.free_bytes();
        if size_bytes > free_bytes {
            return Err(DeviceError::OutOfMemory {
                requested_bytes,
                free_bytes,
            });
        }
        if size_bytes > free_bytes - self.spare_bytes {
            self.remove_spares()?;
        }
        Ok(())
    }

    fn map_new(&mut self, size_bytes: u64, is_shared: bool, requested_bytes: u64) -> Result<u64, DeviceError> {
        let free_bytes = self.free_bytes();
        let mut addr = FIRST_MAPPING;
        for (&start, range) in &self.mappings {
            if start.saturating_sub(addr) >= size_bytes {
                break;
            }
            addr = addr.max(start + range.size_bytes);
        }
        if PLACED_ADDRESSES.start.saturating_sub(addr) < size_bytes {
            return Err(DeviceError::OutOfMemory {
                requested_bytes,
                free_bytes,
            });
        }
        self.map_at(addr, size_bytes, is_shared)?;
        Ok(addr)
    }

    /// A new mapping without allocations at free addresses.
    fn map_at(&mut self, addr: u64, size_bytes: u64, is_shared: bool) -> Result<(), DeviceError> {
        let begins_with_room = self.room_behind == Some(addr);
        if begins_with_room {
            self.device.zero(addr, GRANULARITY)?;
            if size_bytes > GRANULARITY {
                self.device.map(addr + GRANULARITY, size_bytes - GRANULARITY)?;
            }
            self.room_behind = None;
        } else {
            self.device.map(addr, size_bytes)?;
        }
        self.mappings.insert(
            addr,
            MappedRange {
                size_bytes,
                is_split: begins_with_room && size_bytes > GRANULARITY,
                is_shared,
                num_allocations: 0,
            },
        );
        self.spare_bytes += size_bytes;
        self.make_room();
        Ok(())
    }

    /// Where the last mapping ends.
    fn end(&self) -> u64 {
        let last = self.mappings.last_key_value();
        last.map_or(FIRST_MAPPING, |(&start, range)| start + range.size_bytes)
    }

    /// Maps the room that is not there; a device that has no memory left for it goes without.
    fn make_room(&mut self) {
        let map = |addr: u64| {
            let mapped = self.device.map(addr, GRANULARITY);
            if let Err(error) = &mapped {
                tracing::debug!(%error, "no room beside allocations");
            }
            mapped.is_ok()
        };
        let has_room_before = self.has_room_before || (!self.mappings.contains_key(&DEVICE_BASE) && map(DEVICE_BASE));
        let end = self.end();
        let room_behind = self
            .room_behind
            .or_else(|| (DEVICE_END - end >= GRANULARITY && map(end)).then_some(end));
        self.has_room_before = has_room_before;
        self.room_behind = room_behind;
    }

    /// Removes a mapping; if it was the last one, the room behind it moves to where the mappings end now.
    fn remove_mapping(&mut self, start: u64) -> Result<(), DeviceError> {
        let Some(range) = self.mappings.remove(&start) else {
            return Ok(());
        };
        let end = self.end();
        if start < end {
            return self.unmap(start, &range, 0);
        }
        let mut result = match self.room_behind.take() {
            Some(room) => self.device.unmap(room, GRANULARITY),
            None => Ok(()),
        };
        let becomes_room =
            start == end && range.first_bytes() == GRANULARITY && self.device.zero(start, GRANULARITY).is_ok();
        self.room_behind = becomes_room.then_some(start);
        result = result.and(self.unmap(start, &range, if becomes_room { GRANULARITY } else { 0 }));
        self.make_room();
        result
    }

    /// Unmaps a mapping but for the first `keep_bytes`: none, or all that the device has mapped first.
    fn unmap(&self, start: u64, range: &MappedRange, keep_bytes: u64) -> Result<(), DeviceError> {
        let first_bytes = range.first_bytes();
        let mut result = Ok(());
        if keep_bytes < first_bytes {
            result = self.device.unmap(start, first_bytes);
        }
        if first_bytes < range.size_bytes {
            let rest = self.device.unmap(start + first_bytes, range.size_bytes - first_bytes);
            result = result.and(rest);
        }
        result
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;

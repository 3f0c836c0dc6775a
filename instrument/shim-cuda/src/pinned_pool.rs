//! Pinned host memory: memfds mapped from a fixed range of addresses, so that the server can map them at the same
//! addresses and a kernel reaches them there. Small requests share a memfd, as each costs a descriptor.
#![allow(unsafe_code, reason = "maps memory at chosen addresses")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use hetckpt_ring::app_memory::close_to_others;
use hetckpt_ring::pinned_table::PinnedArea;

use crate::result::{CuResult, Outcome};
use crate::server_process::move_out_of_the_way;

const PAGE: u64 = 4096;
/// Size of the first shared area. A device pins all of an area, which then counts as used and is dumped, so that a few
/// bytes should not make it large.
const FIRST_SHARED_BYTES: u64 = 256 << 10;
/// Size of the largest. Each is as large as those before it together.
const LAST_SHARED_BYTES: u64 = 16 << 20;
/// Requests above this get an area of their own.
const MAX_SHARED_BYTES: u64 = 2 << 20;
/// Areas start at multiples of this, which is as little as is sensible.
pub const AREA_ALIGNMENT: u64 = 2 << 20;
/// Areas of managed memory do at multiples of this, as NVIDIA's driver gives device memory at chosen addresses.
pub const MANAGED_AREA_ALIGNMENT: u64 = 32 << 20;

struct Area {
    known: PinnedArea,
    memfd: OwnedFd,
    is_shared: bool,
    /// Free pieces, offset and length.
    free: BTreeMap<u64, u64>,
    /// From here on nothing has been taken: it is zero.
    fresh_from: u64,
}

/// What a release leaves to do.
pub struct Released {
    /// The area that is no longer needed, if so; it stays mapped until the caller says [`PinnedPool::drop_area`].
    pub empty_area: Option<u64>,
}

/// Whether children that the program forks have the memory, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inheritance {
    /// They share it.
    Shared,
    /// They get SIGSEGV where they touch it: what lies on the device would be zero there.
    None,
}

/// All pinned memory of the program that lies in a range of addresses.
pub struct PinnedPool {
    areas: BTreeMap<u64, Area>,
    /// Addresses that have not been used.
    left: Range<u64>,
    alignment: u64,
    inheritance: Inheritance,
}

impl PinnedPool {
    /// None yet.
    pub fn new(addresses: Range<u64>, alignment: u64, inheritance: Inheritance) -> Self {
        Self {
            areas: BTreeMap::new(),
            left: addresses,
            alignment,
            inheritance,
        }
    }

    /// Takes `size_bytes` from an existing area; true if nobody had them before, so that they are zero.
    pub fn take(&mut self, size_bytes: u64) -> Option<(u64, bool)> {
        let size = size_bytes.next_multiple_of(256);
        self.areas.values_mut().filter(|area| area.is_shared).find_map(|area| {
            let (&offset, &length) = area.free.iter().find(|(_, length)| **length >= size)?;
            area.free.remove(&offset);
            if length > size {
                area.free.insert(offset + size, length - size);
            }
            let is_fresh = offset >= area.fresh_from;
            area.fresh_from = area.fresh_from.max(offset + size);
            Some((area.known.addr + offset, is_fresh))
        })
    }

    /// True if a request of this size gets an area of its own.
    pub fn needs_own_area(size_bytes: u64) -> bool {
        size_bytes > MAX_SHARED_BYTES
    }

    /// Makes an area: for a big request its own (and taken at once), else one to be shared.
    pub fn add_area(&mut self, size_bytes: u64) -> Outcome<PinnedArea> {
        match Self::needs_own_area(size_bytes) {
            true => self.add_own_area(size_bytes),
            false => {
                let shared = self.areas.values().filter(|area| area.is_shared);
                let shared_bytes: u64 = shared.map(|area| area.known.size_bytes).sum();
                let size = shared_bytes.clamp(FIRST_SHARED_BYTES, LAST_SHARED_BYTES);
                self.add(size.max(size_bytes.next_multiple_of(PAGE)), true)
            }
        }
    }

    /// Makes an area for one request, however small, and takes it.
    pub fn add_own_area(&mut self, size_bytes: u64) -> Outcome<PinnedArea> {
        self.add(size_bytes.next_multiple_of(PAGE), false)
    }

    /// The memfd of an area.
    pub fn memfd(&self, area: u64) -> Option<BorrowedFd<'_>> {
        self.areas.get(&area).map(|area| area.memfd.as_fd())
    }

    fn add(&mut self, size: u64, is_shared: bool) -> Outcome<PinnedArea> {
        let fd = memfd(size)?;
        let mut addr = self.left.start;
        loop {
            if size > self.left.end.saturating_sub(addr) {
                return Err(CuResult::OUT_OF_MEMORY);
            }
            match map_at(addr, size, &fd) {
                Ok(()) => break,
                Err(libc::EEXIST) => addr += self.alignment,
                Err(_) => return Err(CuResult::OUT_OF_MEMORY),
            }
        }
        self.left.start = (addr + size).next_multiple_of(self.alignment);
        let known = PinnedArea {
            addr,
            size_bytes: size,
            fd: fd.as_raw_fd(),
        };
        if self.inheritance == Inheritance::None {
            keep_from_children(&known);
        }
        let free = if is_shared {
            BTreeMap::from([(0, size)])
        } else {
            BTreeMap::new()
        };
        self.areas.insert(
            addr,
            Area {
                known,
                memfd: fd,
                is_shared,
                free,
                fresh_from: 0,
            },
        );
        Ok(known)
    }

    /// Gives back what was taken at `addr`.
    pub fn release(&mut self, addr: u64, size_bytes: u64) -> Released {
        let Some((_, area)) = self.areas.range_mut(..=addr).next_back() else {
            return Released { empty_area: None };
        };
        if !area.is_shared {
            return Released {
                empty_area: Some(area.known.addr),
            };
        }
        let (mut offset, mut size) = (addr - area.known.addr, size_bytes.next_multiple_of(256));
        if let Some((&before, &length)) = area.free.range(..offset).next_back()
            && before + length == offset
        {
            area.free.remove(&before);
            (offset, size) = (before, size + length);
        }
        if let Some(length) = area.free.remove(&(offset + size)) {
            size += length;
        }
        area.free.insert(offset, size);
        Released { empty_area: None }
    }

    /// Forgets all areas, which stay mapped; gives their addresses.
    pub fn abandon(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.areas).into_keys().collect()
    }

    /// Unmaps and forgets an area.
    pub fn drop_area(&mut self, addr: u64) {
        if let Some(area) = self.areas.remove(&addr) {
            let base = std::ptr::with_exposed_provenance_mut(area.known.addr as usize);
            // SAFETY: unmaps exactly what `map_at` mapped; the program has given the memory back.
            unsafe { libc::munmap(base, area.known.size_bytes as usize) };
        }
    }
}

impl std::fmt::Debug for PinnedPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.areas.values().map(|area| area.known))
            .finish()
    }
}

fn memfd(size_bytes: u64) -> Outcome<OwnedFd> {
    // SAFETY: the name is a NUL-terminated string.
    let fd = unsafe { libc::memfd_create(c"hetckpt-pinned".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(CuResult::OUT_OF_MEMORY);
    }
    // SAFETY: just made, nobody else's.
    let fd = move_out_of_the_way(unsafe { OwnedFd::from_raw_fd(fd) });
    close_to_others(fd.as_fd()).map_err(|_| CuResult::OUT_OF_MEMORY)?;
    let size = i64::try_from(size_bytes).map_err(|_| CuResult::OUT_OF_MEMORY)?;
    nix::unistd::ftruncate(&fd, size).map_err(|_| CuResult::OUT_OF_MEMORY)?;
    Ok(fd)
}

fn map_at(addr: u64, size_bytes: u64, fd: &OwnedFd) -> Result<(), i32> {
    let wanted = std::ptr::with_exposed_provenance_mut(addr as usize);
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE,
    );
    // SAFETY: NOREPLACE: existing mappings are left alone.
    let got = unsafe { libc::mmap(wanted, size_bytes as usize, protection, flags, fd.as_raw_fd(), 0) };
    if got == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL));
    }
    Ok(())
}

fn keep_from_children(area: &PinnedArea) {
    let base = std::ptr::with_exposed_provenance_mut(area.addr as usize);
    // SAFETY: a mapping of ours; what children have of it changes nothing here.
    unsafe { libc::madvise(base, area.size_bytes as usize, libc::MADV_DONTFORK) };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use hetckpt_ring::pinned_table::PINNED_ADDRESSES;

    #[test]
    fn small_requests_share_an_area_and_come_back() {
        let mut pool = PinnedPool::new(PINNED_ADDRESSES, AREA_ALIGNMENT, Inheritance::Shared);
        assert_eq!(pool.take(1000), None);
        let area = pool.add_area(1000).unwrap();
        let ((a, _), (b, is_fresh)) = (pool.take(1000).unwrap(), pool.take(5000).unwrap());
        assert!(a == area.addr && is_fresh);
        assert!(b >= a + 1000 && b + 5000 <= area.addr + area.size_bytes);
        assert!(pool.release(a, 1000).empty_area.is_none());
        assert!(pool.release(b, 5000).empty_area.is_none());
        let again = pool.take(area.size_bytes);
        assert_eq!(
            again,
            Some((area.addr, false)),
            "pieces were joined again, and are not fresh"
        );
        pool.drop_area(area.addr);
    }

    #[test]
    fn shared_areas_begin_small_and_take_what_they_are_made_for() {
        let mut pool = PinnedPool::new(PINNED_ADDRESSES, AREA_ALIGNMENT, Inheritance::Shared);
        let mut add = |size| {
            let area = pool.add_area(size).unwrap();
            assert!(pool.take(size).is_some());
            area.size_bytes
        };
        assert_eq!(add(4), FIRST_SHARED_BYTES);
        assert_eq!(add(FIRST_SHARED_BYTES), FIRST_SHARED_BYTES);
        assert_eq!(add(2 * FIRST_SHARED_BYTES), 2 * FIRST_SHARED_BYTES);
        assert_eq!(add(MAX_SHARED_BYTES - 1), MAX_SHARED_BYTES);
        let more: Vec<u64> = (0..12).map(|_| add(MAX_SHARED_BYTES)).collect();
        assert_eq!(more.last(), Some(&LAST_SHARED_BYTES));
        for area in pool.areas.keys().copied().collect::<Vec<_>>() {
            pool.drop_area(area);
        }
    }

    #[test]
    fn nobody_else_can_open_an_area() {
        let mut pool = PinnedPool::new(PINNED_ADDRESSES, AREA_ALIGNMENT, Inheritance::Shared);
        let area = pool.add_area(MAX_SHARED_BYTES + 1).unwrap();
        let stat = nix::sys::stat::fstat(&pool.areas[&area.addr].memfd).unwrap();
        assert_eq!(stat.st_mode & 0o777, 0o600);
        pool.drop_area(area.addr);
    }

    #[test]
    fn big_requests_have_their_own_area() {
        let mut pool = PinnedPool::new(PINNED_ADDRESSES, AREA_ALIGNMENT, Inheritance::Shared);
        let area = pool.add_area(MAX_SHARED_BYTES + 1).unwrap();
        assert_eq!(pool.take(1), None);
        assert_eq!(
            pool.release(area.addr, MAX_SHARED_BYTES + 1).empty_area,
            Some(area.addr)
        );
        pool.drop_area(area.addr);
    }

    #[test]
    fn children_have_only_what_they_may() {
        for (inheritance, has) in [(Inheritance::Shared, true), (Inheritance::None, false)] {
            let mut pool = PinnedPool::new(PINNED_ADDRESSES, AREA_ALIGNMENT, inheritance);
            let area = pool.add_own_area(PAGE).unwrap();
            let maps = procfs::process::Process::myself().unwrap().smaps().unwrap();
            let map = maps.iter().find(|map| map.address.0 == area.addr).unwrap();
            let is_kept = map.extension.vm_flags.contains(procfs::process::VmFlags::DC);
            assert_eq!(is_kept, !has, "{inheritance:?}");
            pool.drop_area(area.addr);
        }
    }
}

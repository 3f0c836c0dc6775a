//! Pinned host memory: memfds of the application, mapped here at the application's own addresses.
#![allow(unsafe_code, reason = "maps the application's pinned memory and makes slices of it")]

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use parking_lot::Mutex;

use hetckpt_devices::device::Device;
use hetckpt_ring::app_memory::{AppMemory, PINNED_NAME};
use hetckpt_ring::pinned_table::PinnedArea;

use crate::error::ServerError;

/// The application's pinned memory.
pub struct Pinned {
    device: Arc<dyn Device>,
    areas: Mutex<BTreeMap<u64, Area>>,
}

struct Area {
    facts: PinnedArea,
    /// Behind an `Arc` so that a copy under way keeps it mapped.
    mapping: Arc<FixedMapping>,
}

/// A shared mapping at a fixed address.
struct FixedMapping {
    addr: u64,
    size_bytes: usize,
}

impl FixedMapping {
    fn new(fd: BorrowedFd<'_>, addr: u64, size_bytes: u64) -> Result<Self, ServerError> {
        let wrong = || ServerError::WrongMoment("a pinned area lies outside of the address space");
        let size = usize::try_from(size_bytes)
            .ok()
            .filter(|&n| n > 0 && n < 1 << 47)
            .ok_or_else(wrong)?;
        let at = usize::try_from(addr).map_err(|_| wrong())?;
        let os = |call| move |source| ServerError::Os { call, source };
        let stat = nix::sys::stat::fstat(fd).map_err(|e| os("fstat")(e.into()))?;
        if u64::try_from(stat.st_size).unwrap_or(0) < size_bytes {
            return Err(ServerError::WrongMoment("a pinned area is larger than its memfd"));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: NOREPLACE never touches existing mappings; a refusal is reported.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::without_provenance_mut(at),
                size,
                protection,
                flags,
                fd.as_raw_fd(),
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(os("mmap of pinned memory")(std::io::Error::last_os_error()));
        }
        Ok(Self { addr, size_bytes: size })
    }

    fn pointer(&self, offset: usize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut::<u8>(self.addr as usize).wrapping_add(offset)
    }
}

impl Drop for FixedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; slices into it hold the `Arc` it lives in.
        unsafe { libc::munmap(self.pointer(0).cast(), self.size_bytes) };
    }
}

/// A range of pinned memory that stays mapped while this lives.
pub struct PinnedRange {
    mapping: Arc<FixedMapping>,
    offset: usize,
    size_bytes: usize,
}

impl PinnedRange {
    /// The bytes. The application may write to them at any time, as to any source of a copy under way.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: in bounds of the mapping, checked where the range was made; the mapping lives as long as `self`. A
        // program that writes to the source of its own copy changes only what is copied.
        unsafe { std::slice::from_raw_parts(self.mapping.pointer(self.offset), self.size_bytes) }
    }

    /// The bytes, to write to.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the server's only other references are to sources of copies, and ranges of one copy that
        // overlap are refused.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.pointer(self.offset), self.size_bytes) }
    }
}

impl Pinned {
    /// None yet.
    #[must_use]
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self {
            device,
            areas: Mutex::new(BTreeMap::new()),
        }
    }

    /// Maps an area whose memfd is descriptor `facts.fd` of process `app_pid`.
    ///
    /// # Errors
    /// [`ServerError::Ring`], [`ServerError::Os`], [`ServerError::Device`].
    pub fn register_from_app(&self, app_pid: u32, facts: PinnedArea) -> Result<(), ServerError> {
        let memory = AppMemory {
            pid: app_pid,
            fd: facts.fd,
            name: PINNED_NAME,
            size_bytes: facts.size_bytes,
        };
        self.register(memory.take_as_its_user()?.as_fd(), facts)
    }

    /// Maps an area whose memfd is `fd` here.
    ///
    /// # Errors
    /// [`ServerError::Os`], [`ServerError::Device`].
    pub fn register(&self, fd: BorrowedFd<'_>, facts: PinnedArea) -> Result<(), ServerError> {
        let mapping = Arc::new(FixedMapping::new(fd, facts.addr, facts.size_bytes)?);
        self.device.register_host(facts.addr, facts.size_bytes)?;
        self.areas.lock().insert(facts.addr, Area { facts, mapping });
        Ok(())
    }

    /// Unmaps the area at `addr`; false if there is none.
    ///
    /// # Errors
    /// [`ServerError::Device`]; the area is forgotten all the same.
    pub fn unregister(&self, addr: u64) -> Result<bool, ServerError> {
        let Some(area) = self.areas.lock().remove(&addr) else {
            return Ok(false);
        };
        self.device.unregister_host(addr)?;
        drop(area);
        Ok(true)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        for addr in self.areas().into_iter().map(|a| a.addr) {
            if let Err(error) = self.unregister(addr) {
                tracing::warn!(%error, "pinned memory cannot be unregistered");
            }
        }
    }

    /// All areas, by ascending address.
    #[must_use]
    pub fn areas(&self) -> Vec<PinnedArea> {
        self.areas.lock().values().map(|a| a.facts).collect()
    }

    /// The range, if all of it lies in one area.
    #[must_use]
    pub fn range(&self, addr: u64, size_bytes: u64) -> Option<PinnedRange> {
        let areas = self.areas.lock();
        let (&start, area) = areas.range(..=addr).next_back()?;
        let offset = addr - start;
        if offset.checked_add(size_bytes)? > area.facts.size_bytes {
            return None;
        }
        let mapping = Arc::clone(&area.mapping);
        Some(PinnedRange {
            mapping,
            offset: usize::try_from(offset).ok()?,
            size_bytes: usize::try_from(size_bytes).ok()?,
        })
    }
}

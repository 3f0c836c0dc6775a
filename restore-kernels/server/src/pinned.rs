//! Pinned host memory: memfds of the application, mapped here at the application's own addresses.
#![allow(unsafe_code, reason = "maps the application's pinned memory and makes slices of it")]

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;

use hetckpt_devices::device::Device;
use hetckpt_ring::app_memory::{AppMemory, PINNED_NAME};
use hetckpt_ring::pinned_table::{MANAGED_ADDRESSES, PinnedArea};

use crate::error::ServerError;

/// The application's pinned memory.
pub struct Pinned {
    device: Arc<dyn Device>,
    areas: Mutex<BTreeMap<u64, Area>>,
}

struct Area {
    facts: PinnedArea,
    /// Of managed memory.
    memfd: Option<OwnedFd>,
    /// Behind an `Arc` so that a copy under way keeps it mapped. `None` while the area is lent.
    mapping: Option<Arc<FixedMapping>>,
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
        self.register(of_app(app_pid, facts)?.as_fd(), facts)
    }

    /// Maps an area whose memfd is `fd` here.
    ///
    /// # Errors
    /// [`ServerError::Os`], [`ServerError::Device`].
    pub fn register(&self, fd: BorrowedFd<'_>, facts: PinnedArea) -> Result<(), ServerError> {
        let is_managed = MANAGED_ADDRESSES.contains(&facts.addr);
        let memfd = is_managed.then(|| fd.try_clone_to_owned()).transpose();
        let memfd = memfd.map_err(|source| ServerError::Os { call: "dup", source })?;
        let mapping = Some(self.map(fd, facts)?);
        self.areas.lock().insert(facts.addr, Area { facts, memfd, mapping });
        Ok(())
    }

    fn map(&self, fd: BorrowedFd<'_>, facts: PinnedArea) -> Result<Arc<FixedMapping>, ServerError> {
        let mapping = Arc::new(FixedMapping::new(fd, facts.addr, facts.size_bytes)?);
        self.device.register_host(facts.addr, facts.size_bytes)?;
        Ok(mapping)
    }

    /// As [`Self::register_from_app`] of managed memory, which is lent at once.
    ///
    /// # Errors
    /// As there.
    pub fn register_lent(&self, app_pid: u32, facts: PinnedArea) -> Result<(), ServerError> {
        let memfd = Some(of_app(app_pid, facts)?);
        let area = Area {
            facts,
            memfd,
            mapping: None,
        };
        self.areas.lock().insert(facts.addr, area);
        Ok(())
    }

    /// The areas of managed memory.
    #[must_use]
    pub fn managed(&self) -> Vec<u64> {
        let areas = self.areas.lock();
        let managed = areas.iter().filter(|(_, area)| area.memfd.is_some());
        managed.map(|(&addr, _)| addr).collect()
    }

    /// Leaves the addresses of an area of managed memory to somebody else, until [`Self::take_back`]; false if
    /// something still uses it.
    ///
    /// # Errors
    /// [`ServerError::Device`].
    pub fn lend(&self, addr: u64) -> Result<bool, ServerError> {
        let mut areas = self.areas.lock();
        let is_free = |area: &&mut Area| {
            area.mapping
                .as_ref()
                .is_some_and(|mapping| Arc::strong_count(mapping) == 1)
        };
        let Some(area) = areas.get_mut(&addr).filter(is_free) else {
            return Ok(false);
        };
        self.device.unregister_host(addr)?;
        area.mapping = None;
        Ok(true)
    }

    /// An area that is lent, with its memfd.
    ///
    /// # Errors
    /// [`ServerError::Os`].
    pub fn lent(&self, addr: u64) -> Result<Option<(PinnedArea, OwnedFd)>, ServerError> {
        let areas = self.areas.lock();
        let area = areas.get(&addr).filter(|area| area.mapping.is_none());
        let Some((facts, Some(memfd))) = area.map(|area| (area.facts, &area.memfd)) else {
            return Ok(None);
        };
        let memfd = memfd.try_clone();
        memfd
            .map(|memfd| Some((facts, memfd)))
            .map_err(|source| ServerError::Os { call: "dup", source })
    }

    /// Ends what [`Self::lend`] has begun; does nothing if nobody has.
    ///
    /// # Errors
    /// [`ServerError::Os`], [`ServerError::Device`]; the area stays lent.
    pub fn take_back(&self, addr: u64) -> Result<(), ServerError> {
        let mut areas = self.areas.lock();
        if let Some(area) = areas.get_mut(&addr).filter(|area| area.mapping.is_none())
            && let Some(memfd) = &area.memfd
        {
            area.mapping = Some(self.map(memfd.as_fd(), area.facts)?);
        }
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
        if area.mapping.is_some() {
            self.device.unregister_host(addr)?;
        }
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

    /// The range, if all of it lies in one area that is not lent.
    #[must_use]
    pub fn range(&self, addr: u64, size_bytes: u64) -> Option<PinnedRange> {
        let areas = self.areas.lock();
        let (&start, area) = areas.range(..=addr).next_back()?;
        let offset = addr - start;
        if offset.checked_add(size_bytes)? > area.facts.size_bytes {
            return None;
        }
        let mapping = Arc::clone(area.mapping.as_ref()?);
        Some(PinnedRange {
            mapping,
            offset: usize::try_from(offset).ok()?,
            size_bytes: usize::try_from(size_bytes).ok()?,
        })
    }
}

/// The memfd that is descriptor `facts.fd` of process `app_pid`.
fn of_app(app_pid: u32, facts: PinnedArea) -> Result<OwnedFd, ServerError> {
    let memory = AppMemory {
        pid: app_pid,
        fd: facts.fd,
        name: PINNED_NAME,
        size_bytes: facts.size_bytes,
    };
    Ok(memory.take_as_its_user()?)
}

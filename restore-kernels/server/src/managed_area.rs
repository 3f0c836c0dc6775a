//! An area of managed memory that moves by page ([`crate::managed_pages`]): what lies where, and how it gets there.
#![allow(unsafe_code, reason = "maps memfds")]

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::{Whence, lseek64};
use rangemap::RangeMap;

use hetckpt_devices::device::{Device, GRANULARITY};
use hetckpt_devices::error::DeviceError;
use hetckpt_ring::pinned_table::PinnedArea;
use hetckpt_ring::userfaultfd::Userfaultfd;

use crate::error::ServerError;

/// What comes at once, at least, and begins at a multiple of this.
const PIECE_BYTES: u64 = 64 << 10;
/// What comes at most where the application goes on where the last piece has ended.
pub const LONGEST_PIECE: u64 = 64 << 20;
/// Pages of so much are made at once, before they are written to; of more, by the threads that write to them.
const POPULATED_BYTES: u64 = 1 << 20;

/// One area.
pub struct Area {
    /// Which it is.
    pub facts: PinnedArea,
    memfd: OwnedFd,
    /// All of the memfd.
    window: Window,
    /// Where what is not on the device alone is, by addresses.
    pub places: RangeMap<u64, Place>,
    /// Where the last piece that a fault was about ended, and its length.
    last_piece: (u64, u64),
    /// How often kernels were stopped for it.
    pub num_interruptions: u32,
}

/// Where content is that is not on the device alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the memfd alone.
    Memfd,
    /// There and on the device.
    Both,
}

impl Area {
    /// An area that its memfd has.
    ///
    /// # Errors
    /// [`ServerError::Os`].
    pub fn new(facts: PinnedArea, memfd: OwnedFd) -> Result<Self, ServerError> {
        let mut area = Self {
            facts,
            window: Window::new(&memfd, facts.size_bytes)?,
            memfd,
            places: RangeMap::new(),
            last_piece: (0, 0),
            num_interruptions: 0,
        };
        area.places.insert(area.range(), Place::Memfd);
        Ok(area)
    }

    /// Its addresses.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.facts.addr..self.facts.addr + self.facts.size_bytes
    }

    /// Its size on the device.
    #[must_use]
    pub fn on_device_bytes(&self) -> u64 {
        self.facts.size_bytes.next_multiple_of(GRANULARITY)
    }

    /// What is only on the device around an address that is.
    #[must_use]
    pub fn on_device_around(&self, addr: u64) -> Range<u64> {
        let all = self.range();
        let before = self.places.overlapping(&(all.start..addr)).next_back();
        let after = self.places.overlapping(&(addr..all.end)).next();
        let start = before.map_or(all.start, |(range, _)| range.end);
        start..after.map_or(all.end, |(range, _)| range.start)
    }

    /// What a fault at `addr` is about, of `limits`, in which it lies.
    pub fn piece(&mut self, addr: u64, limits: &Range<u64>) -> Range<u64> {
        let start = (addr - addr % PIECE_BYTES).max(limits.start);
        let (last_end, last_length) = self.last_piece;
        let most = match start == last_end {
            true => (last_length * 2).clamp(PIECE_BYTES, LONGEST_PIECE),
            false => PIECE_BYTES,
        };
        let end = (start + most).next_multiple_of(PIECE_BYTES).min(limits.end);
        self.last_piece = (end, end - start);
        start..end
    }

    /// Brings what is not on the device there.
    ///
    /// # Errors
    /// [`DeviceError`]; the rest stays where it is.
    pub fn bring(&mut self, faults: &Userfaultfd, device: &dyn Device) -> Result<(), DeviceError> {
        let failed = |call: &'static str| {
            move |errno: Errno| DeviceError::Driver {
                call,
                reason: errno.to_string(),
            }
        };
        while let Some((range, place)) = self.places.iter().next().map(|(range, &place)| (range.clone(), place)) {
            if place == Place::Memfd {
                faults
                    .write_protect(&range, true)
                    .map_err(failed("UFFDIO_WRITEPROTECT"))?;
                self.write(device, &range)?;
            }
            self.make_hole(&range).map_err(failed("fallocate"))?;
            self.places.remove(range.clone());
            // Who has waited for a write finds that nothing is there.
            faults
                .write_protect(&range, false)
                .and_then(|()| faults.wake(&range))
                .map_err(failed("UFFDIO_WRITEPROTECT"))?;
        }
        Ok(())
    }

    /// Copies what the memfd has in `range` to the device; the rest becomes zero there.
    fn write(&self, device: &dyn Device, range: &Range<u64>) -> Result<(), DeviceError> {
        let base = self.facts.addr;
        let (mut at, end) = (range.start - base, range.end - base);
        while at < end {
            let seek =
                |whence| lseek64(&self.memfd, at.cast_signed(), whence).map(|found| found.cast_unsigned().min(end));
            let data = match seek(Whence::SeekData) {
                Ok(data) => data,
                Err(Errno::ENXIO) => end,
                Err(_) => at,
            };
            if data > at {
                device.zero(base + at, data - at)?;
                at = data;
                continue;
            }
            let hole = seek(Whence::SeekHole).unwrap_or(end);
            device.write(base + at, self.window.bytes(at, hole - at))?;
            at = hole;
        }
        Ok(())
    }

    /// Copies what is on the device into the memfd.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn read(&mut self, device: &dyn Device, range: &Range<u64>) -> Result<(), ServerError> {
        let (offset, length) = (range.start - self.facts.addr, range.end - range.start);
        if length <= POPULATED_BYTES {
            self.window.populate(offset, length)?;
        }
        Ok(device.read(range.start, self.window.bytes_mut(offset, length))?)
    }

    /// Has the memfd have the pages.
    ///
    /// # Errors
    /// What the system says.
    pub fn allocate(&self, range: &Range<u64>) -> Result<(), Errno> {
        let (offset, length) = self.in_memfd(range);
        fallocate(self.memfd.as_fd(), FallocateFlags::empty(), offset, length)
    }

    /// Takes the pages from the memfd, and from whoever has mapped them.
    fn make_hole(&self, range: &Range<u64>) -> Result<(), Errno> {
        let (offset, length) = self.in_memfd(range);
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(self.memfd.as_fd(), flags, offset, length)
    }

    fn in_memfd(&self, range: &Range<u64>) -> (i64, i64) {
        let offset = range.start - self.facts.addr;
        (offset.cast_signed(), (range.end - range.start).cast_signed())
    }
}

/// A mapping of a whole memfd, at an address of the system's choice.
struct Window {
    addr: *mut u8,
    size_bytes: usize,
}

// SAFETY: plain memory; who may touch it when is a matter of the lock that it lies under.
unsafe impl Send for Window {}

impl Window {
    fn new(memfd: &OwnedFd, size_bytes: u64) -> Result<Self, ServerError> {
        let size = size_bytes as usize;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the system's choice.
        let got = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, memfd.as_raw_fd(), 0) };
        if got == libc::MAP_FAILED {
            return Err(os("mmap of managed memory")(Errno::last()));
        }
        Ok(Self {
            addr: got.cast(),
            size_bytes: size,
        })
    }

    /// Has the memfd have these pages, which are mapped here then.
    fn populate(&self, offset: u64, length: u64) -> Result<(), ServerError> {
        let (at, length) = self.at(offset, length);
        // SAFETY: pages of this mapping, whose content stays.
        let result = unsafe { libc::madvise(at.cast(), length, libc::MADV_POPULATE_WRITE) };
        Errno::result(result)
            .map(|_| ())
            .map_err(os("madvise of managed memory"))
    }

    fn at(&self, offset: u64, length: u64) -> (*mut u8, usize) {
        let (offset, length) = (offset as usize, length as usize);
        assert!(
            offset <= self.size_bytes && length <= self.size_bytes - offset,
            "a piece lies in its area"
        );
        (self.addr.wrapping_add(offset), length)
    }

    /// What the application may write to at any time but what it is held from.
    fn bytes(&self, offset: u64, length: u64) -> &[u8] {
        let (at, length) = self.at(offset, length);
        // SAFETY: in bounds of the mapping, which lives as long as `self`.
        unsafe { std::slice::from_raw_parts(at, length) }
    }

    fn bytes_mut(&mut self, offset: u64, length: u64) -> &mut [u8] {
        let (at, length) = self.at(offset, length);
        // SAFETY: as above; the application has no such page mapped until it is told of it.
        unsafe { std::slice::from_raw_parts_mut(at, length) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`.
        unsafe { libc::munmap(self.addr.cast(), self.size_bytes) };
    }
}

/// The failure of a system call.
pub fn os(call: &'static str) -> impl Fn(Errno) -> ServerError {
    move |errno| ServerError::Os {
        call,
        source: errno.into(),
    }
}

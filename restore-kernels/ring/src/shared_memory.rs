//! The mapped shared memory: words as atomics, areas by copying. All bounds are checked here.
#![allow(unsafe_code, reason = "maps memory and makes references into it")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::app_memory::close_to_others;
use crate::error::RingError;
use crate::layout;
use crate::version::{MAGIC, PROTOCOL_VERSION, Readable};

/// The ring's memory, mapped in this process.
#[derive(Debug)]
pub struct SharedMemory {
    base: *mut u8,
}

// SAFETY: the mapping is shared memory that several threads and processes use; every access to words goes through
// atomics, and areas are handed over by those words.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes the memory of a new ring: a sealed memfd with the header filled in, and its mapping.
    ///
    /// # Errors
    /// [`RingError::Os`].
    pub fn create() -> Result<(OwnedFd, Self), RingError> {
        // SAFETY: the name is a NUL-terminated string; the call touches no other memory.
        let fd = unsafe { libc::memfd_create(c"hetckpt-ring".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(RingError::last_os("memfd_create"));
        }
        // SAFETY: `fd` was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        close_to_others(fd.as_fd())?;
        nix::unistd::ftruncate(&fd, layout::TOTAL_BYTES as i64).map_err(|e| RingError::nix("ftruncate", e))?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: plain descriptor call.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
            return Err(RingError::last_os("fcntl(F_ADD_SEALS)"));
        }
        let memory = Self::map(fd.as_fd())?;
        // A forked child of the application must not be able to write to its parent's ring.
        // SAFETY: the whole of the mapping just made; its content is not touched.
        if unsafe { libc::madvise(memory.base.cast(), layout::TOTAL_BYTES, libc::MADV_DONTFORK) } < 0 {
            return Err(RingError::last_os("madvise(MADV_DONTFORK)"));
        }
        memory
            .u32_at(layout::VERSION)
            .store(PROTOCOL_VERSION, Ordering::Relaxed);
        memory
            .u64_at(layout::SIZE)
            .store(layout::TOTAL_BYTES as u64, Ordering::Relaxed);
        memory.u64_at(layout::MAGIC).store(MAGIC, Ordering::Release);
        Ok((fd, memory))
    }

    /// Maps a ring made by another process and checks its header; its version must be `readable`.
    ///
    /// # Errors
    /// [`RingError::NotARing`], [`RingError::Version`], [`RingError::Os`].
    pub fn open(fd: BorrowedFd<'_>, readable: Readable) -> Result<Self, RingError> {
        let stat = nix::sys::stat::fstat(fd).map_err(|e| RingError::nix("fstat", e))?;
        let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        if size_bytes != layout::TOTAL_BYTES as u64 {
            return Err(RingError::NotARing {
                size_bytes,
                reason: "its size is wrong",
            });
        }
        // SAFETY: plain descriptor call.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(RingError::NotARing {
                size_bytes,
                reason: "its size is not sealed",
            });
        }
        let memory = Self::map(fd)?;
        if memory.u64_at(layout::MAGIC).load(Ordering::Acquire) != MAGIC {
            return Err(RingError::NotARing {
                size_bytes,
                reason: "the magic number is missing",
            });
        }
        let theirs = memory.u32_at(layout::VERSION).load(Ordering::Relaxed);
        if !readable.has(theirs) {
            let ours = readable.newest;
            return Err(RingError::Version { ours, theirs });
        }
        Ok(memory)
    }

    fn map(fd: BorrowedFd<'_>) -> Result<Self, RingError> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the system's choice; no existing memory is affected.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                layout::TOTAL_BYTES,
                protection,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(RingError::last_os("mmap"));
        }
        Ok(Self { base: base.cast() })
    }

    /// The 32-bit word at `offset`, one of [`layout`]'s.
    pub(crate) fn u32_at(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= layout::TOTAL_BYTES);
        // SAFETY: in bounds and aligned by the assertion (the base is page-aligned); the mapping lives as long as
        // `self`; this word is only ever used as an atomic.
        unsafe { AtomicU32::from_ptr(self.base.wrapping_add(offset).cast()) }
    }

    /// The 64-bit word at `offset`, one of [`layout`]'s.
    pub(crate) fn u64_at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= layout::TOTAL_BYTES);
        // SAFETY: as in `u32_at`.
        unsafe { AtomicU64::from_ptr(self.base.wrapping_add(offset).cast()) }
    }

    /// Copies `bytes` in at `offset`.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset <= layout::TOTAL_BYTES && bytes.len() <= layout::TOTAL_BYTES - offset);
        // SAFETY: in bounds by the assertion; the source is ordinary memory, which the mapping does not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.wrapping_add(offset), bytes.len()) }
    }

    /// Copies out what lies at `offset`.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset <= layout::TOTAL_BYTES && bytes.len() <= layout::TOTAL_BYTES - offset);
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(self.base.wrapping_add(offset), bytes.as_mut_ptr(), bytes.len()) }
    }

    /// The memory at `offset` as bytes, for the side that owns it at present.
    pub(crate) fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        assert!(offset <= layout::TOTAL_BYTES && length <= layout::TOTAL_BYTES - offset);
        // SAFETY: in bounds by the assertion. Only chunks that the caller owns are asked for; an application that
        // writes to a chunk it has given away harms only its own data.
        unsafe { std::slice::from_raw_parts(self.base.wrapping_add(offset), length) }
    }

    /// Lets `fill` write the memory at `offset`, for the side that owns it at present.
    pub(crate) fn with_bytes_mut<T>(&self, offset: usize, length: usize, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        assert!(offset <= layout::TOTAL_BYTES && length <= layout::TOTAL_BYTES - offset);
        // SAFETY: in bounds by the assertion; as in `bytes`, only an owned chunk is asked for, so nobody else holds it.
        fill(unsafe { std::slice::from_raw_parts_mut(self.base.wrapping_add(offset), length) })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, of this size; no reference into it outlives `self`.
        let _ = unsafe { libc::munmap(self.base.cast(), layout::TOTAL_BYTES) };
    }
}

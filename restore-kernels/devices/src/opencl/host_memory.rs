#![allow(unsafe_code, reason = "maps memory and touches it while kernels do")]
//! Memory of this process that a device may use as its own.

use std::io::{Error, Result};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Pages of this process.
#[derive(Debug)]
pub(super) struct HostMemory {
    at: *mut u8,
    size: usize,
}

// SAFETY: plain memory; who touches what when is up to the users, which go through pointers or atomics.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Zeroed memory anywhere.
    pub fn zeroed(size: usize) -> Result<Self> {
        let size = size.max(1);
        // SAFETY: a new mapping where the system chooses.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                PRIVATE,
                -1,
                0,
            )
        };
        Self::checked(at, size)
    }

    /// Reserves `size` bytes at `addr`; nothing of it can be accessed yet.
    pub fn reserve(addr: u64, size: usize) -> Result<Self> {
        let wanted = ptr::without_provenance_mut(addr as usize);
        let flags = PRIVATE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping over no other.
        let at = unsafe { libc::mmap(wanted, size, libc::PROT_NONE, flags, -1, 0) };
        let memory = Self::checked(at, size)?;
        // Linux before 4.17 takes the flag for a hint.
        if memory.at as u64 == addr {
            Ok(memory)
        } else {
            Err(Error::from_raw_os_error(libc::EEXIST))
        }
    }

    fn checked(at: *mut libc::c_void, size: usize) -> Result<Self> {
        if at == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(Self { at: at.cast(), size })
    }

    /// Its first byte.
    pub fn at(&self) -> *mut u8 {
        self.at
    }

    /// Makes a range accessible; it is zero if it was never accessible or was given back.
    pub fn open(&self, offset: usize, size: usize) -> Result<()> {
        let at = self.range(offset, size)?;
        // SAFETY: pages of this mapping.
        if unsafe { libc::mprotect(at, size, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: pages of this mapping; advice changes no content. That it may be ignored does not matter.
        unsafe { libc::madvise(at, size, libc::MADV_HUGEPAGE) };
        Ok(())
    }

    /// Gives a range back to the system.
    pub fn close(&self, offset: usize, size: usize) -> Result<()> {
        let at = self.range(offset, size)?;
        // SAFETY: pages of this mapping, which nothing uses any more.
        if unsafe { libc::madvise(at, size, libc::MADV_DONTNEED) } != 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: as above.
        if unsafe { libc::mprotect(at, size, libc::PROT_NONE) } != 0 {
            return Err(Error::last_os_error());
        }
        Ok(())
    }

    fn range(&self, offset: usize, size: usize) -> Result<*mut libc::c_void> {
        match offset.checked_add(size) {
            Some(end) if end <= self.size => Ok(self.at.wrapping_add(offset).cast()),
            _ => Err(Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    /// Copies from it; false if there is less than asked for.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> bool {
        let Ok(at) = self.range(offset, to.len()) else {
            return false;
        };
        // SAFETY: within the mapping; callers read where no kernel is writing.
        unsafe { ptr::copy_nonoverlapping(at.cast(), to.as_mut_ptr(), to.len()) };
        true
    }

    /// Copies into it; false if there is less room.
    pub fn write(&self, offset: usize, from: &[u8]) -> bool {
        let Ok(at) = self.range(offset, from.len()) else {
            return false;
        };
        // SAFETY: within the mapping; callers write where no kernel is reading.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), at.cast(), from.len()) };
        true
    }

    /// The first word, which kernels may be looking at.
    pub fn first_word(&self) -> &AtomicU32 {
        // SAFETY: a mapping starts at a page and has at least one; any bits are a valid word.
        unsafe { AtomicU32::from_ptr(self.at.cast()) }
    }

    /// Sets the first eight bytes, which kernels may be reading.
    pub fn set_first_double_word(&self, value: u64) {
        // SAFETY: as above; a mapping has at least 16 bytes, and whoever calls this uses its first word for nothing
        // else.
        unsafe { AtomicU64::from_ptr(self.at.cast()) }.store(value, Ordering::SeqCst);
    }

    /// Sets the first word.
    pub fn set_first_word(&self, value: u32) {
        self.first_word().store(value, Ordering::SeqCst);
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: this object's own mapping.
        unsafe { libc::munmap(self.at.cast(), self.size) };
    }
}

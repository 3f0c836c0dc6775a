#![allow(unsafe_code, reason = "device memory is this process's memory at chosen addresses")]
//! Device memory: anonymous mappings at the addresses that the server chose.
//!
//! The server checks every range against its allocations before it calls; what is copied here is mapped.

use std::collections::BTreeMap;
use std::ptr;

use parking_lot::Mutex;

use crate::device::Fill;
use crate::error::DeviceError;

/// The ranges mapped by this device; what is left is unmapped when it is dropped.
#[derive(Default)]
pub struct MappedRanges {
    ranges: Mutex<BTreeMap<u64, u64>>,
}

impl MappedRanges {
    /// Maps zeroed memory at `addr`.
    pub fn map(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        let free_bytes = super::host::memory().free_bytes;
        if size_bytes > free_bytes {
            return Err(DeviceError::OutOfMemory {
                requested_bytes: size_bytes,
                free_bytes,
            });
        }
        let failed = |reason: String| DeviceError::Map {
            addr,
            size_bytes,
            reason,
        };
        let len = usize::try_from(size_bytes).map_err(|e| failed(e.to_string()))?;
        // SAFETY: a new mapping over no other (`MAP_FIXED_NOREPLACE`); nothing of this process is touched.
        let got = unsafe {
            libc::mmap(
                ptr::without_provenance_mut(addr as usize),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if got == libc::MAP_FAILED {
            return Err(failed(std::io::Error::last_os_error().to_string()));
        }
        if got as u64 != addr {
            // Linux before 4.17 takes the flag for a hint.
            // SAFETY: the mapping just made, used by nobody.
            unsafe { libc::munmap(got, len) };
            return Err(failed("the address is taken".to_owned()));
        }
        // SAFETY: the mapping just made; advice changes no content. That it may be ignored does not matter.
        unsafe { libc::madvise(got, len, libc::MADV_HUGEPAGE) };
        self.ranges.lock().insert(addr, size_bytes);
        Ok(())
    }

    /// Unmaps a mapped range.
    pub fn unmap(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        let mut ranges = self.ranges.lock();
        if ranges.get(&addr) != Some(&size_bytes) {
            return Err(DeviceError::Map {
                addr,
                size_bytes,
                reason: "it was not mapped as one range".to_owned(),
            });
        }
        ranges.remove(&addr);
        release(addr, size_bytes);
        Ok(())
    }

    /// Makes whole pages of what is mapped zero, and gives their memory back until they are used again.
    pub fn zero(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        let failed = |reason: String| DeviceError::Driver {
            call: "madvise",
            reason,
        };
        let ranges = self.ranges.lock();
        let holds = |(&start, &size): (&u64, &u64)| addr - start <= size && size_bytes <= size - (addr - start);
        if !ranges.range(..=addr).next_back().is_some_and(holds) {
            return Err(failed(format!("nothing is mapped at {addr:#x}")));
        }
        // SAFETY: a part of a private mapping of this device, whose content is to be zero.
        let result = unsafe {
            libc::madvise(
                ptr::without_provenance_mut(addr as usize),
                size_bytes as usize,
                libc::MADV_DONTNEED,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(failed(std::io::Error::last_os_error().to_string())),
        }
    }
}

impl Drop for MappedRanges {
    fn drop(&mut self) {
        for (&addr, &size_bytes) in self.ranges.lock().iter() {
            release(addr, size_bytes);
        }
    }
}

fn release(addr: u64, size_bytes: u64) {
    // SAFETY: mapped by `map`, so it fits and belongs to this device; the server frees only what nothing uses.
    unsafe { libc::munmap(ptr::without_provenance_mut(addr as usize), size_bytes as usize) };
}

fn place(addr: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut(addr as usize)
}

/// Host to device.
pub fn write(dst: u64, src: &[u8]) {
    // SAFETY: the server checked that `dst` and as many bytes are mapped; they are no Rust object's memory.
    unsafe { ptr::copy_nonoverlapping(src.as_ptr(), place(dst), src.len()) };
}

/// Host to device: what `produce` puts there, which nobody else uses meanwhile.
pub fn write_with(dst: u64, size_bytes: usize, produce: &mut dyn FnMut(&mut [u8]) -> bool) {
    // SAFETY: as for `write`; the caller has it that nobody else uses these bytes.
    produce(unsafe { std::slice::from_raw_parts_mut(place(dst), size_bytes) });
}

/// Device to host.
pub fn read(src: u64, dst: &mut [u8]) {
    // SAFETY: as for `write`.
    unsafe { ptr::copy_nonoverlapping(place(src), dst.as_mut_ptr(), dst.len()) };
}

/// Device to device.
pub fn copy(dst: u64, src: u64, size_bytes: u64) {
    // SAFETY: as for `write`, both sides; overlap is allowed.
    unsafe { ptr::copy(place(src), place(dst), size_bytes as usize) };
}

/// Fills rows.
pub fn fill(dst: u64, pitch_bytes: u64, value: Fill, width: u64, rows: u64) {
    for row in 0..rows {
        let at = place(dst + row * pitch_bytes);
        let count = width as usize;
        match value {
            // SAFETY: as for `write`.
            Fill::U8(byte) => unsafe { ptr::write_bytes(at, byte, count) },
            Fill::U16(word) => {
                // SAFETY: as for `write`; CUDA's memsets demand that the address suits the element.
                unsafe { std::slice::from_raw_parts_mut(at.cast::<u16>(), count) }.fill(word);
            }
            Fill::U32(word) => {
                // SAFETY: as above.
                unsafe { std::slice::from_raw_parts_mut(at.cast::<u32>(), count) }.fill(word);
            }
        }
    }
}

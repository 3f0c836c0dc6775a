//! Memory at chosen addresses.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::device::TOTAL_BYTES;
use crate::result::{INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, put};

/// Where ranges lie that nobody has asked an address for: elsewhere in each process.
static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| {
    let process = u64::from(std::process::id()) % (1 << 10);
    AtomicU64::new(0x3000_0000_0000 + (process << 32))
});
const ALIGNMENT: u64 = 2 << 20;
static NEXT_HANDLE: AtomicU64 = AtomicU64::new(1);
/// What the driver has placed: address and size.
static PLACED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

fn map(addr: u64, size: u64, protection: i32, flags: i32) -> bool {
    let at = std::ptr::without_provenance_mut(addr as usize);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags;
    // SAFETY: a range that was reserved here, or with NOREPLACE one that is free.
    let mapped = unsafe { libc::mmap(at, size as usize, protection, flags, -1, 0) };
    std::ptr::eq(mapped, at)
}

fn readable(addr: u64, size: u64, flags: i32) -> bool {
    map(addr, size, libc::PROT_READ | libc::PROT_WRITE, flags)
}

/// Memory somewhere.
pub fn place(size: u64) -> Option<u64> {
    let size = size.max(1).next_multiple_of(ALIGNMENT);
    let addr = NEXT.fetch_add(size, Ordering::Relaxed);
    let placed = readable(addr, size, libc::MAP_FIXED_NOREPLACE);
    placed.then(|| PLACED.lock().insert(addr, size)).map(|_| addr)
}

fn placed(place_for: Option<&mut u64>, size: usize) -> u32 {
    place(size as u64).map_or(OUT_OF_MEMORY, |addr| put(place_for, addr))
}

fn free(addr: u64) -> u32 {
    match PLACED.lock().remove(&addr) {
        Some(size) if map(addr, size, libc::PROT_NONE, libc::MAP_FIXED) => SUCCESS,
        _ => INVALID_VALUE,
    }
}

driver_api! {
    fn cuMemGetInfo_v2(free: Option<&mut usize>, total: Option<&mut usize>) {
        put(free, TOTAL_BYTES).max(put(total, TOTAL_BYTES))
    }
    fn cuMemAddressReserve(got: Option<&mut u64>, size: usize, _alignment: usize, addr: u64, _flags: u64) {
        let addr = if addr == 0 { NEXT.fetch_add(size as u64, Ordering::Relaxed) } else { addr };
        if map(addr, size as u64, libc::PROT_NONE, libc::MAP_FIXED_NOREPLACE) {
            put(got, addr)
        } else {
            OUT_OF_MEMORY
        }
    }
    fn cuMemAddressFree(addr: u64, size: usize) {
        // SAFETY: the caller's reservation.
        let freed = unsafe { libc::munmap(std::ptr::without_provenance_mut(addr as usize), size) };
        if freed == 0 { SUCCESS } else { INVALID_VALUE }
    }
    fn cuMemCreate(handle: Option<&mut u64>, _size: usize, _properties: usize, _flags: u64) {
        put(handle, NEXT_HANDLE.fetch_add(1, Ordering::Relaxed))
    }
    fn cuMemRelease(_handle: u64) {
        SUCCESS
    }
    fn cuMemMap(addr: u64, size: usize, _offset: usize, _handle: u64, _flags: u64) {
        if readable(addr, size as u64, libc::MAP_FIXED) { SUCCESS } else { INVALID_VALUE }
    }
    fn cuMemUnmap(addr: u64, size: usize) {
        if map(addr, size as u64, libc::PROT_NONE, libc::MAP_FIXED) { SUCCESS } else { INVALID_VALUE }
    }
    fn cuMemSetAccess(_addr: u64, _size: usize, _access: usize, _count: usize) {
        SUCCESS
    }
    fn cuMemAllocAsync(addr: Option<&mut u64>, size: usize, _stream: usize) {
        placed(addr, size)
    }
    fn cuMemFreeAsync(addr: u64, _stream: usize) {
        free(addr)
    }
    fn cuMemHostAlloc(addr: Option<&mut u64>, size: usize, _flags: u32) {
        placed(addr, size)
    }
    fn cuMemFreeHost(addr: u64) {
        free(addr)
    }
    fn cuMemHostRegister_v2(_addr: u64, _size: usize, _flags: u32) {
        SUCCESS
    }
    fn cuMemHostUnregister(_addr: u64) {
        SUCCESS
    }
}

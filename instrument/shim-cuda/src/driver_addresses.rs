//! Addresses that NVIDIA's driver has chosen for variables of modules, in the device server. Natively the driver is in
//! the program, and nothing else can lie there; here memory of the program's own could. So they are reserved: whatever
//! the program maps later lies elsewhere, and an address tells which of both is meant.
#![allow(unsafe_code, reason = "reserves addresses")]

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::memory_map::OUR_ADDRESSES;

const PAGE_BYTES: u64 = 4096;

/// First addresses of pages that are reserved; they stay so.
static RESERVED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// Sees to it that nothing of the program lies, or will lie, in a range. False if something does.
pub fn reserve(addr: u64, size_bytes: u64) -> bool {
    let end = addr.saturating_add(size_bytes);
    if OUR_ADDRESSES.contains(&addr) {
        return true;
    }
    let first = addr / PAGE_BYTES * PAGE_BYTES;
    let mut reserved = RESERVED.lock();
    let mut pages = (first..end).step_by(PAGE_BYTES as usize);
    pages.all(|page| reserved.contains(&page) || (map(page) && reserved.insert(page)))
}

/// Maps a page that nobody can touch.
fn map(page: u64) -> bool {
    let wanted = std::ptr::with_exposed_provenance_mut(page as usize);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE: existing mappings are left alone.
    let got = unsafe { libc::mmap(wanted, PAGE_BYTES as usize, libc::PROT_NONE, flags, -1, 0) };
    got != libc::MAP_FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_reserved_unless_something_lies_there() {
        let here = Box::new(0_u64);
        let own = std::ptr::from_ref(&*here).expose_provenance() as u64;
        assert!(!reserve(own, 8));
        // Nothing lies just below a reservation of our own that is made anywhere.
        let free = 0x6123_4560_0000;
        assert!(reserve(free + 100, 5000));
        assert!(reserve(free + 5000, 100), "it has been reserved before");
        assert!(!map(free) && !map(free + PAGE_BYTES) && map(free + 2 * PAGE_BYTES));
    }
}

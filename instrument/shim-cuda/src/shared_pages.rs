//! Pages of the program's own memory that become shared memory and private again, where they are and with what is in
//! them. Meanwhile threads that write to them wait: they are write-protected by userfaultfd (Linux,
//! Documentation/admin-guide/mm/userfaultfd.rst, "Write Protect Notifications"), so that no write is lost.
#![allow(unsafe_code, reason = "remaps memory")]

use std::fs;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use hetckpt_ring::userfaultfd::{FEATURE_WP_SHMEM, Modes, Reach, Userfaultfd};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow};

const PAGE: u64 = 4096;
/// So far around its own frame a thread writes to its stack while it holds the others.
const STACK_IN_USE: u64 = 64 << 10;

/// Whole pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages(Range<u64>);

impl Pages {
    /// Those in which the `size_bytes` from `addr` on lie; `None` at the end of all addresses.
    pub fn around(addr: u64, size_bytes: u64) -> Option<Self> {
        let end = addr.checked_add(size_bytes)?.checked_next_multiple_of(PAGE)?;
        Some(Self(addr / PAGE * PAGE..end))
    }

    /// Address of the first.
    pub fn start(&self) -> u64 {
        self.0.start
    }

    /// Size of all.
    pub fn size_bytes(&self) -> u64 {
        self.0.end - self.0.start
    }

    /// True if all are ordinary memory of this process: private, of no file, readable and writable, and no stack that
    /// is the first thread's or this one's.
    pub fn are_private(&self) -> bool {
        let here = 0_u8;
        let here = (&raw const here).addr() as u64;
        let own_stack = here.saturating_sub(STACK_IN_USE)..here.saturating_add(STACK_IN_USE);
        if own_stack.start < self.0.end && self.0.start < own_stack.end {
            return false;
        }
        let mut reached = self.0.start;
        for line in fs::read_to_string("/proc/self/maps").unwrap_or_default().lines() {
            let Some(mapping) = Mapping::parse(line) else { continue };
            if reached < self.0.end && mapping.addresses.contains(&reached) {
                if !mapping.is_ordinary {
                    return false;
                }
                reached = mapping.addresses.end;
            }
        }
        reached >= self.0.end
    }

    /// Makes them a mapping of `memfd`, as large as they are, which also lies at `other`.
    pub fn share(&self, memfd: BorrowedFd<'_>, other: u64) -> Result<(), Errno> {
        let _without = WithoutSignals::new()?;
        let held = self.hold_writers(0)?;
        // From here on nothing may be allocated or locked: what that would write may lie in these pages.
        self.copy_to(other);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: replaces pages that are ours by others with the same contents; nobody writes to them meanwhile.
        let got = unsafe { libc::mmap(self.at(), self.length(), protection, flags, memfd.as_raw_fd(), 0) };
        let result = mapped(got);
        drop(held);
        result
    }

    /// Makes shared pages ordinary memory again.
    pub fn make_private(&self) -> Result<(), Errno> {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping at an address of the system's choice.
        let new = unsafe { libc::mmap(std::ptr::null_mut(), self.length(), protection, flags, -1, 0) };
        mapped(new)?;
        let unmap = || {
            // SAFETY: the mapping just made.
            unsafe { libc::munmap(new, self.length()) };
        };
        let _without = WithoutSignals::new().inspect_err(|_| unmap())?;
        let held = self.hold_writers(FEATURE_WP_SHMEM).inspect_err(|_| unmap())?;
        // As in `share`.
        self.copy_to(new.expose_provenance() as u64);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: as in `share`.
        let result = mapped(unsafe { libc::mremap(new, self.length(), self.length(), flags, self.at()) });
        drop(held);
        if result.is_err() {
            unmap();
        }
        result
    }

    fn at(&self) -> *mut libc::c_void {
        std::ptr::with_exposed_provenance_mut(self.0.start as usize)
    }

    fn length(&self) -> usize {
        self.size_bytes() as usize
    }

    fn copy_to(&self, other: u64) {
        let other: *mut u8 = std::ptr::with_exposed_provenance_mut(other as usize);
        // SAFETY: both are mappings of this length, and nobody writes to either.
        unsafe { std::ptr::copy_nonoverlapping(self.at().cast_const().cast::<u8>(), other, self.length()) }
    }

    /// Lets threads that write to these pages wait until what is returned is dropped.
    fn hold_writers(&self, features: u64) -> Result<Userfaultfd, Errno> {
        let uffd = Userfaultfd::open(Reach::Everything).or_else(|_| Userfaultfd::open(Reach::UserMode))?;
        uffd.enable(features)?;
        uffd.register(&self.0, Modes::WRITES)?;
        // A page that is not there cannot be protected.
        // SAFETY: only reads.
        if unsafe { libc::madvise(self.at(), self.length(), libc::MADV_POPULATE_READ) } != 0 {
            return Err(Errno::last());
        }
        uffd.write_protect(&self.0, true)?;
        Ok(uffd)
    }
}

/// As long as it lives no signal handler runs in this thread, where it might write to pages that are held.
struct WithoutSignals(SigSet);

impl WithoutSignals {
    fn new() -> Result<Self, Errno> {
        SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).map(Self)
    }
}

impl Drop for WithoutSignals {
    fn drop(&mut self) {
        // Setting a mask that was there before does not fail.
        let _ = self.0.thread_set_mask();
    }
}

fn mapped(addr: *mut libc::c_void) -> Result<(), Errno> {
    match addr == libc::MAP_FAILED {
        true => Err(Errno::last()),
        false => Ok(()),
    }
}

/// A line of `/proc/PID/maps`.
struct Mapping {
    addresses: Range<u64>,
    is_ordinary: bool,
}

impl Mapping {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let hex = |digits| u64::from_str_radix(digits, 16).ok();
        let addresses = hex(start)?..hex(end)?;
        let protection = fields.next()?;
        let name = fields.nth(3).unwrap_or_default();
        let is_anonymous = name.is_empty() || name == "[heap]" || name.starts_with("[anon:");
        Some(Self {
            addresses,
            is_ordinary: is_anonymous && protection.starts_with("rw") && protection.ends_with('p'),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    fn map(size_bytes: u64, fd: i32, flags: i32) -> u64 {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the system's choice.
        let got = unsafe { libc::mmap(std::ptr::null_mut(), size_bytes as usize, protection, flags, fd, 0) };
        mapped(got).unwrap();
        got.expose_provenance() as u64
    }

    fn word(addr: u64) -> &'static AtomicU64 {
        // SAFETY: in mappings that stay.
        unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(addr as usize)) }
    }

    #[test]
    fn pages_surround_what_is_asked_for() {
        assert_eq!(Pages::around(4095, 2), Some(Pages(0..8192)));
        assert_eq!(Pages::around(8192, 4096), Some(Pages(8192..12288)));
        assert_eq!(Pages::around(u64::MAX - 1, 1), None);
    }

    /// Threads count in both halves while pages change: no count is lost.
    #[test]
    fn no_write_is_lost() {
        const BYTES: u64 = 64 << 12;
        if Userfaultfd::open(Reach::UserMode).is_err() {
            return; // Memory that is registered stays out of kernels' reach here.
        }
        let memfd = memfd_create(c"shared", MFdFlags::MFD_CLOEXEC).unwrap();
        nix::unistd::ftruncate(&memfd, BYTES as i64).unwrap();
        let other = map(BYTES, memfd.as_raw_fd(), libc::MAP_SHARED);
        let start = map(BYTES, -1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let pages = Pages::around(start + 1, BYTES - 2).unwrap();
        let stops = AtomicBool::new(false);
        let count = |at: u64| {
            let mut counted = 0;
            while !stops.load(Ordering::Relaxed) {
                word(start + at).fetch_add(1, Ordering::Relaxed);
                counted += 1;
            }
            counted
        };
        std::thread::scope(|scope| {
            let counting = [0, BYTES / 2, BYTES - 8].map(|at| (at, scope.spawn(move || count(at))));
            // The threads end whatever comes of it.
            let changed: Result<(), Errno> = (0..20).try_for_each(|_| {
                pages.share(memfd.as_fd(), other)?;
                word(other + 8).fetch_add(1, Ordering::Relaxed);
                pages.make_private()
            });
            let (are_private, shared) = (pages.are_private(), pages.share(memfd.as_fd(), other));
            let are_shared = !pages.are_private();
            stops.store(true, Ordering::Relaxed);
            assert!(matches!((changed, shared), (Ok(()), Ok(()))) && are_private && are_shared);
            for (at, thread) in counting {
                let counted = thread.join().unwrap();
                assert_eq!(word(start + at).load(Ordering::Relaxed), counted);
            }
        });
        assert_eq!(word(start + 8).load(Ordering::Relaxed), 20);
    }

    #[test]
    fn files_and_stacks_are_not_ordinary() {
        let code = Pages::around(Pages::around as fn(u64, u64) -> Option<Pages> as usize as u64, 1).unwrap();
        assert!(!code.are_private());
        let first = "7ffc1000-7ffc3000 rw-p 00000000 00:00 0     [stack]";
        assert!(!Mapping::parse(first).unwrap().is_ordinary);
        let heap = "55d0-55e0 rw-p 00000000 00:00 0     [heap]";
        assert!(Mapping::parse(heap).unwrap().is_ordinary);
        let shared = "1000-2000 rw-s 00000000 00:01 7    /memfd:hetckpt-pinned (deleted)";
        assert!(!Mapping::parse(shared).unwrap().is_ordinary);
    }
}

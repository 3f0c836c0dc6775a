//! Faults of a process's pages, told to whoever holds the descriptor (Linux,
//! Documentation/admin-guide/mm/userfaultfd.rst). All calls mean the memory of the process that has made it, also in
//! another that has been handed the descriptor.
#![allow(
    unsafe_code,
    reason = "userfaultfd has no safe wrapper that knows shared memory's minor faults"
)]

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

// linux/userfaultfd.h
const API: u64 = 0xaa;
const USER_MODE_ONLY: i32 = 1;
/// `_IO(0xAA, 0x00)` of `/dev/userfaultfd`: flags.
const USERFAULTFD_IOC_NEW: libc::Ioctl = 0xaa00;
/// `_IOWR(0xAA, 0x3F, struct uffdio_api)`: API, features, ioctls.
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
/// `_IOWR(0xAA, 0x00, struct uffdio_register)`: start, length, mode, ioctls.
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
/// `_IOR(0xAA, 0x01, struct uffdio_range)`: start, length.
const UFFDIO_UNREGISTER: libc::Ioctl = 0x8010_aa01_u32 as libc::Ioctl;
/// `_IOR(0xAA, 0x02, struct uffdio_range)`: start, length.
const UFFDIO_WAKE: libc::Ioctl = 0x8010_aa02_u32 as libc::Ioctl;
/// `_IOWR(0xAA, 0x06, struct uffdio_writeprotect)`: start, length, mode.
const UFFDIO_WRITEPROTECT: libc::Ioctl = 0xc018_aa06_u32 as libc::Ioctl;
/// `_IOWR(0xAA, 0x07, struct uffdio_continue)`: start, length, mode, bytes done.
const UFFDIO_CONTINUE: libc::Ioctl = 0xc020_aa07_u32 as libc::Ioctl;
/// `_IOWR(0xAA, 0x08, struct uffdio_poison)`: start, length, mode, bytes done.
const UFFDIO_POISON: libc::Ioctl = 0xc020_aa08_u32 as libc::Ioctl;
const WRITEPROTECT_MODE_WP: u64 = 1;
const CONTINUE_MODE_WP: u64 = 2;
const EVENT_PAGEFAULT: u8 = 0x12;
const PAGEFAULT_FLAG_WRITE: u64 = 1;
const PAGEFAULT_FLAG_WP: u64 = 2;
/// Bytes of `struct uffd_msg`: event, then from byte 8 on flags and address.
const MESSAGE_BYTES: usize = 32;
const PAGE: u64 = 4096;

/// Threads that write to shared memory can be held (Linux 5.19).
pub const FEATURE_WP_SHMEM: u64 = 1 << 12;
/// Faults of pages that shared memory does not have (Linux 4.11), and that it has and the process does not (5.14).
pub const FEATURE_FAULTS_OF_SHMEM: u64 = 1 << 5 | 1 << 10;
/// Pages can be made such that who touches them gets SIGBUS (Linux 6.6).
pub const FEATURE_POISON: u64 = 1 << 14;

/// What it takes to bring pages of shared memory and take them away.
pub const FEATURES_TO_MOVE_PAGES: u64 = FEATURE_WP_SHMEM | FEATURE_FAULTS_OF_SHMEM | FEATURE_POISON;

/// Which faults are told. Whoever has one waits meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes(u64);

impl Modes {
    /// Writes to pages that [`Userfaultfd::write_protect`] was told of.
    pub const WRITES: Self = Self(2);
    /// As well of pages that the process has not mapped, whether the shared memory has them or not.
    pub const ALL: Self = Self(1 | 2 | 4);
}

/// Who can have a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The program, and system calls that it makes; for whoever is privileged.
    Everything,
    /// The program. A system call that would have a fault fails (EFAULT).
    UserMode,
}

/// A fault: somebody waits for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Address of the page.
    pub addr: u64,
    /// It is to be written to.
    pub is_write: bool,
    /// It is mapped, and write-protected.
    pub is_protected: bool,
}

/// The descriptor. When its last copy is closed, or the memory is unregistered, everybody goes on.
#[derive(Debug)]
pub struct Userfaultfd(File);

impl Userfaultfd {
    /// One of this process's memory, which does not block.
    ///
    /// # Errors
    /// What the system says: usually that it is not allowed.
    pub fn open(reach: Reach) -> Result<Self, Errno> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        if reach == Reach::Everything
            && let Ok(device) = File::options().read(true).write(true).open("/dev/userfaultfd")
        {
            // SAFETY: takes flags, no memory of ours.
            let fd = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW, flags) };
            if fd >= 0 {
                return owned(fd.into());
            }
        }
        let mode = if reach == Reach::UserMode { USER_MODE_ONLY } else { 0 };
        // SAFETY: takes no memory of ours.
        owned(unsafe { libc::syscall(libc::SYS_userfaultfd, flags | mode) })
    }

    /// One that another process has opened, and handed over.
    ///
    /// # Errors
    /// EINVAL if it is something else.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Errno> {
        let link = nix::fcntl::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()).as_str())?;
        match link == "anon_inode:[userfaultfd]" {
            true => Ok(Self(File::from(fd))),
            false => Err(Errno::EINVAL),
        }
    }

    /// Asks for features, of which there must be all. To be called first, and once.
    ///
    /// # Errors
    /// EINVAL if the system has not all of them.
    pub fn enable(&self, features: u64) -> Result<(), Errno> {
        self.control(UFFDIO_API, &mut [API, features, 0])
    }

    /// From now on faults in `range` (whole pages) are told.
    ///
    /// # Errors
    /// What the system says.
    pub fn register(&self, range: &Range<u64>, modes: Modes) -> Result<(), Errno> {
        self.control(UFFDIO_REGISTER, &mut [range.start, range.end - range.start, modes.0, 0])
    }

    /// From now on they are not, and whoever waits goes on.
    ///
    /// # Errors
    /// What the system says.
    pub fn unregister(&self, range: &Range<u64>) -> Result<(), Errno> {
        self.control(UFFDIO_UNREGISTER, &mut [range.start, range.end - range.start])
    }

    /// Lets writes wait, or no more.
    ///
    /// # Errors
    /// What the system says.
    pub fn write_protect(&self, range: &Range<u64>, protect: bool) -> Result<(), Errno> {
        let mode = if protect { WRITEPROTECT_MODE_WP } else { 0 };
        let again = || self.control(UFFDIO_WRITEPROTECT, &mut [range.start, range.end - range.start, mode]);
        until_done(again)
    }

    /// Whoever waits for pages of `range` tries again.
    ///
    /// # Errors
    /// What the system says.
    pub fn wake(&self, range: &Range<u64>) -> Result<(), Errno> {
        self.control(UFFDIO_WAKE, &mut [range.start, range.end - range.start])
    }

    /// Maps pages that the shared memory has into the process, and wakes who waits for them; those that are mapped
    /// already are left alone.
    ///
    /// # Errors
    /// What the system says.
    pub fn map(&self, range: &Range<u64>, write_protected: bool) -> Result<(), Errno> {
        let mode = if write_protected { CONTINUE_MODE_WP } else { 0 };
        self.for_pages(UFFDIO_CONTINUE, range, mode)
    }

    /// Whoever touches these pages, none of which is mapped, gets SIGBUS.
    ///
    /// # Errors
    /// What the system says.
    pub fn poison(&self, range: &Range<u64>) -> Result<(), Errno> {
        self.for_pages(UFFDIO_POISON, range, 0)
    }

    /// The next fault, if there is one. Others that are told of are none of ours.
    ///
    /// # Errors
    /// What the system says.
    pub fn next(&self) -> Result<Option<Fault>, Errno> {
        let mut message = [0; MESSAGE_BYTES];
        loop {
            match (&self.0)
                .read(&mut message)
                .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
            {
                Ok(MESSAGE_BYTES) if message[0] == EVENT_PAGEFAULT => {
                    let word = |at: usize| {
                        message[at..]
                            .first_chunk()
                            .map_or(0, |bytes| u64::from_le_bytes(*bytes))
                    };
                    return Ok(Some(Fault {
                        addr: word(16),
                        is_write: word(8) & (PAGEFAULT_FLAG_WRITE | PAGEFAULT_FLAG_WP) != 0,
                        is_protected: word(8) & PAGEFAULT_FLAG_WP != 0,
                    }));
                }
                Ok(0) | Err(Errno::EAGAIN) => return Ok(None),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Does `request` page by page where some are there already.
    fn for_pages(&self, request: libc::Ioctl, range: &Range<u64>, mode: u64) -> Result<(), Errno> {
        let (mut at, mut most) = (range.start, u64::MAX);
        while at < range.end {
            let mut words = [at, most.min(range.end - at), mode, 0];
            let result = self.control(request, &mut words);
            let done = words[3].cast_signed();
            at += u64::try_from(done).unwrap_or(0);
            match result {
                Ok(()) => {}
                Err(Errno::EEXIST) if done <= 0 => at += PAGE,
                // The program may have divided the mapping (`mprotect`, `mlock`), and one call is about one part.
                Err(Errno::ENOENT) if most != PAGE => most = PAGE,
                Err(Errno::EAGAIN | Errno::EEXIST) => {}
                Err(error) => return Err(error),
            }
        }
        self.wake(range)
    }

    fn control<const WORDS: usize>(&self, request: libc::Ioctl, words: &mut [u64; WORDS]) -> Result<(), Errno> {
        // SAFETY: each request takes as many words as its callers give.
        Errno::result(unsafe { libc::ioctl(self.0.as_raw_fd(), request, words.as_mut_ptr()) }).map(|_| ())
    }
}

impl AsFd for Userfaultfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn owned(fd: libc::c_long) -> Result<Userfaultfd, Errno> {
    let fd = i32::try_from(Errno::result(fd)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: just made, nobody else's.
    Ok(Userfaultfd(unsafe { File::from_raw_fd(fd) }))
}

/// Repeats what the system breaks off because mappings change meanwhile.
fn until_done(again: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    loop {
        match again() {
            Err(Errno::EAGAIN) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::{AtomicU64, Ordering};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    const BYTES: u64 = 2 * PAGE;

    fn map(memfd: &OwnedFd) -> u64 {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the system's choice.
        let got = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES as usize,
                protection,
                flags,
                memfd.as_raw_fd(),
                0,
            )
        };
        assert_ne!(got, libc::MAP_FAILED);
        got.expose_provenance() as u64
    }

    fn word(addr: u64) -> &'static AtomicU64 {
        // SAFETY: in mappings that stay.
        unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(addr as usize)) }
    }

    fn next(faults: &Userfaultfd) -> Fault {
        let mut awaited = [PollFd::new(faults.as_fd(), PollFlags::POLLIN)];
        poll(&mut awaited, PollTimeout::NONE).unwrap();
        faults.next().unwrap().unwrap()
    }

    #[test]
    fn whoever_touches_a_page_waits_for_it() {
        let Ok(faults) = Userfaultfd::open(Reach::UserMode) else {
            return;
        };
        if faults.enable(FEATURE_WP_SHMEM | FEATURE_FAULTS_OF_SHMEM).is_err() {
            return; // An older system.
        }
        let memfd = memfd_create(c"pages", MFdFlags::MFD_CLOEXEC).unwrap();
        nix::unistd::ftruncate(&memfd, BYTES as i64).unwrap();
        let (own, other) = (map(&memfd), map(&memfd));
        let (range, second) = (own..own + BYTES, own + PAGE..own + BYTES);
        faults.register(&range, Modes::ALL).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || word(own + PAGE).load(Ordering::Relaxed));
            let expected = Fault {
                addr: own + PAGE,
                is_write: false,
                is_protected: false,
            };
            assert_eq!(next(&faults), expected);
            word(other + PAGE).store(7, Ordering::Relaxed);
            faults.map(&second, true).unwrap();
            assert_eq!(reader.join().unwrap(), 7);

            let writer = scope.spawn(move || word(own + PAGE).fetch_add(1, Ordering::Relaxed));
            let fault = next(&faults);
            assert!(fault.is_write && fault.is_protected && fault.addr == own + PAGE);
            assert_eq!(word(other + PAGE).load(Ordering::Relaxed), 7);
            // The first page is mapped as well; the second is already.
            word(other).store(5, Ordering::Relaxed);
            faults.map(&range, false).unwrap();
            faults.write_protect(&range, false).unwrap();
            assert_eq!(writer.join().unwrap(), 7);
            assert_eq!(word(own).load(Ordering::Relaxed), 5);
        });
        faults.unregister(&range).unwrap();
        assert_eq!((word(own).load(Ordering::Relaxed), faults.next()), (5, Ok(None)));
    }

    #[test]
    fn nothing_else_is_taken_for_one() {
        let memfd = memfd_create(c"pages", MFdFlags::MFD_CLOEXEC).unwrap();
        assert_eq!(Userfaultfd::from_fd(memfd).err(), Some(Errno::EINVAL));
    }
}

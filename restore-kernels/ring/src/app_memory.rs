//! Memory that a program shares with its device server: memfds, taken out of the program by their numbers there.
//!
//! The program says which number is which, and may say anything. So what is taken keeps the access that the program has
//! to it (`pidfd_getfd`; what is opened again by its path in `/proc` has that of whoever opens it, which may be root),
//! and must be one of our memfds.
#![allow(unsafe_code, reason = "pidfds have no safe wrappers here")]

use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod, fstat};

use crate::error::RingError;

/// Name of the ring's memfd.
pub const RING_NAME: &str = "hetckpt-ring";
/// Name of the memfds of pinned memory.
pub const PINNED_NAME: &str = "hetckpt-pinned";

/// A memfd of a program's.
#[derive(Clone, Copy, Debug)]
pub struct AppMemory {
    /// The program.
    pub pid: u32,
    /// Number of the descriptor in it.
    pub fd: i32,
    /// The memfd's name.
    pub name: &'static str,
    /// Its size.
    pub size_bytes: u64,
}

impl AppMemory {
    /// The memfd, with the access that the program has to it. Needs the right to trace the program.
    ///
    /// # Errors
    /// [`RingError::NotAppMemory`] if it is something else, [`RingError::Os`].
    pub fn take(&self) -> Result<OwnedFd, RingError> {
        let fd = self.same_descriptor()?;
        self.check(fd.as_fd())?;
        Ok(fd)
    }

    /// The same for a device server, which runs as the program's user: it may reach the program's memfds even where the
    /// system lets nobody trace but their own children (Yama), or takes nobody's descriptors (containers), and is no
    /// more than the program then.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn take_as_its_user(&self) -> Result<OwnedFd, RingError> {
        let refused = |error: &RingError| match error {
            RingError::Os { source, .. } => matches!(source.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)),
            _ => false,
        };
        let fd = match self.same_descriptor() {
            Err(error) if refused(&error) && is_no_more_than(self.pid) => self.open_again()?,
            taken => taken?,
        };
        self.check(fd.as_fd())?;
        Ok(fd)
    }

    fn same_descriptor(&self) -> Result<OwnedFd, RingError> {
        take_descriptor(self.pid, self.fd)
    }

    fn open_again(&self) -> Result<OwnedFd, RingError> {
        let path = format!("/proc/{}/fd/{}", self.pid, self.fd);
        let os = |call| move |source| RingError::Os { call, source };
        // To open other things can have an effect, or take long.
        let link = std::fs::read_link(&path).map_err(os("readlink"))?;
        self.check_link(&link)?;
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY);
        options.open(&path).map(OwnedFd::from).map_err(os("open"))
    }

    fn check(&self, fd: BorrowedFd<'_>) -> Result<(), RingError> {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let link = link.map_err(|source| RingError::Os {
            call: "readlink",
            source,
        })?;
        self.check_link(&link)?;
        let stat = fstat(fd).map_err(|e| RingError::nix("fstat", e))?;
        // A file may have such a name too, but is not where memfds are.
        if stat.st_dev != device_of_memfds()? {
            return Err(self.refusal("it is no memfd"));
        }
        // SAFETY: plain descriptor call.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) } < 0 {
            return Err(self.refusal("it has no seals"));
        }
        if u64::try_from(stat.st_size) != Ok(self.size_bytes) {
            return Err(self.refusal("its size is another"));
        }
        Ok(())
    }

    fn check_link(&self, link: &Path) -> Result<(), RingError> {
        let is_named = link
            .to_str()
            .and_then(|link| link.strip_prefix("/memfd:")?.strip_prefix(self.name))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
        if is_named {
            Ok(())
        } else {
            Err(self.refusal("it is something else"))
        }
    }

    fn refusal(&self, reason: &'static str) -> RingError {
        let Self { pid, fd, name, .. } = *self;
        RingError::NotAppMemory { pid, fd, name, reason }
    }
}

/// Descriptor `fd` of process `pid`, whatever it is. Needs the right to trace the process.
///
/// # Errors
/// [`RingError::Os`].
pub fn take_descriptor(pid: u32, fd: RawFd) -> Result<OwnedFd, RingError> {
    let pidfd = open_pidfd(pid)?;
    // SAFETY: takes three integers, touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) };
    owned(fd, "pidfd_getfd")
}

/// True if this process can open nothing that process `pid`, whose server it is, could not: unless it is root's, and
/// the other is not.
fn is_no_more_than(pid: u32) -> bool {
    if !nix::unistd::geteuid().is_root() {
        return true;
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    users.is_some_and(|users| users.split_whitespace().all(|uid| uid == "0"))
}

/// Lets nobody but its owner open a memfd again by its path in `/proc`.
///
/// # Errors
/// [`RingError::Os`].
pub fn close_to_others(memfd: BorrowedFd<'_>) -> Result<(), RingError> {
    fchmod(memfd, Mode::S_IRUSR | Mode::S_IWUSR).map_err(|e| RingError::nix("fchmod", e))
}

/// A pidfd of process `pid`.
///
/// # Errors
/// [`RingError::Os`].
pub fn open_pidfd(pid: u32) -> Result<OwnedFd, RingError> {
    // SAFETY: takes two integers, touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    owned(fd, "pidfd_open")
}

fn owned(fd: libc::c_long, call: &'static str) -> Result<OwnedFd, RingError> {
    match RawFd::try_from(fd) {
        // SAFETY: the system has just given this descriptor to this process alone.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        Ok(_) => Err(RingError::last_os(call)),
        Err(_) => Err(RingError::nix(call, Errno::EBADF)),
    }
}

/// The device number of all memfds of the system.
///
/// # Errors
/// [`RingError::Os`].
pub fn device_of_memfds() -> Result<u64, RingError> {
    let own = memfd_create("hetckpt", MFdFlags::MFD_CLOEXEC).map_err(|e| RingError::nix("memfd_create", e))?;
    let stat = fstat(&own).map_err(|e| RingError::nix("fstat", e))?;
    Ok(stat.st_dev)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    fn of(fd: impl AsFd) -> AppMemory {
        AppMemory {
            pid: std::process::id(),
            fd: fd.as_fd().as_raw_fd(),
            name: PINNED_NAME,
            size_bytes: 4096,
        }
    }

    fn memfd(name: &str, size_bytes: i64) -> OwnedFd {
        let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC).unwrap();
        nix::unistd::ftruncate(&fd, size_bytes).unwrap();
        fd
    }

    #[test]
    fn only_our_memfds_are_taken() {
        let ours = memfd(PINNED_NAME, 4096);
        assert!(of(&ours).take().is_ok());
        assert!(of(&ours).take_as_its_user().is_ok());
        assert!(of(&ours).open_again().is_ok());

        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        for (fd, reason) in [
            (memfd("other", 4096), "it is something else"),
            (memfd(PINNED_NAME, 8192), "its size is another"),
            (file.into(), "it is something else"),
            (File::open("/dev/null").unwrap().into(), "it is something else"),
        ] {
            match of(&fd).take() {
                Err(RingError::NotAppMemory { reason: found, .. }) => assert_eq!(found, reason),
                other => panic!("{other:?}"),
            }
        }
        let other = memfd("other", 4096);
        assert!(matches!(of(&other).open_again(), Err(RingError::NotAppMemory { .. })));
    }

    #[test]
    fn what_the_program_may_only_read_stays_so() {
        let ours = memfd(PINNED_NAME, 4096);
        let read_only = File::open(format!("/proc/self/fd/{}", ours.as_raw_fd())).unwrap();
        let mut taken = File::from(of(&read_only).take().unwrap());
        assert_eq!(taken.write(b"x").unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}

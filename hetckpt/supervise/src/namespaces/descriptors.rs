//! Files that were opened in another mount namespace: CRIU does not find them again, so no program in a job's
//! namespaces may have them.

#![allow(unsafe_code, reason = "descriptors that are known by number only")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};

/// The path of the file that our descriptor `fd` is open on; `None` for pipes, sockets and the like.
fn path(fd: RawFd) -> Option<PathBuf> {
    let path = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    path.is_absolute().then_some(path)
}

/// True if our descriptor `fd`, which is written to, is a pipe that this user may open: CRIU does.
pub fn is_own_pipe(fd: RawFd) -> bool {
    let link = format!("/proc/self/fd/{fd}");
    let is_pipe = fs::read_link(&link).is_ok_and(|name| name.to_string_lossy().starts_with("pipe:"));
    is_pipe && OpenOptions::new().write(true).open(link).is_ok()
}

/// Opens again what `fd` is open on, in our own mount namespace, at the same place; files that are written to are
/// appended to. `None` if its path leads to it no longer.
pub fn reopen(fd: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    use std::os::fd::AsRawFd;
    let Some(path) = path(fd.as_raw_fd()) else {
        return Ok(None);
    };
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    let writes = flags & OFlag::O_ACCMODE != OFlag::O_RDONLY;
    let mut options = OpenOptions::new();
    options.read(flags & OFlag::O_ACCMODE != OFlag::O_WRONLY).append(writes);
    let Ok(mut file) = options.open(&path) else {
        return Ok(None);
    };
    let mut old = File::from(fd.try_clone_to_owned()?);
    let (was, is) = (old.metadata()?, file.metadata()?);
    if (was.dev(), was.ino()) != (is.dev(), is.ino()) {
        return Ok(None);
    }
    // Devices have no place.
    if let Ok(place) = old.stream_position() {
        let _ = file.seek(SeekFrom::Start(place));
    }
    Ok(Some(file.into()))
}

/// Makes this process, which is about to become a program, fit for CRIU: stdin is opened again, and files beyond stderr
/// are not handed on.
pub fn leave_behind() -> io::Result<()> {
    if let Some(stdin) = reopen(io::stdin().as_fd())? {
        nix::unistd::dup2_stdin(stdin)?;
    }
    keep_from_programs(|fd| path(fd).is_some())
}

/// Has programs that are run from now on not get those of our descriptors beyond stderr that are meant.
pub fn keep_from_programs(is_meant: impl Fn(RawFd) -> bool) -> io::Result<()> {
    let open = fs::read_dir("/proc/self/fd")?.flatten();
    let numbers: Vec<RawFd> = open
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for fd in numbers.into_iter().filter(|&fd| fd > 2 && is_meant(fd)) {
        // SAFETY: a descriptor that has been closed since is refused with EBADF; no other thread opens any meanwhile.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        // That of the folder just read is closed.
        let _ = fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn files_are_opened_again_at_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "abcdef").unwrap();
        let mut old = File::open(&path).unwrap();
        old.seek(SeekFrom::Start(2)).unwrap();
        let mut new = File::from(reopen(old.as_fd()).unwrap().unwrap());
        let mut text = String::new();
        new.read_to_string(&mut text).unwrap();
        assert_eq!(text, "cdef");
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        let mut new = File::from(reopen(writer.as_fd()).unwrap().unwrap());
        new.write_all(b"g").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "abcdefg");
        fs::remove_file(&path).unwrap();
        assert!(reopen(old.as_fd()).unwrap().is_none());
        fs::write(&path, "another").unwrap();
        assert!(reopen(old.as_fd()).unwrap().is_none());
        let (pipe, _) = nix::unistd::pipe().unwrap();
        assert!(reopen(pipe.as_fd()).unwrap().is_none());
    }
}

//! Whether a program's device server is still coming up, told from outside by what the program has open.
//!
//! A program must not be frozen for a dump in that time: it waits for the server's word on a pipe, then for its
//! `Welcome`, and both come from outside the dump. The pipe would be restored without its writer, the answer lost. So
//! command line and plugin let it finish first. What they go by, in the order in which it appears:
//!
//! 1. the server's log, which the shim has open from before the fork until the server listens or has refused;
//! 2. a server that listens while the program has no ring yet;
//! 3. a ring without the process id that the shim writes into it once it has been welcomed.
//!
//! The program's descriptors, rather than a list of processes, because they stand still when the program does, and
//! because a server cannot be recognised before it has executed its own file.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};

use crate::app_memory;
use crate::control_socket::ControlSocket;
use crate::layout;
use crate::runtime_dir::{log_path, socket_path};

/// Link target of a ring's descriptor in `/proc/PID/fd`, see [`crate::app_memory::RING_NAME`].
const RING_LINK: &str = "/memfd:hetckpt-ring";
/// What the kernel adds to the link target of a file that has been removed.
const REMOVED: &str = " (deleted)";
/// Milliseconds between two looks.
const INTERVAL_MS: u16 = 10;
/// Looks until a process that lost its server is sure to have kept its ring.
const LOOKS_FOR_RING: u32 = 30;

/// Why a program whose device server is starting cannot be dumped now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// It takes too long (the host's fault: a driver that is slow or stuck).
    #[error("the device server of process {pid} is still starting after {} s", waited.as_secs())]
    Late {
        /// The program.
        pid: u32,
        /// For how long it was waited for.
        waited: Duration,
    },
    /// The program would have to finish it, and cannot.
    #[error("process {pid} is stopped while it starts its device server")]
    Stopped {
        /// The program.
        pid: u32,
    },
    /// A signal ended the wait.
    #[error("interrupted while the device server of process {pid} was starting")]
    Interrupted {
        /// The program.
        pid: u32,
    },
}

/// True if `link`, read in `/proc/PID/fd`, is the link of a ring.
#[must_use]
pub fn is_ring_link(link: &Path) -> bool {
    link.to_string_lossy().starts_with(RING_LINK)
}

/// True while process `pid` is starting its device server. `dir` is the runtime directory. False if nothing can be
/// told: the process is gone, or not ours to look at.
#[must_use]
pub fn is_starting(dir: &Path, pid: u32) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let log = log_path(dir, pid);
    let mut has_log = false;
    for entry in entries.flatten() {
        // A descriptor may be closed while we look; the next one, or the next look, tells more.
        let fd = entry.path();
        let Ok(link) = fs::read_link(&fd) else { continue };
        if is_ring_link(&link) {
            match is_welcomed(&fd) {
                Ok(is_welcomed) => return !is_welcomed,
                Err(_) => continue,
            }
        }
        has_log |= match link.to_string_lossy().strip_suffix(REMOVED) {
            // By the server that the process had as another program, which took it for its own.
            Some(removed) => Path::new(removed) == log,
            None => link.file_name() == log.file_name() && (is_same_file(&fd, &log) || is_served(pid)),
        };
    }
    has_log || ControlSocket::connect(&socket_path(dir, pid)).is_ok()
}

/// Waits until process `pid` is not starting a device server, `deadline` at the latest; `limit` is for the message.
///
/// # Errors
/// [`StartError`].
pub fn wait_until_started(dir: &Path, pid: u32, limit: Duration, deadline: Instant) -> Result<(), StartError> {
    while is_starting(dir, pid) {
        if is_stopped(pid) {
            return Err(StartError::Stopped { pid });
        }
        if Instant::now() >= deadline {
            return Err(StartError::Late { pid, waited: limit });
        }
        // Unlike the library's sleep, this one ends with a signal, which is how CRIU says that its own time is up.
        if poll(&mut [], PollTimeout::from(INTERVAL_MS)).is_err() {
            return Err(StartError::Interrupted { pid });
        }
    }
    Ok(())
}

/// True if process `pid`, whose server has ended, has let go of it: it has ended, is ending, or has become another
/// program. False if it still has its ring, so that the server's end was no wish of its. Ring and connection are not
/// closed at the same time, so this looks for a moment.
#[must_use]
pub fn has_let_go(pid: u32) -> bool {
    for _ in 0..LOOKS_FOR_RING {
        if !has_ring(pid) {
            return true;
        }
        // A signal shortens the wait, which does no harm.
        let _ = poll(&mut [], PollTimeout::from(INTERVAL_MS));
    }
    false
}

/// True if process `pid` has the descriptor of a ring.
#[must_use]
pub fn has_ring(pid: u32) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|link| is_ring_link(&link))
}

/// True if process `pid` has a ring that it has made itself, and so a device server, dead or alive.
#[must_use]
pub fn owns_ring(pid: u32) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let is_ring = |path: &PathBuf| fs::read_link(path).is_ok_and(|link| is_ring_link(&link));
    let mut rings = entries.map(|entry| entry.path()).filter(is_ring);
    rings.any(|fd| welcomed(&fd).is_ok_and(|owner| owner == pid))
}

/// True if the program has written its process id into the ring behind descriptor `fd`.
fn is_welcomed(fd: &Path) -> io::Result<bool> {
    welcomed(fd).map(|pid| pid != 0)
}

/// The process id that the program has written into the ring behind descriptor `fd`; 0 if it has not yet.
fn welcomed(fd: &Path) -> io::Result<u32> {
    // What only has the name of a ring, a pipe say, is not to be opened.
    if fs::metadata(fd)?.dev() != app_memory::device_of_memfds().map_err(io::Error::other)? {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut word = [0; 4];
    match File::open(fd)?.read_exact_at(&mut word, layout::APP_PID as u64) {
        // Made just now, without its size yet.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        other => other.map(|()| u32::from_le_bytes(word)),
    }
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    identity(a).is_some_and(|a| Some(a) == identity(b))
}

/// True if some process was started as the device server of `pid`: tells the log of a server with another runtime
/// directory from a program's own file of that name.
fn is_served(pid: u32) -> bool {
    let (pid, ready) = (pid.to_string(), "--ready-fd");
    let serves = |line: Vec<u8>| {
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        words
            .windows(3)
            .any(|words| words == [&b"--pid"[..], pid.as_bytes(), ready.as_bytes()])
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .any(serves)
}

/// True if `pid` is stopped, by a signal or a tracer.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold anything.
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

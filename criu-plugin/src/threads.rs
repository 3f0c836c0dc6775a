//! Settings of threads that CRIU does not dump, and that mean the same wherever a program goes on: timer slack and I/O
//! priority.

#![allow(unsafe_code, reason = "the system calls for I/O priorities have no safe form")]

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::error::{PluginError, with_causes};
use crate::{host, log};

/// The list of a process among the images: a line for each thread that has not what all have at first, `TID SLACK
/// PRIORITY`.
fn list_of(pid: u32) -> Result<PathBuf, PluginError> {
    Ok(host::image_dir()?.join(format!("hetgpu-{pid}.threads")))
}

/// What a thread has that has set none, nanoseconds; 0 if Linux does not tell.
const USUAL_SLACK_NS: u64 = 50_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settings {
    tid: i32,
    slack_ns: u64,
    /// Class and level, as `ioprio_get` gives them.
    priority: i32,
}

/// Notes what the threads of process `pid` have.
pub fn note(pid: u32) -> Result<(), PluginError> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Ok(());
    };
    let mut list = String::new();
    for tid in threads
        .flatten()
        .filter_map(|thread| thread.file_name().to_str()?.parse().ok())
    {
        let settings = Settings {
            tid,
            slack_ns: slack_ns(tid),
            priority: priority(tid),
        };
        if settings.are_unusual() {
            list += &format!("{tid} {} {}\n", settings.slack_ns, settings.priority);
        }
    }
    let path = list_of(pid)?;
    let write = || {
        // Of an earlier dump; or somebody else's, who may have it open.
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ if list.is_empty() => return Ok(()),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?
            .write_all(list.as_bytes())
    };
    write().map_err(|source| PluginError::Write { path, source })
}

/// Gives the threads of process `pid` what they had. What cannot be set is remarked on in CRIU's log: the program runs
/// without, too.
pub fn set(pid: u32) {
    let list = match list_of(pid).map(fs::read_to_string) {
        Ok(Ok(list)) => list,
        Ok(Err(e)) if e.kind() == ErrorKind::NotFound => return,
        Ok(Err(e)) => return log::info(&format!("settings of the threads of process {pid}: {e}")),
        Err(error) => return log::info(&with_causes(&error)),
    };
    for settings in list.lines().filter_map(parsed) {
        let tid = settings.tid;
        // Of no other process: the images may say anything.
        if !PathBuf::from(format!("/proc/{pid}/task/{tid}")).exists() {
            continue;
        }
        if slack_ns(tid) != settings.slack_ns && settings.slack_ns != 0 {
            let written = fs::write(format!("/proc/{tid}/timerslack_ns"), settings.slack_ns.to_string());
            written.unwrap_or_else(|e| log::info(&format!("the timer slack of thread {tid} is not as it was: {e}")));
        }
        if priority(tid) != settings.priority && !set_priority(tid, settings.priority) {
            let why = std::io::Error::last_os_error();
            log::info(&format!("the I/O priority of thread {tid} is not as it was: {why}"));
        }
    }
}

impl Settings {
    fn are_unusual(self) -> bool {
        ![0, USUAL_SLACK_NS].contains(&self.slack_ns) || self.priority > 0
    }
}

/// The settings in a `line`, if it makes sense.
fn parsed(line: &str) -> Option<Settings> {
    let mut words = line.split(' ');
    Some(Settings {
        tid: words.next()?.parse().ok().filter(|&tid| tid > 0)?,
        slack_ns: words.next()?.parse().ok()?,
        priority: words.next()?.parse().ok()?,
    })
}

fn slack_ns(tid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{tid}/timerslack_ns")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

const IOPRIO_WHO_PROCESS: libc::c_int = 1;

/// That of a thread; 0 if it has set none.
fn priority(tid: i32) -> i32 {
    // SAFETY: the call takes two numbers and touches no memory.
    let found = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, tid) };
    i32::try_from(found).unwrap_or(0).max(0)
}

fn set_priority(tid: i32, priority: i32) -> bool {
    // SAFETY: the call takes three numbers and touches no memory.
    unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, tid, priority) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_make_no_sense_are_left_out() {
        let settings = Settings {
            tid: 8,
            slack_ns: 50_000,
            priority: 24576,
        };
        assert_eq!(parsed("8 50000 24576"), Some(settings));
        assert!(settings.are_unusual());
        for other in ["8 50000", "-1 50000 0", "x 1 1", ""] {
            assert_eq!(parsed(other), None, "{other}");
        }
    }

    #[test]
    fn a_thread_gets_what_it_had() {
        // SAFETY: the call has no arguments.
        let tid = unsafe { libc::gettid() };
        assert!(set_priority(tid, 2 << 13 | 7));
        assert_eq!(priority(tid), 2 << 13 | 7);
    }
}

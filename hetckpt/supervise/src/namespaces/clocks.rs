//! Clocks that count from the machine's start, which go on after a restore from where they were at the dump, as if the
//! program had slept. As root CRIU sees to that. Without root it leaves time namespaces alone (`--unprivileged`), so it
//! is done here.

use std::fs;
use std::io;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::time::{ClockId, clock_gettime};
use procfs::process::Process;

use hetckpt_archive::manifest::Clocks;

/// Of a process: the namespace that what it starts is in (time_namespaces(7)).
const OFFSETS: &str = "/proc/self/timens_offsets";

const SECOND_NS: i128 = 1_000_000_000;

/// A flag that nix does not name.
const fn new_time() -> CloneFlags {
    CloneFlags::from_bits_retain(libc::CLONE_NEWTIME)
}

/// What the clocks show to this process.
pub fn now() -> nix::Result<Clocks> {
    let read = |clock| clock_gettime(clock).map(|t| t.tv_sec() * SECOND_NS as i64 + t.tv_nsec());
    Ok(Clocks {
        monotonic_ns: read(ClockId::CLOCK_MONOTONIC)?,
        boottime_ns: read(ClockId::CLOCK_BOOTTIME)?,
    })
}

/// Why clocks are not as they should be (host).
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// No time namespace can be made.
    #[error("a time namespace: {}", .0.desc())]
    NoNamespace(Errno),
    /// A clock cannot be read.
    #[error("{}", .0.desc())]
    Read(Errno),
    /// The offsets cannot be read or written.
    #[error("{OFFSETS}: {0}")]
    Offsets(io::Error),
    /// A process's time namespace cannot be opened.
    #[error("its time namespace: {0}")]
    Open(io::Error),
    /// It cannot be joined.
    #[error("its time namespace: {}", .0.desc())]
    Join(Errno),
}

/// Has the clocks go on from `clocks` for whatever this process starts from now on.
pub fn go_on_from(clocks: &Clocks) -> Result<(), ClockError> {
    unshare(new_time()).map_err(ClockError::NoNamespace)?;
    let now = now().map_err(ClockError::Read)?;
    // The offsets of a namespace are to the machine's clocks, and begin as those of the one around it.
    let around = fs::read_to_string(OFFSETS).map_err(ClockError::Offsets)?;
    let ahead = |name: &str, then: i64, now: i64| {
        let offset = offset(&around, name) + i128::from(then) - i128::from(now);
        format!(
            "{name} {} {}\n",
            offset.div_euclid(SECOND_NS),
            offset.rem_euclid(SECOND_NS)
        )
    };
    let lines = ahead("monotonic", clocks.monotonic_ns, now.monotonic_ns)
        + &ahead("boottime", clocks.boottime_ns, now.boottime_ns);
    fs::write(OFFSETS, lines).map_err(ClockError::Offsets)
}

/// The offset of a clock in nanoseconds, of lines `name seconds nanoseconds`.
fn offset(lines: &str, name: &str) -> i128 {
    let mut words = lines.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = words.find(|words| words.first() == Some(&name));
    let number = |i: usize| found.as_ref()?.get(i)?.parse::<i128>().ok();
    number(1).unwrap_or(0) * SECOND_NS + number(2).unwrap_or(0)
}

/// Has this process and what it starts see the clocks as `process` sees them.
pub fn join(process: &Process) -> Result<(), ClockError> {
    let link = |process: &str| fs::read_link(format!("/proc/{process}/ns/time")).ok();
    let pid = process.pid.to_string();
    if link("self") == link(&pid) {
        return Ok(());
    }
    let file = fs::File::open(format!("/proc/{pid}/ns/time")).map_err(ClockError::Open)?;
    setns(file, new_time()).map_err(ClockError::Join)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_as_the_kernel_writes_them() {
        let lines = "monotonic           -3 999999999\nboottime           864000         7\n";
        assert_eq!(offset(lines, "monotonic"), -2_000_000_001);
        assert_eq!(offset(lines, "boottime"), 864_000_000_000_007);
        assert_eq!(offset("", "boottime"), 0);
    }
}

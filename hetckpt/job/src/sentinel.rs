//! A process beside a job that waits for SIGTERM and passes it on, where a scheduler signals that process only.

use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};

use crate::options::Sentinel;
use hetckpt_report::failure::Failure;
use hetckpt_ring::failure_code::Code;

/// Waits until SIGTERM comes, which is passed on, or until the job has ended.
///
/// # Errors
/// If signals cannot be taken.
pub fn stand_guard(options: &Sentinel) -> Result<(), Failure> {
    let cannot = |e: nix::Error| Failure::new(Code::StandIn, "cannot stand guard for a job").note(e.to_string());
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.thread_block().map_err(cannot)?;
    let come = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).map_err(cannot)?;
    // One that cannot be had has ended.
    let job = rustix::process::Pid::from_raw(options.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let Some(job) = job else { return Ok(()) };
    loop {
        let mut awaited = [
            PollFd::new(come.as_fd(), PollFlags::POLLIN),
            PollFd::new(job.as_fd(), PollFlags::POLLIN),
        ];
        if let Err(e) = poll(&mut awaited, PollTimeout::NONE)
            && e != nix::Error::EINTR
        {
            return Err(cannot(e));
        }
        if awaited[1].any().unwrap_or(true) {
            return Ok(());
        }
        if matches!(come.read_signal(), Ok(Some(_))) {
            // It may have ended just now.
            let _ = kill(Pid::from_raw(options.pid), options.signal);
        }
    }
}

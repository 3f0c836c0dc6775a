//! The signals of a job: those for it, and those for its program.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use hetckpt_report::failure::Failure;
use hetckpt_ring::failure_code::Code;
use hetckpt_supervise::signals::{PASSED_ON, SUSPENDING, ignore_in_children};

/// Signals that this process takes one by one: those that `hetckpt run` passes on. What is started here lets the same
/// ones through for the program, and no others may be held back from it.
pub struct Signals(SignalFd);

impl Signals {
    /// Takes them from now on. What is started from now on starts with `on` ignored: a scheduler may signal each
    /// process of a job, and the program is to be dumped, not ended. If it `is_suspendable`, so with those for that.
    pub fn take(on: &[Signal], is_suspendable: bool) -> Result<Self, Failure> {
        let cannot = |e: nix::Error| Failure::new(Code::StandIn, "cannot take signals").note(e.to_string());
        let mut all: SigSet = PASSED_ON.into_iter().collect();
        if is_suspendable {
            all.extend(SUSPENDING);
            ignore_in_children(&[Signal::SIGTSTP]).map_err(cannot)?;
        }
        all.thread_block().map_err(cannot)?;
        ignore_in_children(on).map_err(cannot)?;
        let taken = SignalFd::with_flags(&all, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC);
        taken.map(Self).map_err(cannot)
    }

    /// True if one has come that was not taken yet.
    pub fn have_come(&self) -> bool {
        let mut awaited = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut awaited, PollTimeout::ZERO), Ok(1..))
    }

    /// Those that have come, after a wait of at most `limit` for the first.
    pub fn wait(&self, limit: Duration) -> Vec<Signal> {
        let mut awaited = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        // Whatever it says, signals are looked for.
        let _ = poll(&mut awaited, PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX));
        let mut come = vec![];
        while let Ok(Some(info)) = self.0.read_signal() {
            let number = i32::try_from(info.ssi_signo).unwrap_or(0);
            come.extend(Signal::try_from(number).ok());
        }
        come
    }
}

//! Signals that are passed on to a program, or end the work that is being done.

use hetckpt_ring::failure_code::Code;
use std::io;
use std::os::fd::AsFd;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use procfs::process::Process;
use rustix::process::{PidfdFlags, pidfd_open};

use hetckpt_report::failure::Failure;

/// Signals that are passed on to the program.
pub const PASSED_ON: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGQUIT,
    Signal::SIGWINCH,
];

/// Signals that take a job's program off its device, and have it go on.
pub const SUSPENDING: [Signal; 2] = [Signal::SIGTSTP, Signal::SIGCONT];

/// Has what this process starts begin with `signals` ignored. This process itself can go on to take them.
#[allow(unsafe_code, reason = "how a signal is taken")]
pub fn ignore_in_children(signals: &[Signal]) -> nix::Result<()> {
    for &signal in signals {
        // SAFETY: no function of ours is called for it.
        unsafe { nix::sys::signal::signal(signal, SigHandler::SigIgn) }?;
    }
    Ok(())
}

/// The signals that this process ignores.
fn ignored() -> SigSet {
    let mask = Process::myself()
        .and_then(|process| process.status())
        .map_or(0, |status| status.sigign);
    Signal::iterator()
        .filter(|&signal| mask >> (signal as u32 - 1) & 1 == 1)
        .collect()
}

/// Holds back the signals that are to be passed on, so that none is lost before there is someone to pass it to.
pub struct HeldSignals(SigSet);

impl HeldSignals {
    /// Starts holding. Threads made from now on hold them too. A signal that this process was started with as ignored
    /// stays ignored, as is the custom.
    pub fn hold() -> Result<Self, Failure> {
        let ignored = ignored();
        let set: SigSet = PASSED_ON
            .into_iter()
            .filter(|&signal| !ignored.contains(signal))
            .collect();
        set.thread_block()
            .map_err(|e| Failure::new(Code::StandIn, "cannot hold signals back").note(e.to_string()))?;
        Ok(Self(set))
    }

    /// The first signal held back so far that is to end us, if there is one.
    pub fn ending(&self) -> Option<Signal> {
        let arrived = SignalFd::with_flags(&self.0, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).ok()?;
        while let Ok(Some(info)) = arrived.read_signal() {
            let signal = i32::try_from(info.ssi_signo)
                .ok()
                .and_then(|number| Signal::try_from(number).ok());
            // That a window has changed its size ends nobody.
            if signal.is_some() && signal != Some(Signal::SIGWINCH) {
                return signal;
            }
        }
        None
    }

    /// Passes every signal, held or to come, to `child` until it has ended or for `limit`, without a thread: whose
    /// children are to have other process ids can have none.
    pub fn pass_until_end(&self, child: &Child, limit: Option<Duration>) -> Result<(), Failure> {
        let cannot = |e: io::Error| Failure::new(Code::StandIn, "cannot wait for a process").note(e.to_string());
        let pid = i32::try_from(child.id()).unwrap_or(-1);
        let arrived = SignalFd::with_flags(&self.0, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .map_err(|e| cannot(e.into()))?;
        let process = rustix::process::Pid::from_child(child);
        let process = pidfd_open(process, PidfdFlags::empty()).map_err(|e| cannot(e.into()))?;
        let until = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let timeout = left.map(|left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
            let mut awaited = [
                PollFd::new(arrived.as_fd(), PollFlags::POLLIN),
                PollFd::new(process.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut awaited, timeout) {
                Ok(0) => return Ok(()),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(cannot(e.into())),
            }
            let has_ended = awaited[1].any().unwrap_or(true);
            while let Ok(Some(info)) = arrived.read_signal() {
                let number = i32::try_from(info.ssi_signo).unwrap_or(0);
                if let Ok(signal) = Signal::try_from(number) {
                    // It may have ended: then there is nobody to tell.
                    let _ = kill(Pid::from_raw(pid), signal);
                }
            }
            if has_ended {
                return Ok(());
            }
        }
    }

    /// Passes every signal, held or to come, to `pid`, from a thread that lives as long as we do.
    pub fn pass_to(self, pid: i32) {
        std::thread::spawn(move || {
            while let Ok(signal) = self.0.wait() {
                // The program may have ended: then there is nobody to tell.
                let _ = kill(Pid::from_raw(pid), signal);
            }
        });
    }
}

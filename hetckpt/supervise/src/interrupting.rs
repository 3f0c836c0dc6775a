//! Signals that are to end a work of several steps: what is begun must come to an end of its own.

use hetckpt_ring::failure_code::Code;
use std::cell::OnceCell;

use nix::sys::signal::Signal;

use hetckpt_archive::error::ArchiveError;
use hetckpt_report::archive_error;
use hetckpt_report::failure::Failure;

use crate::signals::HeldSignals;

/// The first signal that has come to end the work, whenever that was noticed.
pub struct Interrupting<'a> {
    held: &'a HeldSignals,
    signal: OnceCell<Signal>,
}

impl<'a> Interrupting<'a> {
    /// None has been noticed yet.
    pub fn new(held: &'a HeldSignals) -> Self {
        Self {
            held,
            signal: OnceCell::new(),
        }
    }

    /// True from when one has come.
    pub fn has_come(&self) -> bool {
        self.signal.get().is_some() || self.held.ending().is_some_and(|signal| self.signal.set(signal).is_ok())
    }

    /// The failure if a signal has ended `what`.
    pub fn interrupted(&self, what: &str) -> Option<Failure> {
        self.signal.get().map(|signal| interrupted(what, *signal))
    }

    /// The failure for an archive that was not written: `what` is what the signal has ended, if it was one.
    pub fn failure(&self, error: ArchiveError, what: &str) -> Failure {
        self.interrupted(what).unwrap_or_else(|| archive_error::failure(error))
    }
}

/// Fails if a signal has come that is to end `what`.
pub fn ensure_not_interrupted(held: &HeldSignals, what: &str) -> Result<(), Failure> {
    held.ending().map_or(Ok(()), |signal| Err(interrupted(what, signal)))
}

fn interrupted(what: &str, signal: Signal) -> Failure {
    Failure::new(Code::Interrupted, format!("{what} was interrupted by {signal}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use nix::sys::signal::raise;

    use super::*;

    #[test]
    fn a_signal_is_not_forgotten() {
        let held = HeldSignals::hold().unwrap();
        let interrupting = Interrupting::new(&held);
        assert!(!interrupting.has_come());
        raise(Signal::SIGUSR2).unwrap();
        assert!(interrupting.has_come());
        assert!(interrupting.has_come());
        assert!(
            interrupting
                .interrupted("the work")
                .unwrap()
                .message
                .contains("SIGUSR2")
        );
    }
}

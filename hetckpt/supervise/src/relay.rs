//! Copying a program's output to our own streams.

use hetckpt_ring::failure_code::Code;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hetckpt_report::failure::Failure;

use crate::namespaces::{self, descriptors};

/// Between two looks whether a relay has come to its end.
const RELAY_INTERVAL: Duration = Duration::from_millis(2);

/// Copies what comes out of a pipe to one of our own streams until its last writer is gone.
pub struct Relay(JoinHandle<()>);

/// What a [`Relay`] does to what it copies.
pub type Filter = fn(&mut [u8]);

impl Relay {
    /// Starts copying from `source`, through `filter`, to stdout, or to stderr.
    pub fn start(source: OwnedFd, to_stderr: bool, filter: Filter) -> Self {
        Self(std::thread::spawn(move || {
            let mut source = File::from(source);
            let mut bytes = vec![0; 1 << 16];
            while let Ok(n @ 1..) = source.read(&mut bytes) {
                filter(&mut bytes[..n]);
                let written = match to_stderr {
                    false => io::stdout().write_all(&bytes[..n]).and_then(|()| io::stdout().flush()),
                    true => io::stderr().write_all(&bytes[..n]),
                };
                if written.is_err() {
                    return; // nobody reads us any more: closing the pipe tells the program
                }
            }
        }))
    }

    /// Waits until all is copied.
    pub fn finish(self) {
        // A relay that panicked has nothing left to copy.
        let _ = self.0.join();
    }

    /// Waits until all is copied, but no longer than `limit`: whoever has the pipe may keep it.
    pub fn finish_within(self, limit: Duration) {
        let until = Instant::now() + limit;
        while !self.0.is_finished() && Instant::now() < until {
            std::thread::sleep(RELAY_INTERVAL);
        }
    }
}

/// True if a program in the namespaces that we are in could not keep our stream number `fd` when it is dumped and
/// restored: it is a file that was opened without, or anything else but a pipe of our user.
pub fn is_foreign(fd: usize) -> bool {
    namespaces::is_inside() && i32::try_from(fd).is_ok_and(|fd| !descriptors::is_own_pipe(fd))
}

/// A pipe for the program where it cannot have our own stream, a terminal say, with the relay that empties it; `None`
/// where the program can have our stream itself.
pub fn copied_pipe(is_needed: bool, to_stderr: bool) -> Result<Option<(OwnedFd, Relay)>, Failure> {
    is_needed.then(|| pipe_through(to_stderr, |_| {})).transpose()
}

/// A pipe, with the relay that empties it through `filter`.
pub fn pipe_through(to_stderr: bool, filter: Filter) -> Result<(OwnedFd, Relay), Failure> {
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)
        .map_err(|e| Failure::new(Code::StandIn, "cannot make a pipe").note(e.to_string()))?;
    Ok((write, Relay::start(read, to_stderr, filter)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_somebody_keeps_is_not_waited_for() {
        let (pipe, relay) = pipe_through(false, |_| {}).unwrap();
        let started = Instant::now();
        relay.finish_within(Duration::from_millis(20));
        assert!(started.elapsed() >= Duration::from_millis(20));
        drop(pipe);
    }
}

//! An archive's way into a stream, such as a pipe to another program.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use hetckpt_report::failure::Failure;
use hetckpt_supervise::interrupting::Interrupting;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::SFlag;

use crate::outgoing::ArchiveSink;

/// Once a pipe can be written to, so many bytes go into it without waiting (`PIPE_BUF`, pipe(7)).
const AT_ONCE: usize = 4096;
/// The same of a socket, of which the kernel says so when three quarters of its buffer are free: 208 KiB are the least
/// that Linux gives it by default. A file takes as much at any time.
const AT_ONCE_ELSEWHERE: usize = 64 << 10;
/// How long a signal may have to wait.
const SIGNALS_EVERY_MS: u16 = 100;

/// Takes bytes one after the other, until a signal ends the work: also while nobody reads them.
pub struct StreamSink<'a> {
    stream: BorrowedFd<'a>,
    at_once: usize,
    interrupting: &'a Interrupting<'a>,
}

impl<'a> StreamSink<'a> {
    /// Of what is open for writing.
    pub fn new(stream: BorrowedFd<'a>, interrupting: &'a Interrupting<'a>) -> Self {
        let kind =
            nix::sys::stat::fstat(stream).map_or(SFlag::empty(), |found| SFlag::from_bits_truncate(found.st_mode));
        let is_known = matches!(kind & SFlag::S_IFMT, SFlag::S_IFSOCK | SFlag::S_IFREG);
        let at_once = if is_known { AT_ONCE_ELSEWHERE } else { AT_ONCE };
        Self {
            stream,
            at_once,
            interrupting,
        }
    }
}

impl ArchiveSink for StreamSink<'_> {
    const DOING: &'static str = "writing";

    fn failure(&mut self) -> Option<Failure> {
        self.interrupting.interrupted("the dump")
    }
}

impl Write for StreamSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            if self.interrupting.has_come() {
                return Err(io::Error::other("a signal has come"));
            }
            let mut waiting = [PollFd::new(self.stream.as_fd(), PollFlags::POLLOUT)];
            match poll(&mut waiting, PollTimeout::from(SIGNALS_EVERY_MS)) {
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let piece = &bytes[..bytes.len().min(self.at_once)];
        Ok(nix::unistd::write(self.stream, piece)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

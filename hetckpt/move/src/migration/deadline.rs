//! A TCP stream on which everything must be over at some moment: a peer that sends a byte now and then gets no more
//! time for it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// For how long a peer that was refused is heard out.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// The stream, and the moment.
#[derive(Debug)]
pub struct Timed {
    stream: TcpStream,
    /// When what is under way must be over.
    pub limit: Instant,
}

impl Timed {
    /// A stream with its first limit.
    pub fn new(stream: TcpStream, limit: Instant) -> Self {
        // Messages are small, and answers to them are waited for.
        let _ = stream.set_nodelay(true);
        Self { stream, limit }
    }

    /// True if there is something to read.
    pub fn is_readable(&self) -> bool {
        let awaited = PollFd::new(self.stream.as_fd(), PollFlags::POLLIN);
        matches!(poll(&mut [awaited], PollTimeout::ZERO), Ok(1..))
    }

    /// Takes in what the peer still had to say, for a moment at most: a connection that is closed on unread bytes loses
    /// what was said last.
    pub fn drain(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        self.limit = self.limit.min(Instant::now() + DRAIN_LIMIT);
        while matches!(self.read(&mut [0; 4096]), Ok(1..)) {}
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        match self.limit.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

/// The system calls it "try again" when the time is up.
fn told(result: io::Result<usize>) -> io::Result<usize> {
    result.map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => e,
    })
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        told(self.stream.read(bytes))
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        told(self.stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

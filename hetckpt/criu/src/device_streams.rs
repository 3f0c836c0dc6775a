//! Device memory on its way past this node's disk: for each process a named pipe in the folder of images, under the
//! name of its memory file, which its device server writes to instead of a file
//! (`restore-kernels/server/src/memory_file.rs`).
//!
//! CRIU has the servers capture, one after the other, before it gives the first page. A server waits while nobody
//! reads. If we are killed it fails, so does the dump, and the program runs on.

use hetckpt_ring::failure_code::Code;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use hetckpt_report::failure::Failure;
use hetckpt_state::names::memory_file;

use crate::memory_sink::{Broken, MemorySink, MemorySource, Sizes, hand_over};

/// Bytes that a pipe holds if it may: most that users may ask for where nothing else is set.
const PIPE_BYTES: i32 = 1 << 20;

/// The pipes that nobody has written to yet.
#[derive(Default)]
pub struct DeviceStreams(Vec<DeviceStream>);

/// A pipe. When this is dropped its file is gone.
struct DeviceStream {
    name: String,
    path: PathBuf,
    pipe: File,
}

/// Who has something to say.
enum Next {
    Device(usize),
    Criu,
}

impl DeviceStreams {
    /// Pipes in the folder `images` for the processes `pids`.
    pub fn create(images: &Path, pids: impl IntoIterator<Item = u32>) -> Result<Self, Failure> {
        let streams = pids
            .into_iter()
            .map(|pid| DeviceStream::create(images, memory_file(pid)));
        streams.collect::<Result<_, _>>().map(Self)
    }

    /// Has `taker` take what the servers write, until something comes from `criu`.
    pub fn take_all(mut self, criu: BorrowedFd<'_>, taker: &mut dyn MemorySink) -> Result<Sizes, Broken> {
        let mut sizes = Sizes::new();
        while let Next::Device(at) = next(&self.0, criu).map_err(|e| broken(&e))? {
            let stream = self.0.swap_remove(at);
            let name = stream.name.clone();
            let mut taken = Taken {
                stream,
                criu,
                size_bytes: 0,
            };
            hand_over(taker, &name, &mut taken)?;
            sizes.insert(name, taken.size_bytes);
        }
        Ok(sizes)
    }
}

/// What comes from a pipe.
struct Taken<'a> {
    stream: DeviceStream,
    criu: BorrowedFd<'a>,
    size_bytes: u64,
}

impl MemorySource for Taken<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Broken> {
        let count = self.stream.read(buffer, self.criu)?;
        self.size_bytes += count as u64;
        Ok(count)
    }
}

/// Waits until a pipe has been opened by its server, or something comes from `criu`. What is in a pipe by then came
/// first.
fn next(streams: &[DeviceStream], criu: BorrowedFd<'_>) -> io::Result<Next> {
    let mut is_last_look = false;
    loop {
        let files = streams.iter().map(|stream| stream.pipe.as_fd()).chain([criu]);
        let mut awaited: Vec<PollFd<'_>> = files.map(|file| PollFd::new(file, PollFlags::POLLIN)).collect();
        let timeout = match is_last_look {
            true => PollTimeout::ZERO,
            false => PollTimeout::NONE,
        };
        match poll(&mut awaited, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let is_ready = |file: &PollFd<'_>| file.any() == Some(true);
        match awaited.iter().position(is_ready) {
            Some(at) if at < streams.len() => return Ok(Next::Device(at)),
            Some(_) if is_last_look => return Ok(Next::Criu),
            // The pipes were looked at before; they may have got something since.
            Some(_) => is_last_look = true,
            None => {}
        }
    }
}

impl DeviceStream {
    fn create(images: &Path, name: String) -> Result<Self, Failure> {
        let path = images.join(&name);
        let opened = mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)
            .map_err(io::Error::from)
            .and_then(|()| {
                let mut options = OpenOptions::new();
                options.read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&path)
            });
        let pipe = opened.map_err(|e| {
            Failure::new(Code::CannotWrite, format!("cannot make the pipe {}", path.display())).note(e.to_string())
        })?;
        // It works with less, too.
        let _ = fcntl(&pipe, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
        Ok(Self { name, path, pipe })
    }

    /// Waits for what the server writes; 0 when it has closed the pipe. Nothing comes from `criu` before that, but for
    /// its end.
    fn read(&mut self, buffer: &mut [u8], criu: BorrowedFd<'_>) -> Result<usize, Broken> {
        loop {
            match self.pipe.read(buffer) {
                Ok(count) => return Ok(count),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(e) => return Err(broken(&e)),
            }
            match next(std::slice::from_ref(self), criu) {
                Ok(Next::Device(_)) => {}
                Ok(Next::Criu) => return Err(Broken::Ended),
                Err(e) => return Err(broken(&e)),
            }
        }
    }
}

impl Drop for DeviceStream {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn broken(error: &io::Error) -> Broken {
    Broken::Failed(Failure::new(Code::StandIn, "cannot take device memory from its server").note(error.to_string()))
}

#[cfg(test)]
#[path = "device_streams_tests.rs"]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;

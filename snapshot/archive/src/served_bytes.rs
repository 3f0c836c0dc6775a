//! An archive's bytes on a socket, for device servers, where the archive is no file of this machine.
//!
//! A request is an offset and a size, 8 bytes each, little-endian. The answer is so many bytes. Where they cannot be
//! read the connection ends: why, whoever answers knows.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use parking_lot::{Condvar, Mutex};

use crate::backing::RemoteBytes;

/// Most bytes of one answer: whoever answers has so many in memory for each connection.
const MAX_ANSWER_BYTES: usize = 256 << 10;

/// Listens on the new socket `path`.
///
/// # Errors
/// What the system says.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let (_folder, path) = short(path)?;
    UnixListener::bind(path)
}

/// The same path, short enough for the address of a socket as long as the folder is open.
fn short(path: &Path) -> io::Result<(File, PathBuf)> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    let folder = File::open(folder)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
    Ok((folder, short))
}

/// Answers what is asked on `stream`, until the other end is gone. `progress` is told of each answer's bytes.
///
/// # Errors
/// What reading says; `InvalidData` for a request that is none.
pub fn answer(mut stream: &UnixStream, bytes: &dyn RemoteBytes, progress: &dyn Fn(u64)) -> io::Result<()> {
    let mut buffer = vec![];
    let mut request = [0; 16];
    // Whoever has read enough says nothing more.
    while stream.read_exact(&mut request).is_ok() {
        let (offset, size) = request.split_at(8);
        let [offset, size] = [offset, size].map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let size = usize::try_from(size).ok().filter(|&size| size <= MAX_ANSWER_BYTES);
        buffer.resize(size.ok_or(ErrorKind::InvalidData)?, 0);
        let mut filled = 0;
        while filled < buffer.len() {
            match bytes.read_at(&mut buffer[filled..], offset.saturating_add(filled as u64))? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        if stream.write_all(&buffer).is_err() {
            break;
        }
        progress(buffer.len() as u64);
    }
    Ok(())
}

/// The bytes that are served on a socket. Several threads may read at once, each over a connection of its own.
#[derive(Debug)]
pub struct ServedBytes {
    idle: Mutex<Vec<UnixStream>>,
    returned: Condvar,
    /// Connections that have not failed.
    usable: Mutex<usize>,
}

impl ServedBytes {
    /// Connects to `socket`, `count` times: later this process may not be allowed to.
    ///
    /// # Errors
    /// What the system says.
    pub fn connect(socket: &Path, count: usize) -> io::Result<Self> {
        let (_folder, socket) = short(socket)?;
        let connections = (0..count).map(|_| UnixStream::connect(&socket));
        let idle: Vec<UnixStream> = connections.collect::<Result<_, _>>()?;
        Ok(Self {
            usable: Mutex::new(idle.len()),
            idle: Mutex::new(idle),
            returned: Condvar::new(),
        })
    }

    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// `ConnectionAborted` if whoever serves cannot read them, or is gone.
    pub fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        let mut stream = self.take()?;
        let mut offset = offset;
        for piece in out.chunks_mut(MAX_ANSWER_BYTES) {
            let mut request = [0; 16];
            request[..8].copy_from_slice(&offset.to_le_bytes());
            request[8..].copy_from_slice(&(piece.len() as u64).to_le_bytes());
            let asked = stream.write_all(&request).and_then(|()| stream.read_exact(piece));
            if asked.is_err() {
                *self.usable.lock() -= 1;
                self.returned.notify_all();
                return Err(gone());
            }
            offset = offset.saturating_add(piece.len() as u64);
        }
        self.idle.lock().push(stream);
        self.returned.notify_one();
        Ok(())
    }

    fn take(&self) -> io::Result<UnixStream> {
        let mut idle = self.idle.lock();
        loop {
            if let Some(stream) = idle.pop() {
                return Ok(stream);
            }
            if *self.usable.lock() == 0 {
                return Err(gone());
            }
            self.returned.wait(&mut idle);
        }
    }
}

fn gone() -> io::Error {
    io::Error::new(
        ErrorKind::ConnectionAborted,
        "whoever restores could not read the archive, or has ended",
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Bytes of which some cannot be read.
    struct Pattern {
        size: u64,
        broken_from: u64,
    }

    impl RemoteBytes for Pattern {
        fn size_bytes(&self) -> u64 {
            self.size
        }

        fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
            if offset >= self.broken_from {
                return Err(ErrorKind::TimedOut.into());
            }
            let count = out.len().min(100_000).min(self.size.saturating_sub(offset) as usize);
            for (byte, at) in out[..count].iter_mut().zip(offset..) {
                *byte = (at % 251) as u8;
            }
            Ok(count)
        }
    }

    fn served<T>(bytes: &Pattern, connections: usize, read: impl FnOnce(&ServedBytes, &AtomicU64) -> T) -> T {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("f".repeat(200));
        std::fs::create_dir(&long).unwrap();
        let socket = long.join("socket");
        let listener = listen(&socket).unwrap();
        let done = AtomicU64::new(0);
        let client = ServedBytes::connect(&socket, connections).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..connections {
                let stream = listener.accept().unwrap().0;
                let done = &done;
                scope.spawn(move || {
                    let _ = answer(&stream, bytes, &|count| {
                        done.fetch_add(count, Ordering::Relaxed);
                    });
                });
            }
            let result = read(&client, &done);
            drop(client);
            result
        })
    }

    #[test]
    fn many_threads_read_over_few_connections() {
        let size = (9 << 20) + 5;
        let bytes = Pattern {
            size,
            broken_from: u64::MAX,
        };
        served(&bytes, 2, |client, done| {
            std::thread::scope(|scope| {
                for start in [0, 1, 4 << 20, size - 7] {
                    scope.spawn(move || {
                        let mut out = vec![0; usize::try_from(size - start).unwrap()];
                        client.read_exact_at(&mut out, start).unwrap();
                        assert!(out.iter().zip(start..).all(|(&byte, at)| byte == (at % 251) as u8));
                    });
                }
            });
            assert_eq!(done.load(Ordering::Relaxed), size + (size - 1) + (size - (4 << 20)) + 7);
        });
    }

    #[test]
    fn what_cannot_be_read_ends_all_connections_and_nobody_waits() {
        let bytes = Pattern {
            size: 1 << 20,
            broken_from: 1000,
        };
        served(&bytes, 2, |client, _| {
            let mut out = [0; 500];
            client.read_exact_at(&mut out, 0).unwrap();
            for _ in 0..3 {
                let error = client.read_exact_at(&mut out, 2000).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
            }
        });
    }
}

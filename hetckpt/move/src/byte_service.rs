//! Serving an archive that is no file of this machine to the device servers, which read device memory from it.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::socket::{self, Shutdown as ShutdownListener};
use parking_lot::Mutex;

use hetckpt_archive::backing::RemoteBytes;
use hetckpt_archive::served_bytes::{answer, listen};
use hetckpt_report::remark;

/// How long after a connection that could not be taken the next try comes.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);
/// Bytes between two lines of progress.
const STEP_BYTES: u64 = 64 << 20;

/// A socket with an archive's bytes, until this is dropped.
pub struct ByteService {
    listener: Arc<UnixListener>,
    accepting: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

struct Shared {
    bytes: Arc<dyn RemoteBytes>,
    /// Those that are being answered.
    streams: Mutex<Vec<Arc<UnixStream>>>,
    /// Why something could not be read.
    failure: Mutex<Option<io::Error>>,
    progress: Mutex<Progress>,
}

struct Progress {
    done: u64,
    told: u64,
    tell: Box<dyn FnMut(u64) + Send>,
}

impl Progress {
    fn add(&mut self, count: u64) {
        self.done += count;
        if self.done >= self.told + STEP_BYTES {
            self.told = self.done;
            (self.tell)(self.done);
        }
    }
}

impl ByteService {
    /// Serves `bytes` on the new socket `path`; about `expected_bytes` of them are asked for. Threads have the signal
    /// mask of the caller.
    pub fn start(path: &Path, bytes: Arc<dyn RemoteBytes>, expected_bytes: u64) -> io::Result<Self> {
        let listener = Arc::new(listen(path)?);
        let shared = Arc::new(Shared {
            bytes,
            streams: Mutex::default(),
            failure: Mutex::default(),
            progress: Mutex::new(Progress {
                done: 0,
                told: 0,
                tell: Box::new(remark::byte_progress("fetching device memory", expected_bytes)),
            }),
        });
        let (accepting_on, for_streams) = (Arc::clone(&listener), Arc::clone(&shared));
        let accepting = thread::spawn(move || {
            loop {
                match accepting_on.accept() {
                    Ok((stream, _)) => {
                        let (shared, stream) = (Arc::clone(&for_streams), Arc::new(stream));
                        shared.streams.lock().push(Arc::clone(&stream));
                        thread::spawn(move || shared.answer(&stream));
                    }
                    // What it says once it has been shut down.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                    // Too many descriptors, say: whoever waits is answered when there are fewer.
                    Err(_) => thread::sleep(ACCEPT_AGAIN),
                }
            }
        });
        Ok(Self {
            listener,
            accepting: Some(accepting),
            shared,
        })
    }

    /// Why something could not be read, if that has happened.
    pub fn failure(&self) -> Option<io::Error> {
        self.shared.failure.lock().take()
    }
}

impl Shared {
    fn answer(&self, stream: &Arc<UnixStream>) {
        let answered = answer(stream, &*self.bytes, &|count| self.progress.lock().add(count));
        if let Err(error) = answered {
            self.failure.lock().get_or_insert(error);
        }
        self.streams.lock().retain(|known| !Arc::ptr_eq(known, stream));
    }
}

impl Drop for ByteService {
    fn drop(&mut self) {
        // It makes `accept` end.
        let _ = socket::shutdown(self.listener.as_raw_fd(), ShutdownListener::Both);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for stream in self.shared.streams.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use hetckpt_archive::served_bytes::ServedBytes;

    use super::*;

    struct Half;

    impl RemoteBytes for Half {
        fn size_bytes(&self) -> u64 {
            20
        }

        fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
            match offset < 10 {
                true => {
                    out.fill(7);
                    Ok(out.len())
                }
                false => Err(io::Error::other("the second half is lost")),
            }
        }
    }

    #[test]
    fn why_something_could_not_be_read_is_kept_and_nobody_waits_for_a_service_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let service = ByteService::start(&path, Arc::new(Half), 20).unwrap();
        let client = ServedBytes::connect(&path, 2).unwrap();
        let mut out = [0; 5];
        client.read_exact_at(&mut out, 2).unwrap();
        assert_eq!(out, [7; 5]);
        assert!(service.failure().is_none());
        client.read_exact_at(&mut out, 12).unwrap_err();
        assert_eq!(service.failure().unwrap().to_string(), "the second half is lost");
        client.read_exact_at(&mut out, 2).unwrap();
        drop(service);
        client.read_exact_at(&mut out, 2).unwrap_err();
        client.read_exact_at(&mut out, 2).unwrap_err();
    }
}

//! Checkpoints that the job's program asks for itself, as `hetckpt run` or `restore` passes them on.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use hetckpt_ring::checkpoint::Answer;
use hetckpt_ring::control_socket::{ControlSocket, listen};
use hetckpt_ring::error::RingError;
use hetckpt_supervise::checkpoint_service::{file_of, receive};

/// Where they come in.
#[derive(Debug)]
pub struct Requests(UnixListener);

/// A request. Whoever asked waits until it is answered, or dropped.
#[derive(Debug)]
pub struct Asked {
    /// The file that is to take the archive; none: a snapshot in the job's store.
    pub file: Option<PathBuf>,
    socket: ControlSocket,
}

impl Requests {
    /// Listens at `path`.
    pub fn listen(path: &Path) -> Result<Self, RingError> {
        let listener = listen(path)?;
        let made = listener.set_nonblocking(true);
        made.map_err(|source| RingError::Os { call: "fcntl", source })?;
        Ok(Self(listener))
    }

    /// One that has come, if one has.
    pub fn next(&self) -> Option<Asked> {
        let (stream, _) = self.0.accept().ok()?;
        let (asked, socket) = receive(stream)?;
        Some(Asked {
            file: file_of(&asked),
            socket,
        })
    }
}

impl Asked {
    /// Answers it.
    pub fn answer(mut self, answer: &Answer) {
        // Whoever is gone needs none.
        let _ = self.socket.send(answer, &[]);
    }
}

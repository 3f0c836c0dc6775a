//! Files that a server leaves under its process id, and removes at its end: its socket and its log.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A listening socket's file.
pub struct SocketFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// The file that a socket has just been bound to.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        let identity = Self::identity(&path);
        Self { path, identity }
    }

    fn identity(path: &Path) -> Option<(u64, u64)> {
        let metadata = std::fs::symlink_metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    }

    /// The folder it is in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// Removes it, unless another server has replaced it by its own: process ids come back after a restore.
    pub fn remove(&self) {
        if self.identity.is_none() || Self::identity(&self.path) != self.identity {
            return;
        }
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "the socket's file cannot be removed");
        }
    }
}

/// Both.
pub struct OwnFiles {
    /// The socket's file.
    pub socket: SocketFile,
    /// The log.
    pub log: PathBuf,
}

impl OwnFiles {
    /// Removes the socket's file, and the log if it is empty.
    pub fn remove(&self) {
        // While the socket is there, nobody takes the log for a server of their own.
        remove_empty_log(&self.log);
        self.socket.remove();
    }
}

/// Removes the log at `path` if this process writes it and has written nothing: each process id would leave one.
pub fn remove_empty_log(path: &Path) {
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let written = std::io::stderr().as_fd().try_clone_to_owned().map(File::from);
    let Ok(written) = written.and_then(|file| file.metadata()) else {
        return;
    };
    let is_ours = std::fs::symlink_metadata(path).is_ok_and(|named| identity(named) == identity(written.clone()));
    if is_ours && written.len() == 0 {
        // Whatever stands against it, there is nobody to tell.
        let _ = std::fs::remove_file(path);
    }
}

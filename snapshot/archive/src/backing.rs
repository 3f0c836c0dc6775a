//! Where an archive's bytes are: in a file of this machine, or elsewhere.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// An archive's bytes where the archive is no file of this machine, as in an object store.
pub trait RemoteBytes: Send + Sync {
    /// How many there are.
    fn size_bytes(&self) -> u64;

    /// Reads from `offset` on, as many bytes as there are at once; none at the end.
    ///
    /// # Errors
    /// What whoever has them says.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;
}

/// An archive's bytes.
pub(crate) enum Backing {
    File(File),
    Remote(Arc<dyn RemoteBytes>),
}

impl Backing {
    /// What reading is called in errors.
    pub(crate) fn action(&self) -> &'static str {
        match self {
            Self::File(_) => "read",
            Self::Remote(_) => "fetch",
        }
    }

    /// As [`FileExt::read_at`].
    pub(crate) fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read_at(out, offset),
            Self::Remote(bytes) => bytes.read_at(out, offset),
        }
    }

    /// Fills `out` as far as there are bytes; how many those are.
    pub(crate) fn fill_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            match self.read_at(&mut out[filled..], offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

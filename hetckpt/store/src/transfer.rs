//! Archives on their way into a store and out of it: counted, hashed, encrypted and decrypted.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::Path;

use age::DecryptError;

use crate::encryption::{Encryption, KeyError};
use crate::error::{Damage, StoreError};
use crate::objects::PIECE;
use crate::record::Record;
use crate::watch::Watch;

/// What has become of an archive that was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Bytes stored.
    pub(crate) stored_bytes: u64,
    /// Bytes of the archive.
    pub(crate) archive_bytes: u64,
    /// BLAKE3 hash of what is stored, in hexadecimal.
    pub(crate) blake3: String,
}

/// Counts and hashes what passes.
struct Hashing<T> {
    inner: T,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<T> Hashing<T> {
    fn new(inner: T) -> Self {
        let hasher = blake3::Hasher::new();
        Self {
            inner,
            hasher,
            bytes: 0,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    fn hash(&self) -> String {
        self.hasher.finalize().to_hex().to_string()
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.take(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(out)?;
        self.take(&out[..read]);
        Ok(read)
    }
}

/// Writes `archive`, which errors call `path`, into `out`, encrypted if there is a key.
pub(crate) fn give(
    path: &Path,
    archive: &mut dyn Read,
    encryption: Option<&Encryption>,
    out: &mut dyn Write,
) -> Result<Stored, StoreError> {
    let cannot = |source| StoreError::Local {
        action: "store",
        path: path.to_owned(),
        source,
    };
    let mut hashed = Hashing::new(out);
    let archive_bytes = match encryption {
        None => copy(archive, &mut hashed).map_err(cannot)?,
        Some(encryption) => {
            let mut buffered = BufWriter::with_capacity(PIECE, &mut hashed);
            let mut encrypted = encryption.encrypt(&mut buffered)?.map_err(cannot)?;
            let bytes = copy(archive, &mut encrypted).map_err(cannot)?;
            encrypted.finish().map_err(cannot)?;
            buffered.flush().map_err(cannot)?;
            bytes
        }
    };
    Ok(Stored {
        stored_bytes: hashed.bytes,
        archive_bytes,
        blake3: hashed.hash(),
    })
}

fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<u64> {
    let mut piece = vec![0; PIECE];
    let mut bytes = 0;
    loop {
        let read = match from.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            return Ok(bytes);
        }
        to.write_all(&piece[..read])?;
        bytes += read as u64;
    }
}

/// Hashes what is stored without encryption.
pub(crate) fn hash(stored: &mut dyn Read, path: &Path) -> Result<Stored, StoreError> {
    let mut hashed = Hashing::new(stored);
    let bytes = copy(&mut hashed, &mut io::sink()).map_err(|source| StoreError::Local {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    Ok(Stored {
        stored_bytes: bytes,
        archive_bytes: bytes,
        blake3: hashed.hash(),
    })
}

/// Bytes that all cores read and hash together.
const HASHED_TOGETHER: usize = 64 << 20;

/// Hashes what is stored in a file, which errors call `path`, without encryption. All cores take part: the first
/// snapshot of a job may be as large as its device's memory.
pub(crate) fn hash_file(file: &File, path: &Path, watch: &mut Watch<'_>) -> Result<Stored, StoreError> {
    let cannot = |source| StoreError::Local {
        action: "read",
        path: path.to_owned(),
        source,
    };
    let size = file.metadata().map_err(cannot)?.len();
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; usize::try_from(size).map_or(HASHED_TOGETHER, |size| size.min(HASHED_TOGETHER))];
    let mut bytes = 0;
    while bytes < size {
        let count = usize::try_from(size - bytes).map_or(buffer.len(), |left| left.min(buffer.len()));
        let piece = &mut buffer[..count];
        read_together(file, piece, bytes).map_err(cannot)?;
        hasher.update_rayon(piece);
        bytes += count as u64;
        watch.done(bytes)?;
    }
    Ok(Stored {
        stored_bytes: bytes,
        archive_bytes: bytes,
        blake3: hasher.finalize().to_hex().to_string(),
    })
}

/// Fills `buffer` with what `file` has from `offset` on, on all cores.
fn read_together(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let share = buffer.len().div_ceil(cores).max(PIECE);
    std::thread::scope(|scope| {
        let shares = buffer.chunks_mut(share).zip((offset..).step_by(share));
        let readers: Vec<_> = shares
            .map(|(bytes, from)| scope.spawn(move || file.read_exact_at(bytes, from)))
            .collect();
        let lost = || io::Error::other("a thread that reads has died (a bug in hetckpt)");
        let mut results = readers
            .into_iter()
            .map(|reader| reader.join().unwrap_or_else(|_| Err(lost())));
        results.try_for_each(|result| result)
    })
}

/// Somewhere that an archive goes: its path, for errors, and what takes it.
pub(crate) struct Target<'a> {
    /// The path.
    pub(crate) path: &'a Path,
    /// What takes it.
    pub(crate) out: &'a mut (dyn Write + Send),
}

/// Reads what is `stored` and writes the archive to the target. All that `record` says holds then. Without a key an
/// encrypted archive is only hashed, if there is no target.
pub(crate) fn take(
    store: &str,
    record: &Record,
    encryption: Option<&Encryption>,
    stored: &mut dyn Read,
    target: Option<Target<'_>>,
) -> Result<(), StoreError> {
    let damaged = |source| StoreError::Damaged {
        store: store.to_owned(),
        name: record.name(),
        source,
    };
    let read_failed = |source| StoreError::Folder {
        action: "read",
        path: format!("{store}/{}", record.name()).into(),
        source,
    };
    let wants_archive = target.is_some();
    let mut nowhere = io::sink();
    let (path, out): (_, &mut dyn Write) = match target {
        Some(target) => (target.path.to_owned(), target.out),
        None => (Default::default(), &mut nowhere),
    };
    let mut failure = None;
    let mut out = Failing {
        out,
        failure: &mut failure,
    };
    let mut hashed = Hashing::new(stored);
    let key = encryption.filter(|encryption| encryption.has_identity());
    let came_out = match (record.encrypted, key) {
        (false, _) => copy(&mut hashed, &mut out).map_err(DecryptError::Io).map(Some),
        (true, None) if wants_archive => return Err(KeyError::Needed { name: record.name() }.into()),
        (true, None) => Ok(None),
        (true, Some(key)) => key
            .decrypt(BufReader::with_capacity(PIECE, &mut hashed))
            .and_then(|mut archive| copy(&mut archive, &mut out).map_err(DecryptError::Io))
            .map(Some),
    };
    if let Some(source) = failure {
        return Err(StoreError::Local {
            action: "write",
            path,
            source,
        });
    }
    // What is wrong with the bytes goes before what is wrong with what was made of them.
    copy(&mut hashed, &mut io::sink()).map_err(read_failed)?;
    if hashed.bytes != record.stored_bytes {
        return Err(damaged(Damage::Size {
            found: hashed.bytes,
            expected: record.stored_bytes,
        }));
    }
    if hashed.hash() != record.blake3 {
        return Err(damaged(Damage::Hash));
    }
    match came_out {
        Err(DecryptError::NoMatchingKeys) => Err(KeyError::Other { name: record.name() }.into()),
        Err(_) => Err(damaged(Damage::Encryption)),
        Ok(Some(found)) if found != record.archive_bytes => Err(damaged(Damage::ArchiveSize {
            found,
            expected: record.archive_bytes,
        })),
        Ok(_) => Ok(()),
    }
}

/// Keeps why nothing more can be written: that is not the stored bytes' fault.
struct Failing<'a> {
    out: &'a mut dyn Write,
    failure: &'a mut Option<io::Error>,
}

impl Write for Failing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes).inspect_err(|error| {
            let error = error
                .raw_os_error()
                .map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
            *self.failure = Some(error);
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::watch::unwatched;

    #[test]
    fn all_cores_find_the_hash_that_one_does() {
        let mut file = tempfile::tempfile().unwrap();
        // A hole, and some bytes behind it.
        for size in [0, 5, HASHED_TOGETHER + PIECE + 5] {
            file.set_len((size as u64).saturating_sub(5)).unwrap();
            file.write_all_at(b"12345", (size as u64).saturating_sub(5)).unwrap();
            file.set_len(size as u64).unwrap();
            let together = unwatched(|watch| hash_file(&file, Path::new("file"), watch)).unwrap();
            io::Seek::rewind(&mut file).unwrap();
            assert_eq!(together, hash(&mut file, Path::new("file")).unwrap());
            assert_eq!(together.stored_bytes, size as u64);
        }
        let stopped = hash_file(&file, Path::new("file"), &mut Watch::new(&mut |_| (), &|| true));
        assert!(matches!(stopped, Err(StoreError::Interrupted)));
    }
}

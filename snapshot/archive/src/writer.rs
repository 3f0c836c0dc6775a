//! Writes an archive of files: temporary name, members, manifest, fsync, verify, rename. [`write_to`] does without the names and
//! the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::ArchiveError;
use crate::manifest::{Encoding, Manifest};
use crate::stream::{ArchiveStream, Compression, Written, room_for};
use crate::verify;

/// A file that is to become a member.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name in the archive; `.zst` is added if it is compressed.
    pub name: String,
    /// Where its bytes are.
    pub path: PathBuf,
    /// How to store it.
    pub encoding: Encoding,
}

/// How to write an archive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Of members that are compressed here.
    pub compression: Compression,
    /// Folder for the temporary file, on the target's file system; `None`: the target's own.
    pub scratch: Option<&'a Path>,
}

/// Writes `sources` and `manifest` (its `members` are filled in) to `target` and returns the archive's size in bytes.
///
/// Until it is durable and verified, nothing is seen under `target`; an older file of that name is replaced at once.
/// `progress` is called with the number of raw bytes taken in so far.
///
/// # Errors
/// [`ArchiveError::Io`] and [`ArchiveError::BadMemberName`]; the temporary file is gone then.
pub fn write(
    target: &Path,
    manifest: Manifest,
    sources: &[Source],
    options: Options<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ArchiveError> {
    let folder = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let io_error = |action, source| ArchiveError::Io {
        action,
        path: target.to_owned(),
        source,
    };
    let mut temporary = tempfile::Builder::new()
        .prefix(".hetsnap-")
        .tempfile_in(options.scratch.unwrap_or(folder))
        .map_err(|e| io_error("create", e))?;

    let written = write_to(temporary.as_file_mut(), target, manifest, sources, options, progress)?;
    temporary.as_file().sync_all().map_err(|e| io_error("write", e))?;
    verify::verify(temporary.path())?;
    temporary.persist(target).map_err(|e| io_error("create", e.error))?;
    File::open(folder).and_then(|d| d.sync_all()).map_err(|e| {
        // What may be gone after a power failure is not to be taken for written.
        let _ = fs::remove_file(target);
        io_error("write", e)
    })?;
    Ok(written.size_bytes)
}

/// Writes `sources` and `manifest` (its `members` are filled in) to `sink`, whose first byte becomes the archive's. Nothing is
/// flushed to a disk or verified; `target` is what errors call the sink.
///
/// # Errors
/// [`ArchiveError::Io`] and [`ArchiveError::BadMemberName`].
pub fn write_to<S: Write + Seek>(
    sink: &mut S,
    target: &Path,
    manifest: Manifest,
    sources: &[Source],
    options: Options<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Written, ArchiveError> {
    let members = sources.iter().map(|source| (&*source.name, source.encoding));
    let room = room_for(&manifest, members).map_err(|source| ArchiveError::Io {
        action: "write",
        path: target.to_owned(),
        source,
    })?;
    let mut archive = ArchiveStream::new(sink, target, room, options.compression)?;
    for source in sources {
        add_file(&mut archive, source, progress)?;
    }
    archive.finish(manifest)
}

/// Adds a file to an archive.
///
/// # Errors
/// As [`ArchiveStream::add`], and if it cannot be opened.
pub fn add_file<S: Write + Seek>(
    archive: &mut ArchiveStream<S>,
    source: &Source,
    progress: &mut dyn FnMut(u64),
) -> Result<(), ArchiveError> {
    let input = open_source(&source.path).map_err(|e| ArchiveError::Io {
        action: "read",
        path: source.path.clone(),
        source: e,
    })?;
    archive.add(&source.name, source.encoding, input, progress)
}

/// Opens a file, but not where a link leads that stands in its place.
fn open_source(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

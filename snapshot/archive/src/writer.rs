//! Writes an archive of files: temporary name, header, members, index, fsync, check, rename. [`write_to`] does without
//! the names and the disk, [`NamelessArchive`] without the files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use tempfile::NamedTempFile;

use crate::error::ArchiveError;
use crate::file_id::FileId;
use crate::manifest::{Encoding, Manifest};
use crate::reader::Archive;
use crate::sections::Whole;
use crate::stream_writer::{ArchiveStream, Compression, Written};

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
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// Of members that are compressed here.
    pub compression: Compression,
    /// Folder for the temporary file, on the target's file system; `None`: the target's own.
    pub scratch: Option<&'a Path>,
    /// Asked again and again; once it says true, the work ends with [`ArchiveError::Interrupted`].
    pub is_interrupted: Option<&'a dyn Fn() -> bool>,
    /// What was written is read back from the disk, against its hashes, before the archive gets its name.
    pub reads_back: bool,
    /// File that is to hold the archive's [`FileId`], as text, before the archive gets its name.
    pub id_file: Option<&'a Path>,
}

impl Options<'_> {
    fn go_on(&self, target: &Path) -> Result<(), ArchiveError> {
        match self.is_interrupted.is_some_and(|is_interrupted| is_interrupted()) {
            true => Err(ArchiveError::Interrupted {
                path: target.to_owned(),
            }),
            false => Ok(()),
        }
    }
}

/// The name that an archive is to get.
#[derive(Clone, Debug)]
pub struct ArchiveName {
    path: PathBuf,
    /// The file that has it now.
    replaces: Option<FileId>,
}

impl ArchiveName {
    /// That of `path`. A file that has it now is to be replaced; one that gets it from now on is somebody else's.
    #[must_use]
    pub fn find(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            replaces: FileId::at(path),
        }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    }

    fn io_error(&self, action: &'static str, source: io::Error) -> ArchiveError {
        ArchiveError::Io {
            action,
            path: self.path.clone(),
            source,
        }
    }

    fn give_to(&self, file: NamedTempFile) -> Result<(), ArchiveError> {
        let taken = || ArchiveError::NameTaken {
            path: self.path.clone(),
        };
        let found = FileId::at(&self.path);
        let named = match found {
            Some(_) if found != self.replaces => return Err(taken()),
            Some(_) => file.persist(&self.path),
            // Not all file systems can do this; on others, a file that comes just now is replaced.
            None => match file.persist_noclobber(&self.path) {
                Err(e) if e.error.kind() != io::ErrorKind::AlreadyExists && FileId::at(&self.path).is_none() => {
                    e.file.persist(&self.path)
                }
                named => named,
            },
        };
        named.map(drop).map_err(|e| match e.error.kind() {
            io::ErrorKind::AlreadyExists => taken(),
            _ => ArchiveError::Io {
                action: "create",
                path: self.path.clone(),
                source: e.error,
            },
        })
    }
}

/// Writes `sources` and `manifest` (its `members` are filled in) to `target` and returns the archive's size in bytes.
///
/// Until it is durable and checked, nothing is seen under `target`; an older file of that name is replaced at once.
/// `progress` is called with the number of raw bytes taken in so far.
///
/// # Errors
/// [`ArchiveError::Io`], [`ArchiveError::BadMemberName`], [`ArchiveError::Interrupted`] and
/// [`ArchiveError::NameTaken`]; the temporary file is gone then.
pub fn write(
    name: &ArchiveName,
    manifest: Manifest,
    sources: &[Source],
    options: Options<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ArchiveError> {
    let mut archive = NamelessArchive::create(name, options.scratch)?;
    let written = write_to(archive.file(), name.path(), manifest, sources, options, progress)?;
    archive.publish(&written, options)?;
    Ok(written.size_bytes)
}

/// A file for an archive that is being written. It is gone when this is dropped without having got its name.
pub struct NamelessArchive<'a> {
    name: &'a ArchiveName,
    temporary: NamedTempFile,
}

impl<'a> NamelessArchive<'a> {
    /// Makes the file, in `scratch` on the target's file system, or beside the target.
    ///
    /// # Errors
    /// [`ArchiveError::Io`].
    pub fn create(name: &'a ArchiveName, scratch: Option<&Path>) -> Result<Self, ArchiveError> {
        let temporary = tempfile::Builder::new()
            .prefix(".hetsnap-")
            .tempfile_in(scratch.unwrap_or(name.folder()));
        let temporary = temporary.map_err(|e| name.io_error("create", e))?;
        Ok(Self { name, temporary })
    }

    /// What is to be written to.
    pub fn file(&mut self) -> &mut File {
        self.temporary.as_file_mut()
    }

    /// Makes what was `written` durable, checks it, and gives it its name.
    ///
    /// What the system has taken has the hashes in the index, as these were made of the same bytes in memory. So it is
    /// enough to heed what the system says of writing them, and to see that index and lengths are right. If `options`
    /// want it, the file is read back from the disk besides.
    ///
    /// # Errors
    /// [`ArchiveError::Io`], [`ArchiveError::Damaged`], [`ArchiveError::Interrupted`] and [`ArchiveError::NameTaken`].
    pub fn publish(self, written: &Written, options: Options<'_>) -> Result<(), ArchiveError> {
        let (name, file) = (self.name, self.temporary.as_file());
        let io_error = |action, source| name.io_error(action, source);
        file.sync_all().map_err(|e| io_error("write", e))?;
        options.go_on(name.path())?;
        let size = file.metadata().map_err(|e| io_error("read", e))?.len();
        if size != written.size_bytes {
            return Err(io_error("write", io::ErrorKind::WriteZero.into()));
        }
        if options.reads_back {
            // Else it would come from memory. Where that cannot be, it still is read.
            let _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
        let archive = Archive::open(self.temporary.path())?;
        if options.reads_back {
            archive.verify_stored()?;
        }
        if let Some(path) = options.id_file {
            let noted = FileId::of(file).and_then(|id| fs::write(path, id.to_string()));
            noted.map_err(|e| io_error("write", e))?;
        }
        options.go_on(name.path())?;
        name.give_to(self.temporary)?;
        File::open(name.folder()).and_then(|d| d.sync_all()).map_err(|e| {
            // What may be gone after a power failure is not to be taken for written.
            let _ = fs::remove_file(name.path());
            io_error("write", e)
        })
    }
}

/// Writes `sources` and `manifest` (its `members` are filled in) to `sink`. Nothing is flushed to a disk or verified;
/// `target` is what errors call the sink.
///
/// # Errors
/// [`ArchiveError::Io`], [`ArchiveError::BadMemberName`] and [`ArchiveError::Interrupted`].
pub fn write_to<S: Write>(
    sink: &mut S,
    target: &Path,
    manifest: Manifest,
    sources: &[Source],
    options: Options<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Written, ArchiveError> {
    let archive = ArchiveStream::new(sink, target, &manifest.header, options.compression);
    let mut archive = archive.map_err(|(error, _)| error)?;
    for source in sources {
        let added = open(source).and_then(|input| {
            let input = Interruptible { input, options };
            archive.add(&source.name, source.encoding, Whole(input), progress)
        });
        // What was interrupted ends with an error of reading.
        options.go_on(target)?;
        added?;
    }
    archive.finish(manifest.index)
}

/// Adds a file to an archive.
///
/// # Errors
/// As [`ArchiveStream::add`], and if it cannot be opened.
pub fn add_file<S: Write>(
    archive: &mut ArchiveStream<S>,
    source: &Source,
    progress: &mut dyn FnMut(u64),
) -> Result<(), ArchiveError> {
    archive.add(&source.name, source.encoding, Whole(open(source)?), progress)
}

/// Opens a file, but not where a link leads that stands in its place.
fn open(source: &Source) -> Result<File, ArchiveError> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&source.path);
    opened.map_err(|e| ArchiveError::Io {
        action: "read",
        path: source.path.clone(),
        source: e,
    })
}

/// A file that ends with an error when the work is interrupted.
struct Interruptible<'a> {
    input: File,
    options: Options<'a>,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.options.go_on(Path::new("")).map_err(io::Error::other)?;
        self.input.read(buf)
    }
}

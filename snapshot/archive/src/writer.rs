//! Writes an archive: temporary name, members, manifest, fsync, verify, rename.
//!
//! The manifest stands first but lists sizes and hashes that are known last. So room is left for it, members are streamed
//! behind, and it is written into its place at the end, padded with blanks. [`write_to`] does that part alone, to whatever takes
//! bytes at positions, such as another machine.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::ArchiveError;
use crate::limits::{MAX_MANIFEST_BYTES, MAX_MEMBERS};
use crate::manifest::{Encoding, MANIFEST_HASH_NAME, MANIFEST_NAME, Manifest, MemberEntry};
use crate::member::{HashingWriter, PIECE_BYTES, TAR_BLOCK, copy_in_pieces, is_safe_name, tar_header, tar_padding};
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
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// zstd level for members that are compressed here.
    pub level: i32,
    /// Threads for compression; 0: as many as there are processors.
    pub threads: u32,
    /// Folder for the temporary file, on the target's file system; `None`: the target's own.
    pub scratch: Option<&'a Path>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            level: 1,
            threads: 0,
            scratch: None,
        }
    }
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

/// What tells an archive from every other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its size.
    pub size_bytes: u64,
    /// BLAKE3 hash of its manifest, which has the hashes of all members, in hexadecimal.
    pub manifest_hash: String,
}

/// Writes `sources` and `manifest` (its `members` are filled in) to `sink`, whose first byte becomes the archive's. Nothing is
/// flushed to a disk or verified; `target` is what errors call the sink.
///
/// Almost all is written in order: only the header of each member, and the manifest, are put into their places afterwards.
///
/// # Errors
/// [`ArchiveError::Io`] and [`ArchiveError::BadMemberName`].
pub fn write_to<S: Write + Seek>(
    sink: &mut S,
    target: &Path,
    mut manifest: Manifest,
    sources: &[Source],
    options: Options<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Written, ArchiveError> {
    let write_error = |source| ArchiveError::Io {
        action: "write",
        path: target.to_owned(),
        source,
    };
    let reserved = manifest_room(&manifest, sources).map_err(write_error)?;
    manifest.members = write_members(sink, target, sources, reserved, options, progress)?;
    write_manifest(sink, &manifest, reserved).map_err(write_error)
}

/// Bytes to leave for the manifest: what it takes with every number at its longest.
fn manifest_room(manifest: &Manifest, sources: &[Source]) -> io::Result<u64> {
    let mut worst = manifest.clone();
    worst.members = sources
        .iter()
        .map(|source| MemberEntry {
            name: format!("{}.zst", source.name),
            stored_bytes: u64::MAX,
            raw_bytes: u64::MAX,
            encoding: source.encoding,
            blake3: "0".repeat(64),
        })
        .collect();
    Ok((serde_json::to_vec_pretty(&worst)?.len() as u64 + 1).next_multiple_of(TAR_BLOCK))
}

fn write_members<S: Write + Seek>(
    sink: &mut S,
    target: &Path,
    sources: &[Source],
    reserved: u64,
    options: Options<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<MemberEntry>, ArchiveError> {
    if sources.len() > MAX_MEMBERS || reserved > MAX_MANIFEST_BYTES {
        return Err(ArchiveError::BadMemberName {
            name: format!("number {}", sources.len()),
        });
    }
    let write_error = |source| ArchiveError::Io {
        action: "write",
        path: target.to_owned(),
        source,
    };
    let mut done = 0;
    let mut entries = Vec::with_capacity(sources.len());
    let mut position = TAR_BLOCK + reserved;
    for source in sources {
        let name = match source.encoding {
            Encoding::Zstd => format!("{}.zst", source.name),
            Encoding::Stored => source.name.clone(),
        };
        if !is_safe_name(&name) {
            return Err(ArchiveError::BadMemberName { name });
        }
        let input = open_source(&source.path).map_err(|e| ArchiveError::Io {
            action: "read",
            path: source.path.clone(),
            source: e,
        })?;
        sink.seek(SeekFrom::Start(position + TAR_BLOCK)).map_err(write_error)?;
        let mut out = HashingWriter::new(&mut *sink);
        let mut input = Counted {
            inner: input,
            count: 0,
            before: done,
            progress,
        };
        let copied = match source.encoding {
            Encoding::Stored => copy_in_pieces(&mut input, &mut out),
            Encoding::Zstd => compress(&mut input, &mut out, options),
        };
        copied.and_then(|_| out.flush()).map_err(write_error)?;
        let raw_bytes = input.count;
        done += raw_bytes;
        let (stored_bytes, hash) = out.finish();
        let header = tar_header(&name, stored_bytes).map_err(write_error)?;
        sink.write_all(&vec![0; tar_padding(stored_bytes)])
            .map_err(write_error)?;
        sink.seek(SeekFrom::Start(position)).map_err(write_error)?;
        sink.write_all(header.as_bytes()).map_err(write_error)?;
        position += TAR_BLOCK + stored_bytes.next_multiple_of(TAR_BLOCK);
        let blake3 = hash.to_hex().to_string();
        entries.push(MemberEntry {
            name,
            stored_bytes,
            raw_bytes,
            encoding: source.encoding,
            blake3,
        });
    }
    sink.seek(SeekFrom::Start(position)).map_err(write_error)?;
    Ok(entries)
}

/// Opens a file, but not where a link leads that stands in its place.
fn open_source(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

fn compress(input: &mut impl Read, out: &mut impl Write, options: Options) -> io::Result<u64> {
    let mut encoder = zstd::Encoder::new(io::BufWriter::with_capacity(PIECE_BYTES, out), options.level)?;
    encoder.include_checksum(true)?;
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1)),
        n => n,
    };
    if threads > 1 {
        encoder.multithread(threads)?;
    }
    let copied = copy_in_pieces(input, &mut encoder)?;
    encoder.finish()?.flush()?;
    Ok(copied)
}

/// Writes the manifest into its place and the manifest's hash and the end mark behind the last member, where the sink
/// stands.
fn write_manifest<S: Write + Seek>(sink: &mut S, manifest: &Manifest, reserved: u64) -> io::Result<Written> {
    let mut text = serde_json::to_vec_pretty(manifest)?;
    let room = usize::try_from(reserved).unwrap_or(0);
    if text.len() >= room {
        return Err(io::Error::other("the manifest outgrew its room"));
    }
    text.resize(room - 1, b' ');
    text.push(b'\n');
    let manifest_hash = blake3::hash(&text).to_hex().to_string();
    let hash = manifest_hash.clone() + "\n";

    sink.write_all(tar_header(MANIFEST_HASH_NAME, hash.len() as u64)?.as_bytes())?;
    sink.write_all(hash.as_bytes())?;
    sink.write_all(&vec![0; tar_padding(hash.len() as u64) + 2 * TAR_BLOCK as usize])?;
    let size_bytes = sink.stream_position()?;
    sink.seek(SeekFrom::Start(0))?;
    sink.write_all(tar_header(MANIFEST_NAME, reserved)?.as_bytes())?;
    sink.write_all(&text)?;
    sink.flush()?;
    Ok(Written {
        size_bytes,
        manifest_hash,
    })
}

/// Counts what is read and reports it.
struct Counted<'a, R> {
    inner: R,
    count: u64,
    before: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.count += n as u64;
        (self.progress)(self.before + self.count);
        Ok(n)
    }
}

//! Writes an archive to whatever takes bytes at positions, such as another machine, a member at a time.
//!
//! The manifest stands first but lists sizes and hashes that are known last. So room is left for it, members are
//! streamed behind, and it is written into its place at the end, padded with blanks. Members may come before it is
//! known how many there will be: then the room is an estimate, and must not be too small.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::ArchiveError;
use crate::limits::{MAX_MANIFEST_BYTES, MAX_MEMBERS};
use crate::manifest::{Encoding, MANIFEST_HASH_NAME, MANIFEST_NAME, Manifest, MemberEntry};
use crate::member::{HashingWriter, TAR_BLOCK, is_safe_name, tar_header, tar_padding};
use crate::pack::Packer;

/// Most bytes of the manifest that a member with a short name takes.
const MEMBER_BYTES: u64 = 512;

/// How members are compressed.
#[derive(Clone, Copy, Debug)]
pub struct Compression {
    /// zstd level.
    pub level: i32,
    /// Threads; 0: as many as there are processors.
    pub threads: u32,
}

impl Default for Compression {
    fn default() -> Self {
        Self { level: 1, threads: 0 }
    }
}

/// What tells an archive from every other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its size.
    pub size_bytes: u64,
    /// BLAKE3 hash of its manifest, which has the hashes of all members, in hexadecimal.
    pub manifest_hash: String,
}

/// An archive under way to `S`, whose first byte becomes the archive's. Nothing is flushed to a disk or verified.
///
/// Almost all is written in order: only the header of each member, and the manifest, are put into their places
/// afterwards.
pub struct ArchiveStream<S> {
    sink: S,
    /// What errors call the sink.
    target: PathBuf,
    packer: Packer,
    /// Room of the manifest.
    reserved: u64,
    /// Where the next member's header goes.
    position: u64,
    raw_bytes: u64,
    entries: Vec<MemberEntry>,
}

/// Bytes to leave for `manifest` if it is to have `members`: what it takes with every number at its longest.
///
/// # Errors
/// If it cannot be put into words.
pub fn room_for<'a>(manifest: &Manifest, members: impl Iterator<Item = (&'a str, Encoding)>) -> io::Result<u64> {
    let mut worst = manifest.clone();
    worst.members = members
        .map(|(name, encoding)| MemberEntry {
            name: format!("{name}.zst"),
            stored_bytes: u64::MAX,
            raw_bytes: u64::MAX,
            encoding,
            blake3: "0".repeat(64),
        })
        .collect();
    Ok((serde_json::to_vec_pretty(&worst)?.len() as u64 + 1).next_multiple_of(TAR_BLOCK))
}

/// Bytes to leave for a manifest that has `other_bytes` of other text and up to `num_members` members.
#[must_use]
pub fn estimated_room(other_bytes: u64, num_members: u64) -> u64 {
    let estimate = other_bytes.saturating_add(num_members.saturating_mul(MEMBER_BYTES));
    estimate
        .saturating_add(1)
        .min(MAX_MANIFEST_BYTES)
        .next_multiple_of(TAR_BLOCK)
}

impl<S: Write + Seek> ArchiveStream<S> {
    /// Nothing yet. `room` bytes are to be left for the manifest; `target` is what errors call the sink.
    ///
    /// # Errors
    /// [`ArchiveError::BadMemberName`] if that is more than a manifest may have.
    pub fn new(sink: S, target: &Path, room: u64, compression: Compression) -> Result<Self, ArchiveError> {
        if room > MAX_MANIFEST_BYTES {
            return Err(ArchiveError::BadMemberName {
                name: MANIFEST_NAME.to_owned(),
            });
        }
        Ok(Self {
            sink,
            target: target.to_owned(),
            packer: Packer::new(compression.level, compression.threads),
            reserved: room,
            position: TAR_BLOCK + room,
            raw_bytes: 0,
            entries: vec![],
        })
    }

    /// Where the bytes go.
    pub fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Bytes taken in so far.
    #[must_use]
    pub fn raw_bytes(&self) -> u64 {
        self.raw_bytes
    }

    /// Adds the member `name`, to which `.zst` is added if it is compressed: all that `input` gives. `progress` is
    /// called with the number of raw bytes taken in so far.
    ///
    /// # Errors
    /// [`ArchiveError::Io`], also if `input` fails, and [`ArchiveError::BadMemberName`].
    pub fn add(
        &mut self,
        name: &str,
        encoding: Encoding,
        input: impl Read,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), ArchiveError> {
        let name = match encoding {
            Encoding::Zstd => format!("{name}.zst"),
            Encoding::Stored => name.to_owned(),
        };
        if !is_safe_name(&name) || self.entries.len() >= MAX_MEMBERS {
            return Err(ArchiveError::BadMemberName { name });
        }
        let entry = self
            .stream(name, encoding, input, progress)
            .map_err(|e| self.write_error(e))?;
        self.position += TAR_BLOCK + entry.stored_bytes.next_multiple_of(TAR_BLOCK);
        self.raw_bytes += entry.raw_bytes;
        self.entries.push(entry);
        Ok(())
    }

    /// Writes a member behind the room of its header, then the header.
    fn stream(
        &mut self,
        name: String,
        encoding: Encoding,
        input: impl Read,
        progress: &mut dyn FnMut(u64),
    ) -> io::Result<MemberEntry> {
        self.sink.seek(SeekFrom::Start(self.position + TAR_BLOCK))?;
        let mut out = HashingWriter::new(&mut self.sink);
        let mut input = Counted {
            inner: input,
            count: 0,
            before: self.raw_bytes,
            progress,
        };
        match encoding {
            Encoding::Stored => self.packer.copy(&mut input, &mut out)?,
            Encoding::Zstd => self.packer.compress(&mut input, &mut out)?,
        }
        out.flush()?;
        let raw_bytes = input.count;
        let (stored_bytes, hash) = out.finish();
        let header = tar_header(&name, stored_bytes)?;
        self.sink.write_all(&vec![0; tar_padding(stored_bytes)])?;
        self.sink.seek(SeekFrom::Start(self.position))?;
        self.sink.write_all(header.as_bytes())?;
        Ok(MemberEntry {
            name,
            stored_bytes,
            raw_bytes,
            encoding,
            blake3: hash.to_hex().to_string(),
        })
    }

    /// Writes `manifest`, whose `members` become those that were added, into its place, and behind the last member its
    /// hash and the end mark.
    ///
    /// # Errors
    /// [`ArchiveError::Io`], also if it needs more room than was left for it.
    pub fn finish(&mut self, mut manifest: Manifest) -> Result<Written, ArchiveError> {
        manifest.members = std::mem::take(&mut self.entries);
        self.write_manifest(&manifest).map_err(|e| self.write_error(e))
    }

    fn write_manifest(&mut self, manifest: &Manifest) -> io::Result<Written> {
        let mut text = serde_json::to_vec_pretty(manifest)?;
        let room = usize::try_from(self.reserved).unwrap_or(0);
        if text.len() >= room {
            return Err(io::Error::other("the manifest outgrew its room"));
        }
        text.resize(room - 1, b' ');
        text.push(b'\n');
        let manifest_hash = blake3::hash(&text).to_hex().to_string();
        let hash = manifest_hash.clone() + "\n";

        let sink = &mut self.sink;
        sink.seek(SeekFrom::Start(self.position))?;
        sink.write_all(tar_header(MANIFEST_HASH_NAME, hash.len() as u64)?.as_bytes())?;
        sink.write_all(hash.as_bytes())?;
        sink.write_all(&vec![0; tar_padding(hash.len() as u64) + 2 * TAR_BLOCK as usize])?;
        let size_bytes = sink.stream_position()?;
        sink.seek(SeekFrom::Start(0))?;
        sink.write_all(tar_header(MANIFEST_NAME, self.reserved)?.as_bytes())?;
        sink.write_all(&text)?;
        sink.flush()?;
        Ok(Written {
            size_bytes,
            manifest_hash,
        })
    }

    fn write_error(&self, source: io::Error) -> ArchiveError {
        ArchiveError::Io {
            action: "write",
            path: self.target.clone(),
            source,
        }
    }
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

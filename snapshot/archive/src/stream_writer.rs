//! Writes an archive to whatever takes bytes, such as a file or another machine, from its first byte to its last.
//!
//! A tar header has the size of what follows. So members are cut into parts that are compressed before they are
//! written, and all that is known only at the end stands there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::ArchiveError;
use crate::known_parts::KnownParts;
use crate::limits::{MAX_MEMBERS, MAX_PARTS, MAX_TEXT_MEMBER_BYTES};
use crate::manifest::{
    Borrowed, Encoding, HEADER_NAME, Header, INDEX_NAME, Index, MemberEntry, Part, SEAL_NAME, part_name,
};
use crate::member::{HashingWriter, TAR_BLOCK, copy_in_pieces, is_safe_name, tar_header, tar_padding};
use crate::parallel::cores;
use crate::part_pipeline::{self, Kept};
use crate::seal::Seal;
use crate::sections::Sections;

/// Threads that compress unless it is said how many: what one thread reads keeps no more of them busy.
const MAX_THREADS: usize = 16;

/// How members are compressed.
#[derive(Clone, Copy, Debug)]
pub struct Compression {
    /// zstd level.
    pub level: i32,
    /// Threads; 0: as many as there are processors, 16 at most.
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
    /// BLAKE3 hash of its header and its index, which has the hashes of all members, in hexadecimal.
    pub manifest_hash: String,
    /// The files of the archives that it borrows from, as its index has them.
    pub parents: Vec<String>,
}

/// An archive under way to `S`. Nothing is flushed to a disk or verified.
pub struct ArchiveStream<S> {
    sink: S,
    /// What errors call the sink.
    target: PathBuf,
    kept: Kept,
    /// Threads that compress.
    threads: usize,
    /// The header's text.
    header: Vec<u8>,
    /// Where the next member's header goes.
    position: u64,
    raw_bytes: u64,
    num_parts: usize,
    entries: Vec<MemberEntry>,
    /// What need not be written again.
    known: Option<Arc<KnownParts>>,
}

impl<S: Write> ArchiveStream<S> {
    /// Writes the header. `target` is what errors call the sink.
    ///
    /// # Errors
    /// [`ArchiveError::Io`]; [`ArchiveError::BadMemberName`] if the header is longer than one may be. With it comes the
    /// sink, which may know more.
    pub fn new(sink: S, target: &Path, header: &Header, compression: Compression) -> Result<Self, (ArchiveError, S)> {
        let mut stream = Self {
            sink,
            target: target.to_owned(),
            kept: Kept::new(compression.level),
            threads: match compression.threads {
                0 => cores().min(MAX_THREADS),
                threads => threads as usize,
            },
            header: vec![],
            position: 0,
            raw_bytes: 0,
            num_parts: 0,
            entries: vec![],
            known: None,
        };
        match stream.write_header(header) {
            Ok(()) => Ok(stream),
            Err(error) => Err((error, stream.sink)),
        }
    }

    fn write_header(&mut self, header: &Header) -> Result<(), ArchiveError> {
        self.header = self.text(HEADER_NAME, header)?;
        let written = write_file(&mut self.sink, HEADER_NAME, &self.header);
        self.position = written.map_err(|e| self.write_error(e))?;
        Ok(())
    }

    /// Where the bytes go.
    pub fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Borrows compressed parts that are `known`, from now on.
    pub fn borrow_parts(&mut self, known: Arc<KnownParts>) {
        self.known = Some(known);
    }

    /// Adds the member `name`, to which `.zst` is added if it is compressed: all that `input` gives. Each of its
    /// sections begins a part. `progress` is called with the number of raw bytes taken in so far.
    ///
    /// # Errors
    /// [`ArchiveError::Io`], also if `input` fails, and [`ArchiveError::BadMemberName`], also if there are too many.
    pub fn add(
        &mut self,
        name: &str,
        encoding: Encoding,
        input: impl Sections,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), ArchiveError> {
        let name = match encoding {
            Encoding::Zstd => format!("{name}.zst"),
            Encoding::Stored => name.to_owned(),
        };
        if self.entries.len() >= MAX_MEMBERS {
            return Err(ArchiveError::BadMemberName { name });
        }
        let mut entry = MemberEntry {
            name,
            encoding,
            parts: vec![],
            borrowed: vec![],
        };
        let mut input = Counted {
            inner: input,
            count: self.raw_bytes,
            progress,
        };
        let Self {
            sink,
            target,
            kept,
            threads,
            position,
            num_parts,
            known,
            ..
        } = self;
        let known = known.as_deref().filter(|_| encoding == Encoding::Zstd);
        let failed = |source| write_error(target, source);
        part_pipeline::write_parts(&mut input, encoding, *threads, kept, failed, |packed| {
            let name = part_name(&entry.name, entry.parts.len());
            if !is_safe_name(&name) || *num_parts >= MAX_PARTS {
                return Err(ArchiveError::BadMemberName { name });
            }
            let stored = packed.stored();
            let (stored_bytes, raw_bytes) = (stored.len() as u64, packed.raw_bytes());
            *num_parts += 1;
            if let Some(place) = known.and_then(|known| known.find(packed.hash, stored_bytes, raw_bytes)) {
                entry.borrow(Borrowed {
                    after_parts: u32::try_from(entry.parts.len()).ok(),
                    ..place.clone()
                });
                return Ok(());
            }
            *position += write_file(sink, &name, stored).map_err(failed)?;
            entry.parts.push(Part {
                stored_bytes,
                raw_bytes,
                blake3: packed.hash,
            });
            Ok(())
        })?;
        self.raw_bytes = input.count;
        self.entries.push(entry);
        Ok(())
    }

    /// Lists a member that others have written to the sink's end ([`crate::part_appender`]), behind which it goes on,
    /// and what it has `borrowed` from the archives that the index will list.
    ///
    /// # Errors
    /// [`ArchiveError::BadMemberName`], also if there are too many.
    pub fn adopt(&mut self, name: &str, parts: Vec<Part>, borrowed: Vec<Borrowed>) -> Result<(), ArchiveError> {
        let is_safe = |number| is_safe_name(&part_name(name, number));
        let num_parts = self.num_parts + parts.len();
        if self.entries.len() >= MAX_MEMBERS || num_parts > MAX_PARTS || !is_safe(0) || !is_safe(parts.len()) {
            return Err(ArchiveError::BadMemberName { name: name.to_owned() });
        }
        for part in &parts {
            // A sum that no number holds is found out by the file's length.
            let size = part.stored_bytes.saturating_add(tar_padding(part.stored_bytes) as u64);
            self.position = self.position.saturating_add(TAR_BLOCK).saturating_add(size);
            self.raw_bytes = self.raw_bytes.saturating_add(part.raw_bytes);
        }
        self.num_parts = num_parts;
        self.entries.push(MemberEntry {
            name: name.to_owned(),
            encoding: Encoding::Stored,
            parts,
            borrowed,
        });
        Ok(())
    }

    /// Writes the next part of the member `entry`, which is not listed yet: the `size` bytes that `input` gives, as
    /// they are. Gives the part; its raw length is for the caller to say.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(crate) fn copy_part(
        &mut self,
        entry: &MemberEntry,
        size: u64,
        input: &mut impl Read,
    ) -> Result<Part, ArchiveError> {
        let name = part_name(&entry.name, entry.parts.len());
        if !is_safe_name(&name) || self.num_parts >= MAX_PARTS {
            return Err(ArchiveError::BadMemberName { name });
        }
        self.num_parts += 1;
        let copied = self.copy_file(&name, size, input);
        let (taken_bytes, hash) = copied.map_err(|e| self.write_error(e))?;
        self.position += taken_bytes;
        Ok(Part {
            stored_bytes: size,
            raw_bytes: size,
            blake3: hash,
        })
    }

    fn copy_file(&mut self, name: &str, size: u64, input: &mut impl Read) -> io::Result<(u64, blake3::Hash)> {
        let padding = tar_padding(size);
        self.sink.write_all(tar_header(name, size)?.as_bytes())?;
        let mut out = HashingWriter::new(&mut self.sink);
        copy_in_pieces(&mut input.take(size), &mut out)?;
        let (count, hash) = out.finish();
        if count != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.sink.write_all(&[0; TAR_BLOCK as usize][..padding])?;
        Ok((TAR_BLOCK + size + padding as u64, hash))
    }

    /// Has the member `name`, which has been added as it is and is empty, borrow all that it is to be.
    pub fn lend(&mut self, name: &str, borrowed: Vec<Borrowed>) {
        let is_it = |entry: &&mut MemberEntry| entry.name == name && entry.encoding == Encoding::Stored;
        let entry = self.entries.iter_mut().find(is_it);
        if let Some(entry) = entry.filter(|entry| entry.stored_bytes() == 0) {
            entry.borrowed = borrowed;
        }
    }

    /// Lists a member whose parts have been copied.
    ///
    /// # Errors
    /// [`ArchiveError::BadMemberName`] if there are too many.
    pub(crate) fn list(&mut self, entry: MemberEntry) -> Result<(), ArchiveError> {
        if self.entries.len() >= MAX_MEMBERS {
            return Err(ArchiveError::BadMemberName { name: entry.name });
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Bytes written so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Writes `index`, whose `members` become those that were added, and from whose `parents` those go that no member
    /// borrows from; then the seal and the end mark.
    ///
    /// # Errors
    /// [`ArchiveError::Io`]; [`ArchiveError::BadMemberName`] if the index is longer than one may be.
    pub fn finish(&mut self, mut index: Index) -> Result<Written, ArchiveError> {
        index.members = std::mem::take(&mut self.entries);
        drop_unused_parents(&mut index);
        let text = self.text(INDEX_NAME, &index)?;
        let seal = Seal::of(&self.header, &text, self.position);
        let end = self.write_end(&text, &seal).map_err(|e| self.write_error(e))?;
        let parents = index.parents.into_iter().map(|parent| parent.file);
        Ok(Written {
            parents: parents.collect(),
            ..end
        })
    }

    fn write_end(&mut self, index: &[u8], seal: &Seal) -> io::Result<Written> {
        let sink = &mut self.sink;
        self.position += write_file(sink, INDEX_NAME, index)?;
        self.position += write_file(sink, SEAL_NAME, seal.text().as_bytes())?;
        let end = [0; 2 * TAR_BLOCK as usize];
        sink.write_all(&end)?;
        sink.flush()?;
        Ok(Written {
            size_bytes: self.position + end.len() as u64,
            manifest_hash: seal.hash.to_hex().to_string(),
            parents: vec![],
        })
    }

    fn text(&self, name: &str, value: &impl serde::Serialize) -> Result<Vec<u8>, ArchiveError> {
        let mut text = serde_json::to_vec_pretty(value).map_err(|e| self.write_error(e.into()))?;
        text.push(b'\n');
        match text.len() as u64 <= MAX_TEXT_MEMBER_BYTES {
            true => Ok(text),
            false => Err(ArchiveError::BadMemberName { name: name.to_owned() }),
        }
    }

    fn write_error(&self, source: io::Error) -> ArchiveError {
        write_error(&self.target, source)
    }
}

fn write_error(target: &Path, source: io::Error) -> ArchiveError {
    ArchiveError::Io {
        action: "write",
        path: target.to_owned(),
        source,
    }
}

fn drop_unused_parents(index: &mut Index) {
    let borrowed = index.members.iter().flat_map(|member| &member.borrowed);
    let used: BTreeSet<u32> = borrowed.map(|borrowed| borrowed.parent).collect();
    let mut number = 0;
    index.parents.retain(|_| {
        number += 1;
        used.contains(&(number - 1))
    });
    let numbers: BTreeMap<u32, u32> = used.into_iter().zip(0..).collect();
    for borrowed in index.members.iter_mut().flat_map(|member| &mut member.borrowed) {
        borrowed.parent = numbers.get(&borrowed.parent).copied().unwrap_or(borrowed.parent);
    }
}

/// Writes a file of the tar; gives how many bytes it takes there.
fn write_file(sink: &mut impl Write, name: &str, bytes: &[u8]) -> io::Result<u64> {
    let size = bytes.len() as u64;
    let padding = tar_padding(size);
    sink.write_all(tar_header(name, size)?.as_bytes())?;
    sink.write_all(bytes)?;
    sink.write_all(&[0; TAR_BLOCK as usize][..padding])?;
    Ok(TAR_BLOCK + size + padding as u64)
}

/// Counts what is read and reports it.
struct Counted<'a, R> {
    inner: R,
    count: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl<R: Sections> Sections for Counted<'_, R> {
    fn next_section(&mut self) -> io::Result<bool> {
        self.inner.next_section()
    }
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.count += n as u64;
        (self.progress)(self.count);
        Ok(n)
    }
}

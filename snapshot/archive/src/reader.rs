//! Opens an archive and takes members out of it. Every byte is hostile.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::backing::{Backing, RemoteBytes};
use crate::carried::CarriedError;
use crate::error::ArchiveError;
use crate::file_id::FileId;
use crate::manifest::{
    CarriedFile, Encoding, HEADER_NAME, INDEX_NAME, Manifest, MemberEntry, Part, SEAL_NAME, part_name,
};
use crate::member::{HashingReader, HashingWriter, Pieces, TAR_BLOCK};
use crate::opening::Opening;
use crate::seal::{END_BYTES, SEAL_BYTES, Seal};
use crate::unpack::{UnpackError, Unpacker};

/// An archive whose header and index were read and checked; members are checked as they are taken out.
pub struct Archive {
    pub(crate) path: PathBuf,
    pub(crate) backing: Backing,
    manifest: Manifest,
    manifest_hash: String,
    /// Where each member's parts are, in the index's order.
    places: Vec<Vec<InFile>>,
    /// Each member's number, by its name.
    numbers: HashMap<String, usize>,
    /// Kept from one part to the next.
    unpackers: Mutex<Vec<Unpacker>>,
    /// Those that it borrows from, once they are needed.
    pub(crate) parents: OnceLock<Vec<Archive>>,
}

/// A member of an archive.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// What the index says of it.
    pub entry: &'a MemberEntry,
    pub(crate) places: &'a [InFile],
}

/// Where a part is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFile {
    /// Where its stored bytes begin in the archive's file.
    pub(crate) offset: u64,
    /// Where its bytes begin in the member.
    pub(crate) start: u64,
}

impl<'a> Member<'a> {
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u64, &'a Part)> {
        self.places.iter().map(|place| place.offset).zip(&self.entry.parts)
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Archive {
    /// Opens `path`, reads header and index, and checks their hash and that every part they list is there in full
    /// length.
    ///
    /// # Errors
    /// Every [`ArchiveError`] of reading.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let io = |source| ArchiveError::Io {
            action: "read",
            path: path.to_owned(),
            source,
        };
        let file = open_file(path)?;
        let found = file.metadata().map_err(io)?;
        let backing = Backing::File(file);
        if !found.is_file() {
            let reader = Opening {
                path,
                backing: &backing,
            };
            return Err(reader.not_an_archive("it is no regular file"));
        }
        Self::open_backing(path, backing, found.len())
    }

    /// As [`Archive::open`], for `bytes` that are no file of this machine; errors call them `name`. Only the index
    /// tells where the parts are, as each that is looked at takes a request. Their hashes are checked as ever.
    ///
    /// # Errors
    /// As [`Archive::open`].
    pub fn open_remote(name: &Path, bytes: Arc<dyn RemoteBytes>) -> Result<Self, ArchiveError> {
        let size = bytes.size_bytes();
        Self::open_backing(name, Backing::Remote(bytes), size)
    }

    fn open_backing(path: &Path, backing: Backing, size: u64) -> Result<Self, ArchiveError> {
        let reader = Opening {
            path,
            backing: &backing,
        };
        let looks_at_parts = matches!(backing, Backing::File(_));
        let (name, header_bytes) = reader.header(0)?.ok_or_else(|| reader.not_an_archive("it is empty"))?;
        match &*name {
            HEADER_NAME => {}
            // As version 1 began.
            "manifest.json" => return Err(reader.other_version(1)),
            _ => return Err(reader.not_an_archive("its first member is not its header")),
        }
        let header_text = reader.text_member(0, header_bytes, size)?;
        let header = reader.parse_header(&header_text)?;

        let seal_at = size.saturating_sub(END_BYTES);
        let seal = match reader.header(seal_at)? {
            Some((name, SEAL_BYTES)) if name == SEAL_NAME => reader.bytes(seal_at + TAR_BLOCK, TAR_BLOCK)?,
            _ => return Err(reader.damaged("it does not end as it ought to: it is cut off, or something follows it")),
        };
        let seal = Seal::parse(&seal).ok_or_else(|| reader.damaged("its end does not say where its index is"))?;
        let index_bytes = match reader.header(seal.index_at)? {
            Some((name, bytes)) if name == INDEX_NAME => bytes,
            _ => return Err(reader.damaged("its index is not where its end has it")),
        };
        if file_end(seal.index_at, index_bytes) != Some(seal_at) {
            return Err(reader.damaged("its index does not end where it ought to"));
        }
        let index_text = reader.text_member(seal.index_at, index_bytes, size)?;
        if Seal::of(&header_text, &index_text, seal.index_at) != seal {
            return Err(reader.damaged("header and index do not have their hash"));
        }
        let index = reader.parse_index(&index_text)?;

        let mut position = file_end(0, header_bytes).unwrap_or(u64::MAX);
        let mut places = Vec::with_capacity(index.members.len());
        for member in &index.members {
            let mut of_parts = Vec::with_capacity(member.parts.len());
            let mut start = 0u64;
            for (number, part) in member.parts.iter().enumerate() {
                let name = part_name(&member.name, number);
                let end = file_end(position, part.stored_bytes).filter(|&end| end <= seal.index_at);
                let end = end.ok_or_else(|| reader.damaged(&format!("it ends inside member `{name}`")))?;
                if looks_at_parts && reader.header(position)? != Some((name, part.stored_bytes)) {
                    let name = &member.name;
                    return Err(reader.damaged(&format!("member `{name}` is not where the index has it")));
                }
                of_parts.push(InFile {
                    offset: position + TAR_BLOCK,
                    start,
                });
                start = start.saturating_add(part.raw_bytes);
                position = end;
            }
            places.push(of_parts);
        }
        if position != seal.index_at {
            return Err(reader.damaged("there is more in it than its index lists"));
        }
        let numbers = (index.members.iter().map(|member| member.name.clone()))
            .zip(0..)
            .collect();
        Ok(Self {
            path: path.to_owned(),
            backing,
            manifest: Manifest { header, index },
            manifest_hash: seal.hash.to_hex().to_string(),
            places,
            numbers,
            unpackers: Mutex::default(),
            parents: OnceLock::new(),
        })
    }

    /// Header and index.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// BLAKE3 hash of header and index, in hexadecimal: whoever has that of the writer knows that no member is another.
    #[must_use]
    pub fn manifest_hash(&self) -> &str {
        &self.manifest_hash
    }

    /// The archive's file, or what errors call it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A member by its name.
    ///
    /// # Errors
    /// [`ArchiveError::NoSuchMember`].
    pub fn locate(&self, name: &str) -> Result<Member<'_>, ArchiveError> {
        let number = self.numbers.get(name).copied();
        number
            .and_then(|number| {
                let (entry, places) = (self.manifest.index.members.get(number)?, self.places.get(number)?);
                Some(Member { entry, places })
            })
            .ok_or_else(|| ArchiveError::NoSuchMember {
                path: self.path.clone(),
                name: name.to_owned(),
            })
    }

    /// True if `path` is this archive's file.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        match &self.backing {
            Backing::File(file) => FileId::of(file).is_ok_and(|id| FileId::at(path) == Some(id)),
            Backing::Remote(_) => false,
        }
    }

    /// Its bytes, if they are no file of this machine.
    #[must_use]
    pub fn remote(&self) -> Option<&Arc<dyn RemoteBytes>> {
        match &self.backing {
            Backing::File(_) => None,
            Backing::Remote(bytes) => Some(bytes),
        }
    }

    /// Members in the order stored.
    pub fn members(&self) -> impl Iterator<Item = Member<'_>> {
        let entries = self.manifest.index.members.iter();
        let members = entries.zip(&self.places);
        members.map(|(entry, places)| Member { entry, places })
    }

    /// Writes a member's raw bytes to `out`, checking hashes and lengths.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`]; [`ArchiveError::Io`], of the archive that cannot be read or of `out`, which goes by
    /// the member's name then. `out` then holds an unusable part.
    pub fn extract(&self, member: Member<'_>, out: &mut impl Write) -> Result<(), ArchiveError> {
        self.unpack(member, out, Path::new(member.entry.raw_name()))
    }

    /// As [`Archive::extract`]; `target` is what errors call `out`.
    fn unpack(&self, member: Member<'_>, out: &mut impl Write, target: &Path) -> Result<(), ArchiveError> {
        let stretches = self.stretches(member)?;
        stretches.iter().try_for_each(|stretch| stretch.unpack(out, target))
    }

    pub(crate) fn unpack_part(
        &self,
        member: &MemberEntry,
        offset: u64,
        part: &Part,
        out: &mut impl Write,
        target: &Path,
    ) -> Result<(), ArchiveError> {
        let mut input = HashingReader::new(self.stored(offset, part));
        let unpacked = self.with_unpacker(|unpacker| match member.encoding {
            Encoding::Stored => unpacker.copy(&mut input, out, part.raw_bytes),
            Encoding::Zstd => unpacker.decompress(&mut input, out, part.raw_bytes),
        })?;
        let bad_content = match unpacked {
            Ok(size) if size == part.raw_bytes => None,
            Ok(_) => Some("has another length than the index says".to_owned()),
            Err(UnpackError::Content(what)) => Some(what),
            Err(UnpackError::Read(source)) => return Err(self.read_error(source)),
            Err(UnpackError::Write(source)) => {
                let (action, path) = ("write", target.to_owned());
                return Err(ArchiveError::Io { action, path, source });
            }
        };
        // A wrong hash is the better explanation of a part that does not decompress.
        io::copy(&mut input, &mut io::sink()).map_err(|e| self.read_error(e))?;
        if input.finish().1 != part.blake3 {
            return Err(self.damaged(member, "does not have its hash"));
        }
        bad_content.map_or(Ok(()), |what| Err(self.damaged(member, &what)))
    }

    pub(crate) fn damaged(&self, member: &MemberEntry, what: &str) -> ArchiveError {
        ArchiveError::Damaged {
            path: self.path.clone(),
            what: format!("member `{}` {what}", member.name),
        }
    }

    /// A part's bytes as they are stored.
    pub(crate) fn stored(&self, offset: u64, part: &Part) -> Stored<'_> {
        Stored {
            backing: &self.backing,
            position: offset,
            left: part.stored_bytes,
        }
    }

    /// Makes sure that every member is what a restore takes: it has its hashes, and unpacked its length; so have the
    /// carried files.
    ///
    /// # Errors
    /// As [`Archive::extract`], for the first that is not.
    pub fn verify(&self) -> Result<(), ArchiveError> {
        for member in self.members() {
            self.extract(member, &mut io::sink())?;
        }
        for file in &self.manifest.index.files {
            self.unpack_carried(file, &mut io::sink(), &self.path)?;
        }
        Ok(())
    }

    /// Writes the content of `file` to `target`, which is new; nothing stays there if it fails.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`], also if it has not its hash; [`ArchiveError::Io`].
    pub fn extract_carried(&self, file: &CarriedFile, target: &Path) -> Result<(), ArchiveError> {
        let out = File::create_new(target).map_err(|source| ArchiveError::Io {
            action: "create",
            path: target.to_owned(),
            source,
        })?;
        let result = self.unpack_carried(file, out, target);
        if result.is_err() {
            // The first failure is the one to tell.
            let _ = std::fs::remove_file(target);
        }
        result
    }

    fn unpack_carried(&self, file: &CarriedFile, out: impl Write, target: &Path) -> Result<(), ArchiveError> {
        let member = self.locate(&file.member)?;
        let stretches = self.stretches(member)?;
        let mut stored = Chain(
            stretches
                .iter()
                .map(|stretch| stretch.checked())
                .collect::<Result<_, _>>()?,
        );
        let mut out = HashingWriter::new(out);
        let unpacked = self.with_unpacker(|unpacker| unpacker.decompress(&mut stored, &mut out, file.size_bytes))?;
        let (size, hash) = out.finish();
        match unpacked {
            Ok(_) if size == file.size_bytes && hash.to_hex().as_str() == file.blake3 => Ok(()),
            Err(UnpackError::Read(source)) => Err(self.read_error(source)),
            Err(UnpackError::Write(source)) => Err(ArchiveError::Io {
                action: "write",
                path: target.to_owned(),
                source,
            }),
            _ => Err(ArchiveError::Damaged {
                path: self.path.clone(),
                what: CarriedError::Damaged {
                    path: file.path.clone(),
                }
                .to_string(),
            }),
        }
    }

    fn with_unpacker<T>(&self, work: impl FnOnce(&mut Unpacker) -> T) -> Result<T, ArchiveError> {
        let kept = self.unpackers.lock().pop();
        let mut unpacker = match kept {
            Some(unpacker) => unpacker,
            None => Unpacker::new().map_err(|e| self.read_error(e))?,
        };
        let result = work(&mut unpacker);
        self.unpackers.lock().push(unpacker);
        Ok(result)
    }

    fn read_error(&self, source: io::Error) -> ArchiveError {
        ArchiveError::Io {
            action: self.backing.action(),
            path: self.path.clone(),
            source,
        }
    }

    /// Makes sure that every member has its hash: enough where what was stored has just been written.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`] for the first that has not, [`ArchiveError::Io`].
    pub fn verify_stored(&self) -> Result<(), ArchiveError> {
        let mut pieces = Pieces::default();
        for member in self.members() {
            for (offset, part) in member.parts() {
                let mut stored = HashingReader::new(self.stored(offset, part));
                while !pieces.fill(&mut stored).map_err(|e| self.read_error(e))?.is_empty() {}
                if stored.finish().1 != part.blake3 {
                    return Err(self.damaged(member.entry, "does not have its hash"));
                }
            }
        }
        Ok(())
    }
}

fn open_file(path: &Path) -> Result<File, ArchiveError> {
    // A pipe that nobody writes to is not waited for.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    opened.map_err(|source| ArchiveError::Io {
        action: "open",
        path: path.to_owned(),
        source,
    })
}

/// Where the tar has what follows a file whose header stands at `position`.
fn file_end(position: u64, size: u64) -> Option<u64> {
    position
        .checked_add(TAR_BLOCK)?
        .checked_add(size.checked_next_multiple_of(TAR_BLOCK)?)
}

/// One after the other.
struct Chain<R>(VecDeque<R>);

impl<R: Read> Read for Chain<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(first) = self.0.front_mut() {
            match first.read(buf)? {
                0 if !buf.is_empty() => drop(self.0.pop_front()),
                n => return Ok(n),
            }
        }
        Ok(0)
    }
}

/// The stored bytes of a part.
pub(crate) struct Stored<'a> {
    pub(crate) backing: &'a Backing,
    pub(crate) position: u64,
    pub(crate) left: u64,
}

impl Read for Stored<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = buf.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.backing.read_at(&mut buf[..most], self.position)?;
        self.position += n as u64;
        self.left -= n as u64;
        Ok(n)
    }
}

//! Opens an archive and takes members out of it. Every byte is hostile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::carried::CarriedError;
use crate::error::ArchiveError;
use crate::limits::MAX_MANIFEST_BYTES;
use crate::manifest::{CarriedFile, Encoding, MANIFEST_HASH_NAME, MANIFEST_NAME, Manifest, MemberEntry};
use crate::member::{HashingReader, HashingWriter, Pieces, TAR_BLOCK, is_safe_name};
use crate::opening::Opening;
use crate::room;
use crate::unpack::{UnpackError, Unpacker};

/// An archive whose manifest was read and checked; members are checked as they are taken out.
pub struct Archive {
    path: PathBuf,
    file: File,
    manifest: Manifest,
    manifest_hash: String,
    /// Offset of each member's bytes, in the manifest's order.
    offsets: Vec<u64>,
    /// Kept from one member to the next.
    unpacker: Mutex<Option<Box<Unpacker>>>,
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Archive {
    /// Opens `path`, reads the manifest, and checks its hash and that every member it lists is there in full length.
    ///
    /// # Errors
    /// Every [`ArchiveError`] of reading.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let mut reader = Opening {
            path,
            file: open_file(path)?,
        };
        let found = reader.file.metadata().map_err(|e| reader.io(e))?;
        if !found.is_file() {
            return Err(reader.not_an_archive("it is no regular file"));
        }
        let size = found.len();
        let (name, manifest_size) = reader.header(0)?.ok_or_else(|| reader.not_an_archive("it is empty"))?;
        if name != MANIFEST_NAME {
            return Err(reader.not_an_archive("its first member is not the manifest"));
        }
        if manifest_size > MAX_MANIFEST_BYTES {
            return Err(reader.damaged("the manifest is too large"));
        }
        if manifest_size > size {
            return Err(reader.damaged("it is truncated"));
        }
        let text = reader.bytes(TAR_BLOCK, manifest_size)?;
        let manifest = reader.parse_manifest(&text)?;

        let mut position = TAR_BLOCK + manifest_size.next_multiple_of(TAR_BLOCK);
        let mut offsets = Vec::with_capacity(manifest.members.len());
        for member in &manifest.members {
            let found = reader.header(position)?;
            if found != Some((member.name.clone(), member.stored_bytes)) {
                return Err(reader.damaged(&format!("member `{}` is not where the manifest has it", member.name)));
            }
            offsets.push(position + TAR_BLOCK);
            position = member
                .stored_bytes
                .checked_next_multiple_of(TAR_BLOCK)
                .and_then(|stored| position.checked_add(TAR_BLOCK)?.checked_add(stored))
                .filter(|&end| end <= size)
                .ok_or_else(|| reader.damaged(&format!("it ends inside member `{}`", member.name)))?;
        }
        match reader.header(position)? {
            Some((name, 65)) if name == MANIFEST_HASH_NAME => {}
            _ => return Err(reader.damaged("it has no manifest hash at its end")),
        }
        let manifest_hash = blake3::hash(&text).to_hex().to_string();
        // With its padding: what is cut off there is not whole.
        if !reader
            .bytes(position + TAR_BLOCK, TAR_BLOCK)?
            .starts_with(manifest_hash.as_bytes())
        {
            return Err(reader.damaged("the manifest does not have its hash"));
        }
        let file = reader.file;
        Ok(Self {
            path: path.to_owned(),
            file,
            manifest,
            manifest_hash,
            offsets,
            unpacker: Mutex::new(None),
        })
    }

    /// The manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// BLAKE3 hash of the manifest, in hexadecimal: whoever has that of the writer knows that no member is another.
    #[must_use]
    pub fn manifest_hash(&self) -> &str {
        &self.manifest_hash
    }

    /// The archive's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Offset of a member's stored bytes in the file, and the member.
    ///
    /// # Errors
    /// [`ArchiveError::NoSuchMember`].
    pub fn locate(&self, name: &str) -> Result<(u64, &MemberEntry), ArchiveError> {
        self.members()
            .find(|(_, member)| member.name == name)
            .ok_or_else(|| ArchiveError::NoSuchMember {
                path: self.path.clone(),
                name: name.to_owned(),
            })
    }

    /// Offsets and members in the order stored.
    pub fn members(&self) -> impl Iterator<Item = (u64, &MemberEntry)> {
        self.offsets.iter().copied().zip(&self.manifest.members)
    }

    /// Writes a member's raw bytes to `out`, checking its hash and length.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`]; [`ArchiveError::Io`], of the archive that cannot be read or of `out`, which goes by
    /// the member's name then. `out` then holds an unusable part.
    pub fn extract(&self, offset: u64, member: &MemberEntry, out: &mut impl Write) -> Result<(), ArchiveError> {
        self.unpack(offset, member, out, Path::new(member.raw_name()))
    }

    /// As [`Archive::extract`]; `target` is what errors call `out`.
    fn unpack(
        &self,
        offset: u64,
        member: &MemberEntry,
        out: &mut impl Write,
        target: &Path,
    ) -> Result<(), ArchiveError> {
        let mut input = self.stored(offset, member);
        let unpacked = self.with_unpacker(|unpacker| match member.encoding {
            Encoding::Stored => unpacker.copy(&mut input, out, member.raw_bytes),
            Encoding::Zstd => unpacker.decompress(&mut input, out, member.raw_bytes),
        })?;
        let damaged = |what: &str| ArchiveError::Damaged {
            path: self.path.clone(),
            what: format!("member `{}` {what}", member.name),
        };
        let bad_content = match unpacked {
            Ok(size) if size == member.raw_bytes => None,
            Ok(_) => Some("has another length than the manifest says".to_owned()),
            Err(UnpackError::Content(what)) => Some(what),
            Err(UnpackError::Read(source)) => return Err(self.read_error(source)),
            Err(UnpackError::Write(source)) => {
                let (action, path) = ("write", target.to_owned());
                return Err(ArchiveError::Io { action, path, source });
            }
        };
        // A wrong hash is the better explanation of a member that does not decompress.
        io::copy(&mut input, &mut io::sink()).map_err(|e| self.read_error(e))?;
        if input.finish().1.to_hex().as_str() != member.blake3 {
            return Err(damaged("does not have its hash"));
        }
        bad_content.map_or(Ok(()), |what| Err(damaged(&what)))
    }

    /// A member's bytes as they are stored.
    fn stored(&self, offset: u64, member: &MemberEntry) -> HashingReader<Stored<'_>> {
        HashingReader::new(Stored {
            file: &self.file,
            position: offset,
            left: member.stored_bytes,
        })
    }

    /// Makes sure that every member is what a restore takes: it has its hash, and unpacked its length; so have the
    /// carried files.
    ///
    /// # Errors
    /// As [`Archive::extract`], for the first that is not.
    pub fn verify(&self) -> Result<(), ArchiveError> {
        for (offset, member) in self.members() {
            self.extract(offset, member, &mut io::sink())?;
        }
        let members: BTreeMap<&str, _> = self.members().map(|found| (&*found.1.name, found)).collect();
        for file in &self.manifest.files {
            let Some(&(offset, member)) = members.get(&*file.member) else {
                continue;
            };
            self.verify_carried(file, self.stored(offset, member))?;
        }
        Ok(())
    }

    /// Makes sure that a file can be taken out of its member's bytes, as [`crate::carried::unpack`] does.
    fn verify_carried(&self, file: &CarriedFile, mut stored: HashingReader<Stored<'_>>) -> Result<(), ArchiveError> {
        let mut out = HashingWriter::new(io::sink());
        let unpacked = self.with_unpacker(|unpacker| unpacker.decompress(&mut stored, &mut out, file.size_bytes))?;
        let (size, hash) = out.finish();
        match unpacked {
            Ok(_) if size == file.size_bytes && hash.to_hex().as_str() == file.blake3 => Ok(()),
            Err(UnpackError::Read(source)) => Err(self.read_error(source)),
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
        let kept = self.unpacker.lock().take();
        let mut unpacker = match kept {
            Some(unpacker) => unpacker,
            None => Box::new(Unpacker::new().map_err(|e| self.read_error(e))?),
        };
        let result = work(&mut unpacker);
        *self.unpacker.lock() = Some(unpacker);
        Ok(result)
    }

    fn read_error(&self, source: io::Error) -> ArchiveError {
        ArchiveError::Io {
            action: "read",
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
        for (offset, member) in self.members() {
            let mut stored = self.stored(offset, member);
            while !pieces.fill(&mut stored).map_err(|e| self.read_error(e))?.is_empty() {}
            if stored.finish().1.to_hex().as_str() != member.blake3 {
                return Err(ArchiveError::Damaged {
                    path: self.path.clone(),
                    what: format!("member `{}` does not have its hash", member.name),
                });
            }
        }
        Ok(())
    }

    /// Writes the members whose names start with `prefix` into `folder` (mode 0600), without the prefix and without
    /// `.zst`. Returns the number of raw bytes.
    ///
    /// # Errors
    /// As [`Archive::extract_where`].
    pub fn extract_all(&self, prefix: &str, folder: &Path) -> Result<u64, ArchiveError> {
        self.extract_where(folder, |member| member.raw_name().strip_prefix(prefix), &mut |_| ())
    }

    /// Writes the members for which `place` gives a name, each under that name, into `folder` (mode 0600).
    /// `progress` is told, now and then, how many raw bytes have been written. Returns their number.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`], [`ArchiveError::Io`]; also, before anything is written, if two are to have one name,
    /// and if there is no room for all of them.
    pub fn extract_where(
        &self,
        folder: &Path,
        place: impl Fn(&MemberEntry) -> Option<&str>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, ArchiveError> {
        let io_error = |action, path: &Path, source| ArchiveError::Io {
            action,
            path: path.to_owned(),
            source,
        };
        let wanted: Vec<_> = self
            .members()
            .filter_map(|(offset, member)| Some((offset, member, place(member)?)))
            .collect();
        let mut names = BTreeSet::new();
        if let Some((_, member, _)) = wanted
            .iter()
            .find(|(_, _, name)| !is_safe_name(name) || !names.insert(*name))
        {
            return Err(ArchiveError::Damaged {
                path: self.path.clone(),
                what: format!("member `{}` has no place of its own", member.name),
            });
        }
        let total = wanted.iter().map(|(_, member, _)| member.raw_bytes).sum();
        fs::create_dir_all(folder).map_err(|e| io_error("create", folder, e))?;
        room::ensure(folder, total).map_err(|e| io_error("write", folder, e))?;
        let mut parent = folder.to_owned();
        let mut told = Told::new(progress);
        for (offset, member, name) in wanted {
            let path = folder.join(name);
            if let Some(above) = path.parent().filter(|above| *above != parent) {
                fs::create_dir_all(above).map_err(|e| io_error("create", above, e))?;
                parent = above.to_owned();
            }
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
                .map_err(|e| io_error("create", &path, e))?;
            self.unpack(offset, member, &mut told.as_to(&mut file), &path)?;
        }
        Ok(total)
    }
}

/// Bytes that are written, and whoever wants to know of them.
struct Told<'a> {
    progress: &'a mut dyn FnMut(u64),
    written: u64,
    /// At how many bytes it is told again.
    tell_at: u64,
}

/// A file of which is told.
struct ToldFile<'t, 'a> {
    told: &'t mut Told<'a>,
    file: &'t mut File,
}

impl<'a> Told<'a> {
    const STEP_BYTES: u64 = 4 << 20;

    fn new(progress: &'a mut dyn FnMut(u64)) -> Self {
        Self {
            progress,
            written: 0,
            tell_at: Self::STEP_BYTES,
        }
    }

    fn as_to<'t>(&'t mut self, file: &'t mut File) -> ToldFile<'t, 'a> {
        ToldFile { told: self, file }
    }
}

impl Write for ToldFile<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.told.written += count as u64;
        if self.told.written >= self.told.tell_at {
            self.told.tell_at = self.told.written + Told::STEP_BYTES;
            (self.told.progress)(self.told.written);
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
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

/// The stored bytes of a member.
struct Stored<'a> {
    file: &'a File,
    position: u64,
    left: u64,
}

impl Read for Stored<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = buf.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.file.read_at(&mut buf[..most], self.position)?;
        self.position += n as u64;
        self.left -= n as u64;
        Ok(n)
    }
}

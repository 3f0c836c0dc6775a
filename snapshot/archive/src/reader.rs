//! Opens an archive and takes members out of it. Every byte is hostile.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::ArchiveError;
use crate::limits::{MAX_MANIFEST_BYTES, MAX_MEMBERS};
use crate::manifest::{Encoding, FORMAT, FORMAT_VERSION, MANIFEST_HASH_NAME, MANIFEST_NAME, Manifest, MemberEntry};
use crate::member::{HashingWriter, PIECE_BYTES, TAR_BLOCK, copy_in_pieces, is_safe_name, update};

/// An archive whose manifest was read and checked; members are checked as they are taken out.
#[derive(Debug)]
pub struct Archive {
    path: PathBuf,
    manifest: Manifest,
    manifest_hash: String,
    /// Offset of each member's bytes, in the manifest's order.
    offsets: Vec<u64>,
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
        let size = reader.file.metadata().map_err(|e| reader.io(e))?.len();
        let (name, manifest_size) = reader.header(0)?.ok_or_else(|| reader.not_an_archive("it is empty"))?;
        if name != MANIFEST_NAME {
            return Err(reader.not_an_archive("its first member is not the manifest"));
        }
        if manifest_size > MAX_MANIFEST_BYTES {
            return Err(reader.damaged("the manifest is too large"));
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
        if reader.bytes(position + TAR_BLOCK, 64)? != manifest_hash.as_bytes() {
            return Err(reader.damaged("the manifest does not have its hash"));
        }
        Ok(Self {
            path: path.to_owned(),
            manifest,
            manifest_hash,
            offsets,
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
    /// [`ArchiveError::Damaged`], [`ArchiveError::Io`]; `out` then holds an unusable part.
    pub fn extract(&self, offset: u64, member: &MemberEntry, out: &mut impl Write) -> Result<(), ArchiveError> {
        let mut file = open_file(&self.path)?;
        let io_error = |source| ArchiveError::Io {
            action: "read",
            path: self.path.clone(),
            source,
        };
        let damaged = |what: &str| ArchiveError::Damaged {
            path: self.path.clone(),
            what: format!("member `{}` {what}", member.name),
        };
        file.seek(SeekFrom::Start(offset)).map_err(io_error)?;
        let mut hashed = HashingReader {
            inner: file.take(member.stored_bytes),
            hasher: blake3::Hasher::new(),
        };
        let mut counted = HashingWriter::new(out);
        let copied = match member.encoding {
            Encoding::Stored => copy_in_pieces(&mut hashed, &mut counted).map(drop).map_err(io_error),
            Encoding::Zstd => decompress(&mut hashed, &mut counted, member.raw_bytes)
                .map_err(|e| damaged(&format!("cannot be decompressed: {e}"))),
        };
        // A wrong hash is the better explanation of a member that does not decompress.
        io::copy(&mut hashed, &mut io::sink()).map_err(io_error)?;
        if hashed.hasher.finalize().to_hex().as_str() != member.blake3 {
            return Err(damaged("does not have its hash"));
        }
        copied?;
        if counted.finish().0 != member.raw_bytes {
            return Err(damaged("has another length than the manifest says"));
        }
        Ok(())
    }

    /// Writes the members whose names start with `prefix` into `folder` (mode 0600), without the prefix and without `.zst`.
    /// Returns the number of raw bytes.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`], [`ArchiveError::Io`].
    pub fn extract_all(&self, prefix: &str, folder: &Path) -> Result<u64, ArchiveError> {
        let mut total = 0;
        for (offset, member) in self.members() {
            let Some(name) = member.name.strip_prefix(prefix) else {
                continue;
            };
            let name = match member.encoding {
                Encoding::Zstd => name.strip_suffix(".zst").unwrap_or(name),
                Encoding::Stored => name,
            };
            let path = folder.join(name);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(|source| ArchiveError::Io {
                    action: "create",
                    path: parent.to_owned(),
                    source,
                })?;
            }
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
                .map_err(|source| ArchiveError::Io {
                    action: "create",
                    path: path.clone(),
                    source,
                })?;
            let mut out = io::BufWriter::with_capacity(1 << 20, file);
            self.extract(offset, member, &mut out)?;
            out.flush().map_err(|source| ArchiveError::Io {
                action: "write",
                path: path.clone(),
                source,
            })?;
            total += member.raw_bytes;
        }
        Ok(total)
    }
}

fn open_file(path: &Path) -> Result<File, ArchiveError> {
    File::open(path).map_err(|source| ArchiveError::Io {
        action: "open",
        path: path.to_owned(),
        source,
    })
}

/// Decompresses one frame, refusing to write more than `limit` bytes.
fn decompress(input: &mut impl Read, out: &mut impl Write, limit: u64) -> io::Result<()> {
    let mut decoder = zstd::Decoder::with_buffer(BufReader::with_capacity(PIECE_BYTES, input))?.single_frame();
    let copied = copy_in_pieces(&mut (&mut decoder).take(limit), out)?;
    if copied == limit && decoder.read(&mut [0u8])? != 0 {
        return Err(io::Error::other("it holds more than the manifest says"));
    }
    Ok(())
}

struct HashingReader<R> {
    inner: R,
    hasher: blake3::Hasher,
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        update(&mut self.hasher, &buf[..n]);
        Ok(n)
    }
}

/// A file that is being opened as an archive.
struct Opening<'a> {
    path: &'a Path,
    file: File,
}

impl Opening<'_> {
    fn io(&self, source: io::Error) -> ArchiveError {
        match source.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged("it is truncated"),
            _ => ArchiveError::Io {
                action: "read",
                path: self.path.to_owned(),
                source,
            },
        }
    }

    fn not_an_archive(&self, reason: &str) -> ArchiveError {
        ArchiveError::NotAnArchive {
            path: self.path.to_owned(),
            reason: reason.to_owned(),
        }
    }

    fn damaged(&self, what: &str) -> ArchiveError {
        ArchiveError::Damaged {
            path: self.path.to_owned(),
            what: what.to_owned(),
        }
    }

    fn bytes(&mut self, offset: u64, size: u64) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(offset)).map_err(|e| self.io(e))?;
        (&mut self.file)
            .take(size)
            .read_to_end(&mut bytes)
            .map_err(|e| self.io(e))?;
        if bytes.len() as u64 == size {
            Ok(bytes)
        } else {
            Err(self.damaged("it is truncated"))
        }
    }

    /// Name and size of the member whose header stands at `offset`; `None` at the end mark or the end of the file.
    fn header(&mut self, offset: u64) -> Result<Option<(String, u64)>, ArchiveError> {
        self.file.seek(SeekFrom::Start(offset)).map_err(|e| self.io(e))?;
        let mut header = tar::Header::new_old();
        let mut filled = 0;
        while filled < TAR_BLOCK as usize {
            match self
                .file
                .read(&mut header.as_mut_bytes()[filled..])
                .map_err(|e| self.io(e))?
            {
                0 => break,
                n => filled += n,
            }
        }
        if filled == 0 || header.as_bytes().iter().all(|&b| b == 0) {
            return Ok(None);
        }
        let sum: u32 = header
            .as_bytes()
            .iter()
            .enumerate()
            .map(|(i, &b)| if (148..156).contains(&i) { 32 } else { u32::from(b) })
            .sum();
        let parsed = match (header.cksum(), header.entry_size(), header.path_bytes()) {
            (Ok(cksum), Ok(size), name) if cksum == sum && filled == TAR_BLOCK as usize => {
                String::from_utf8(name.into_owned()).ok().map(|name| (name, size))
            }
            _ => None,
        };
        match parsed {
            Some(parsed) => Ok(Some(parsed)),
            None if offset == 0 => Err(self.not_an_archive("it is no tar file")),
            None => Err(self.damaged(&format!("the tar header at byte {offset} is wrong"))),
        }
    }

    fn parse_manifest(&self, text: &[u8]) -> Result<Manifest, ArchiveError> {
        let value: serde_json::Value =
            serde_json::from_slice(text).map_err(|e| self.damaged(&format!("the manifest is no JSON: {e}")))?;
        if value.get("format").and_then(|f| f.as_str()) != Some(FORMAT) {
            return Err(self.not_an_archive("its manifest is of another format"));
        }
        // The version is read before the rest, which a newer version may have changed.
        let found = value
            .get("format_version")
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0);
        if found > u64::from(FORMAT_VERSION) {
            let found = u32::try_from(found).unwrap_or(u32::MAX);
            return Err(ArchiveError::NewerVersion {
                path: self.path.to_owned(),
                found,
                supported: FORMAT_VERSION,
            });
        }
        let manifest: Manifest =
            serde_json::from_value(value).map_err(|e| self.damaged(&format!("the manifest is wrong: {e}")))?;
        if manifest.members.len() > MAX_MEMBERS {
            return Err(self.damaged("it lists too many members"));
        }
        if let Some(member) = manifest.members.iter().find(|m| !is_safe_name(&m.name)) {
            return Err(self.damaged(&format!("member name `{}` is not allowed", member.name.escape_debug())));
        }
        let members: BTreeSet<&str> = manifest.members.iter().map(|member| &*member.name).collect();
        let mut paths = BTreeSet::new();
        for file in &manifest.files {
            if !file.is_safe() || !members.contains(&*file.member) || !paths.insert(&file.path) {
                let path = file.path.escape_debug();
                return Err(self.damaged(&format!("carried file `{path}` is not allowed")));
            }
        }
        Ok(manifest)
    }
}

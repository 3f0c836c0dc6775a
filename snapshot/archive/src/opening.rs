//! An archive's outer form, as it is opened: tar headers and the manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use hetckpt_state::bounded;
use serde::Deserialize;

use crate::error::ArchiveError;
use crate::limits::{MAX_EXPANSION, MAX_TEXT_BYTES};
use crate::manifest::{Encoding, FORMAT, FORMAT_VERSION, Manifest};
use crate::member::{TAR_BLOCK, is_safe_name};

/// A file that is being opened as an archive.
pub(crate) struct Opening<'a> {
    pub(crate) path: &'a Path,
    pub(crate) file: File,
}

impl Opening<'_> {
    pub(crate) fn io(&self, source: io::Error) -> ArchiveError {
        match source.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged("it is truncated"),
            _ => ArchiveError::Io {
                action: "read",
                path: self.path.to_owned(),
                source,
            },
        }
    }

    pub(crate) fn not_an_archive(&self, reason: &str) -> ArchiveError {
        ArchiveError::NotAnArchive {
            path: self.path.to_owned(),
            reason: reason.to_owned(),
        }
    }

    pub(crate) fn damaged(&self, what: &str) -> ArchiveError {
        ArchiveError::Damaged {
            path: self.path.to_owned(),
            what: what.to_owned(),
        }
    }

    pub(crate) fn bytes(&mut self, offset: u64, size: u64) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
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
    pub(crate) fn header(&mut self, offset: u64) -> Result<Option<(String, u64)>, ArchiveError> {
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

    /// The manifest; the format and its version are looked at before the rest, which a newer version may have changed.
    pub(crate) fn parse_manifest(&self, text: &[u8]) -> Result<Manifest, ArchiveError> {
        #[derive(Deserialize)]
        struct Head {
            #[serde(default, deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
            format: String,
            #[serde(default)]
            format_version: u64,
        }

        let wrong = |e: serde_json::Error| self.damaged(&format!("the manifest is wrong: {}", bounded::message(&e)));
        let head: Head = serde_json::from_slice(text).map_err(wrong)?;
        if head.format != FORMAT {
            return Err(self.not_an_archive("its manifest is of another format"));
        }
        if head.format_version > u64::from(FORMAT_VERSION) {
            return Err(ArchiveError::NewerVersion {
                path: self.path.to_owned(),
                found: u32::try_from(head.format_version).unwrap_or(u32::MAX),
                supported: FORMAT_VERSION,
            });
        }
        let manifest = serde_json::from_slice(text).map_err(wrong)?;
        self.ensure_possible(&manifest)?;
        Ok(manifest)
    }

    /// Makes sure that no name leads elsewhere or stands twice, and no size is one that cannot be.
    fn ensure_possible(&self, manifest: &Manifest) -> Result<(), ArchiveError> {
        let mut members = BTreeMap::new();
        let mut unpacked = BTreeSet::new();
        let mut total_bytes = 0u64;
        for member in &manifest.members {
            let name = member.name.escape_debug();
            if !is_safe_name(&member.name) || !is_safe_name(member.raw_name()) {
                return Err(self.damaged(&format!("member name `{name}` is not allowed")));
            }
            if members.insert(&*member.name, member).is_some() || !unpacked.insert(member.raw_name()) {
                return Err(self.damaged(&format!("there are two members `{name}`")));
            }
            let is_possible = match member.encoding {
                Encoding::Stored => member.raw_bytes == member.stored_bytes,
                Encoding::Zstd => member.raw_bytes <= member.stored_bytes.saturating_mul(MAX_EXPANSION),
            };
            total_bytes = total_bytes
                .checked_add(member.raw_bytes)
                .filter(|_| is_possible)
                .ok_or_else(|| {
                    self.damaged(&format!(
                        "member `{name}` cannot have the length that the manifest says"
                    ))
                })?;
        }
        let mut paths = BTreeSet::new();
        for file in &manifest.files {
            // Each has a member of its own, or a small one could be unpacked time and again.
            let is_possible = members.remove(&*file.member).is_some_and(|member| {
                file.is_safe() && file.size_bytes <= member.raw_bytes.saturating_mul(MAX_EXPANSION)
            });
            if !is_possible || !paths.insert(&file.path) {
                let path = file.path.escape_debug();
                return Err(self.damaged(&format!("carried file `{path}` is not allowed")));
            }
        }
        Ok(())
    }
}

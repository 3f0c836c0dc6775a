//! An archive's outer form, as it is opened: tar headers, its header and its index.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use hetckpt_state::bounded;
use serde::Deserialize;

use crate::backing::Backing;
use crate::error::ArchiveError;
use crate::limits::{MAX_EXPANSION, MAX_PARTS, MAX_TEXT_BYTES, MAX_TEXT_MEMBER_BYTES};
use crate::manifest::{Encoding, FORMAT, FORMAT_VERSION, Header, INCREMENTAL_VERSION, Index, MemberEntry, part_name};
use crate::member::{TAR_BLOCK, is_safe_name};

/// What is being opened as an archive.
pub(crate) struct Opening<'a> {
    pub(crate) path: &'a Path,
    pub(crate) backing: &'a Backing,
}

impl Opening<'_> {
    pub(crate) fn io(&self, source: io::Error) -> ArchiveError {
        match source.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged("it is truncated"),
            _ => ArchiveError::Io {
                action: self.backing.action(),
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

    /// `size` bytes, of which the caller has seen that they are not too many.
    pub(crate) fn bytes(&self, offset: u64, size: u64) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        let filled = self.backing.fill_at(&mut bytes, offset).map_err(|e| self.io(e))?;
        match filled as u64 == size {
            true => Ok(bytes),
            false => Err(self.damaged("it is truncated")),
        }
    }

    /// The text of the member whose tar header stands at `offset`, in a file of `file_bytes`.
    pub(crate) fn text_member(&self, offset: u64, size: u64, file_bytes: u64) -> Result<Vec<u8>, ArchiveError> {
        if size > MAX_TEXT_MEMBER_BYTES {
            return Err(self.damaged("its header or its index is too large"));
        }
        if size > file_bytes {
            return Err(self.damaged("it is truncated"));
        }
        self.bytes(offset.saturating_add(TAR_BLOCK), size)
    }

    /// Name and size of the member whose header stands at `offset`; `None` at the end mark or the end of the file.
    pub(crate) fn header(&self, offset: u64) -> Result<Option<(String, u64)>, ArchiveError> {
        let mut header = tar::Header::new_old();
        let filled = self
            .backing
            .fill_at(header.as_mut_bytes(), offset)
            .map_err(|e| self.io(e))?;
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

    /// The header; the format and its version are looked at before the rest, which a newer version may have changed.
    pub(crate) fn parse_header(&self, text: &[u8]) -> Result<Header, ArchiveError> {
        #[derive(Deserialize)]
        struct Head {
            #[serde(default, deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
            format: String,
            #[serde(default)]
            format_version: u64,
        }

        let wrong = |e: serde_json::Error| self.damaged(&format!("the header is wrong: {}", bounded::message(&e)));
        let head: Head = serde_json::from_slice(text).map_err(wrong)?;
        if head.format != FORMAT {
            return Err(self.not_an_archive("its header is of another format"));
        }
        let is_known = (u64::from(FORMAT_VERSION)..=u64::from(INCREMENTAL_VERSION)).contains(&head.format_version);
        if !is_known {
            return Err(self.other_version(u32::try_from(head.format_version).unwrap_or(u32::MAX)));
        }
        serde_json::from_slice(text).map_err(wrong)
    }

    pub(crate) fn other_version(&self, found: u32) -> ArchiveError {
        ArchiveError::Version {
            path: self.path.to_owned(),
            found,
            supported: INCREMENTAL_VERSION,
        }
    }

    /// The index.
    pub(crate) fn parse_index(&self, text: &[u8]) -> Result<Index, ArchiveError> {
        let index = serde_json::from_slice(text)
            .map_err(|e| self.damaged(&format!("the index is wrong: {}", bounded::message(&e))))?;
        self.ensure_possible(&index)?;
        Ok(index)
    }

    /// Makes sure that no name leads elsewhere or stands twice, and no size is one that cannot be.
    fn ensure_possible(&self, index: &Index) -> Result<(), ArchiveError> {
        let mut members = BTreeMap::new();
        let mut unpacked = BTreeSet::new();
        let mut names = BTreeSet::new();
        let mut total_bytes = 0u64;
        let num_parts: usize = index.members.iter().map(|member| member.parts.len()).sum();
        if num_parts > MAX_PARTS {
            return Err(self.damaged(&format!("it has {num_parts} parts of members")));
        }
        for member in &index.members {
            let name = member.name.escape_debug();
            let is_safe = |number| is_safe_name(&part_name(&member.name, number));
            if !is_safe(0) || !is_safe(member.parts.len()) || !is_safe_name(member.raw_name()) {
                return Err(self.damaged(&format!("member name `{name}` is not allowed")));
            }
            let are_new = (0..member.parts.len()).all(|number| names.insert(part_name(&member.name, number)));
            if !are_new || members.insert(&*member.name, member).is_some() || !unpacked.insert(member.raw_name()) {
                return Err(self.damaged(&format!("there are two members `{name}`")));
            }
            let mut sizes = member.parts.iter().map(|part| {
                let is_possible = match member.encoding {
                    Encoding::Stored => part.raw_bytes == part.stored_bytes,
                    Encoding::Zstd => part.raw_bytes <= part.stored_bytes.saturating_mul(MAX_EXPANSION),
                };
                is_possible.then_some(part.raw_bytes)
            });
            total_bytes = sizes
                .try_fold(total_bytes, |sum, size| sum.checked_add(size?))
                .filter(|_| !member.parts.is_empty() || !member.borrowed.is_empty())
                .ok_or_else(|| self.damaged(&format!("member `{name}` cannot have the length that the index says")))?;
            total_bytes = borrowed_bytes(index, member)
                .and_then(|borrowed| total_bytes.checked_add(borrowed))
                .ok_or_else(|| self.damaged(&format!("member `{name}` cannot borrow what the index says")))?;
        }
        let mut paths = BTreeSet::new();
        for file in &index.files {
            // Each has a member of its own, or a small one could be unpacked time and again.
            let is_possible = members.remove(&*file.member).is_some_and(|member| {
                file.is_safe() && file.size_bytes <= member.raw_bytes().saturating_mul(MAX_EXPANSION)
            });
            if !is_possible || !paths.insert(&file.path) {
                let path = file.path.escape_debug();
                return Err(self.damaged(&format!("carried file `{path}` is not allowed")));
            }
        }
        Ok(())
    }
}

/// Bytes that a member borrows; none if it cannot: it borrows nothing at all somewhere, from an archive that is not
/// listed, or in no order.
fn borrowed_bytes(index: &Index, member: &MemberEntry) -> Option<u64> {
    let mut borrowed = member.is_in_order().then(|| member.borrowed.iter())?;
    borrowed.try_fold(0u64, |sum, borrowed| {
        let is_listed = (borrowed.parent as usize) < index.parents.len();
        let end = borrowed.offset_bytes.checked_add(borrowed.size_bytes);
        let is_possible = is_listed && borrowed.size_bytes > 0 && end.is_some();
        is_possible.then(|| sum.checked_add(borrowed.size_bytes))?
    })
}

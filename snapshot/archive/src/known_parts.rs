//! Compressed parts of members that earlier archives have: what has been compressed to the same bytes need not be
//! stored again.

use std::collections::HashMap;

use crate::error::ArchiveError;
use crate::manifest::{Borrowed, Encoding};
use crate::reader::Archive;

/// What tells one from another: the hash of its stored bytes, their number, and how many they are unpacked.
type Key = (blake3::Hash, u64, u64);

/// All of them, and where they are.
#[derive(Debug, Default)]
pub struct KnownParts(HashMap<Key, Borrowed>);

impl KnownParts {
    /// Those of `archive`, which is number 0 of those that are borrowed from, and of the archives that it borrows from
    /// itself, which are the next.
    ///
    /// # Errors
    /// As [`Archive::place`].
    pub fn of(archive: &Archive) -> Result<Self, ArchiveError> {
        let mut known = HashMap::new();
        let compressed = archive
            .members()
            .filter(|member| member.entry.encoding == Encoding::Zstd);
        for member in compressed {
            for stretch in archive.stretches(member)? {
                let part = stretch.part;
                let place = Borrowed {
                    parent: stretch.file,
                    member: stretch.member.name.clone(),
                    offset_bytes: stretch.place.start,
                    size_bytes: part.raw_bytes,
                    after_parts: None,
                };
                if part.raw_bytes > 0 {
                    known.insert((part.blake3, part.stored_bytes, part.raw_bytes), place);
                }
            }
        }
        Ok(Self(known))
    }

    /// Where a part is that has these stored bytes.
    pub(crate) fn find(&self, hash: blake3::Hash, stored_bytes: u64, raw_bytes: u64) -> Option<&Borrowed> {
        self.0.get(&(hash, stored_bytes, raw_bytes))
    }
}

//! Where device memory is read from: a file of its own, or the archive's bytes, where the member lies in parts.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use hetckpt_state::bounded;
use serde::{Deserialize, Serialize};

use crate::limits::MAX_PARTS;
use crate::served_bytes::ServedBytes;

/// A part of a member that is stored as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartPlace {
    /// Which archive's file it lies in, from 0 on.
    pub file: u32,
    /// Where it begins there.
    pub offset_bytes: u64,
    /// Its length.
    pub size_bytes: u64,
}

/// Where a member lies in its archive's file and in those that it borrows from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberPlace {
    /// Its parts, in the member's order.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_PARTS>")]
    pub parts: Vec<PartPlace>,
}

/// An archive's bytes, open for reading.
#[derive(Clone, Debug)]
pub enum Lender {
    /// In a file.
    File(Arc<File>),
    /// On a socket.
    Served(Arc<ServedBytes>),
}

impl Lender {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(bytes, offset),
            Self::Served(served) => served.read_exact_at(bytes, offset),
        }
    }
}

impl From<File> for Lender {
    fn from(file: File) -> Self {
        Self::File(file.into())
    }
}

/// Device memory, open for reading.
#[derive(Debug)]
pub enum MemorySource {
    /// All of a file.
    File(File),
    /// A member of an archive.
    Member {
        /// The archives.
        lenders: Vec<Lender>,
        /// Where each part ends in the member, and its place.
        parts: Vec<(u64, PartPlace)>,
    },
}

impl MemorySource {
    /// The member that lies at `place` in the archives `lenders`.
    #[must_use]
    pub fn member(lenders: Vec<Lender>, place: &MemberPlace) -> Self {
        let mut end = 0u64;
        let parts = place.parts.iter().map(|&part| {
            end = end.saturating_add(part.size_bytes);
            (end, part)
        });
        let parts = parts.collect();
        Self::Member { lenders, parts }
    }

    /// Fills `bytes` from those of the member at `offset`.
    ///
    /// # Errors
    /// What the system says; `UnexpectedEof` if the member or the file has not so many.
    pub fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let (lenders, parts) = match self {
            Self::File(file) => return file.read_exact_at(bytes, offset),
            Self::Member { lenders, parts } => (lenders, parts),
        };
        let first = parts.partition_point(|&(end, _)| end <= offset);
        let (mut left, mut offset) = (bytes, offset);
        for &(end, part) in parts.get(first..).unwrap_or_default() {
            if left.is_empty() {
                break;
            }
            let rest = end - offset;
            let before = part.size_bytes.checked_sub(rest);
            let at = before.and_then(|before| part.offset_bytes.checked_add(before));
            let at = at.ok_or(ErrorKind::UnexpectedEof)?;
            let count = usize::try_from(rest).map_or(left.len(), |rest| rest.min(left.len()));
            let (now, later) = left.split_at_mut(count);
            let lender = lenders.get(part.file as usize).ok_or(ErrorKind::UnexpectedEof)?;
            lender.read_exact_at(now, at)?;
            offset += count as u64;
            left = later;
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn place(parts: &[(u32, u64, u64)]) -> MemberPlace {
        let part = |&(file, offset_bytes, size_bytes)| PartPlace {
            file,
            offset_bytes,
            size_bytes,
        };
        MemberPlace {
            parts: parts.iter().map(part).collect(),
        }
    }

    #[test]
    fn a_member_is_read_across_its_parts() {
        let files = [&b"..abc......fghi"[..], b"de"].map(|bytes| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(bytes, 0).unwrap();
            Lender::from(file)
        });
        let place = place(&[(0, 2, 3), (1, 0, 2), (0, 0, 0), (0, 11, 4)]);
        let source = MemorySource::member(files.into(), &place);
        let member = b"abcdefghi";
        for from in 0..=member.len() {
            for to in from..=member.len() {
                let mut bytes = vec![0; to - from];
                source.read_exact_at(&mut bytes, from as u64).unwrap();
                assert_eq!(bytes, &member[from..to]);
            }
        }
        for (size, offset) in [(1, 9), (10, 0), (1, u64::MAX)] {
            let error = source.read_exact_at(&mut vec![0; size], offset).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn places_that_cannot_be_are_errors() {
        for parts in [
            &[(0, u64::MAX, 2)][..],
            &[(0, 0, u64::MAX), (0, 1, u64::MAX)],
            &[(0, 1 << 62, 1 << 62)],
            &[(0, 7, 5)],
            &[(1, 0, 10)],
            &[],
        ] {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(b"ten bytes.", 0).unwrap();
            let source = MemorySource::member(vec![file.into()], &place(parts));
            for offset in [0, 1, u64::MAX - 1, u64::MAX] {
                let result = source.read_exact_at(&mut [0; 11], offset);
                assert!(result.is_err(), "{parts:?} {offset}");
            }
        }
    }
}

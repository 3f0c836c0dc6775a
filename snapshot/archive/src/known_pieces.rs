//! Pieces of device memory that earlier archives have, as a device server is told of them: what has the hash of one of
//! them need not be stored again.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

/// Bytes of an entry: hash, length as stored, length as memory.
const ENTRY_BYTES: usize = 32 + 4 + 4;
/// Most entries: 16 TiB of memory.
const MAX_ENTRIES: u64 = 1 << 22;

/// A piece that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownPiece {
    /// BLAKE3 hash of the memory.
    pub hash: [u8; 32],
    /// Its length as it is stored.
    pub stored_bytes: u32,
    /// Its length as memory.
    pub raw_bytes: u32,
}

/// All of them, by hash. They are numbered as they were listed.
#[derive(Debug, Default)]
pub struct KnownPieces(HashMap<[u8; 32], (u32, KnownPiece)>);

impl KnownPieces {
    /// Those in the list.
    pub fn new(list: impl IntoIterator<Item = KnownPiece>) -> Self {
        let numbered = (0..).zip(list);
        Self(numbered.map(|(number, piece)| (piece.hash, (number, piece))).collect())
    }

    /// Reads what [`write_list`] has written.
    ///
    /// # Errors
    /// What the system says; `InvalidData` if it is no such list.
    pub fn read(file: &File) -> io::Result<Self> {
        let size_bytes = file.metadata()?.len();
        let is_list = size_bytes.is_multiple_of(ENTRY_BYTES as u64) && size_bytes / (ENTRY_BYTES as u64) <= MAX_ENTRIES;
        let size = usize::try_from(size_bytes).ok().filter(|_| is_list);
        let mut bytes = vec![0; size.ok_or(ErrorKind::InvalidData)?];
        file.read_exact_at(&mut bytes, 0)?;
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        Ok(Self::new(entries.iter().map(of_entry)))
    }

    /// The number and the piece that has this content.
    #[must_use]
    pub fn find(&self, hash: &[u8; 32], raw_bytes: u32) -> Option<(u32, KnownPiece)> {
        let found = self.0.get(hash).copied();
        found.filter(|(_, piece)| piece.raw_bytes == raw_bytes && piece.stored_bytes <= raw_bytes)
    }
}

/// Writes a list to `file`, which is empty.
///
/// # Errors
/// What the system says.
pub fn write_list(file: &File, list: &[KnownPiece]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(list.len() * ENTRY_BYTES);
    for piece in list {
        bytes.extend(piece.hash);
        bytes.extend(piece.stored_bytes.to_le_bytes());
        bytes.extend(piece.raw_bytes.to_le_bytes());
    }
    file.write_all_at(&bytes, 0)
}

fn of_entry(entry: &[u8; ENTRY_BYTES]) -> KnownPiece {
    let mut hash = [0; 32];
    hash.copy_from_slice(&entry[..32]);
    let number = |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
    KnownPiece {
        hash,
        stored_bytes: number(32),
        raw_bytes: number(36),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn reading_inverts_writing() {
        let piece = |byte, stored_bytes| KnownPiece {
            hash: [byte; 32],
            stored_bytes,
            raw_bytes: 100,
        };
        let list = [piece(1, 100), piece(2, 7), piece(3, 101)];
        let file = tempfile::tempfile().unwrap();
        write_list(&file, &list).unwrap();
        let known = KnownPieces::read(&file).unwrap();
        assert_eq!(known.find(&[2; 32], 100), Some((1, list[1])));
        // Of another length, unknown, and one that cannot be.
        for (byte, raw_bytes) in [(2, 99), (4, 100), (3, 100)] {
            assert_eq!(known.find(&[byte; 32], raw_bytes), None);
        }
        file.write_all_at(&[0], 3 * ENTRY_BYTES as u64).unwrap();
        assert_eq!(KnownPieces::read(&file).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}

//! The archive's last member: where its index begins, and the hash of header and index. It has always the same length
//! and stands right before the tar's end, so a reader finds the index from there.

use crate::member::TAR_BLOCK;

/// Length of the member: hash, blank, offset in 20 decimal digits, line end.
pub(crate) const SEAL_BYTES: u64 = 64 + 1 + 20 + 1;
/// Bytes from its tar header to the end of the archive: header, content with padding, and two blocks of zeros.
pub(crate) const END_BYTES: u64 = 4 * TAR_BLOCK;

/// What the member says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    /// BLAKE3 hash of the header's text and, behind it, the index's.
    pub(crate) hash: blake3::Hash,
    /// Where the tar header of the index stands.
    pub(crate) index_at: u64,
}

impl Seal {
    /// Of an archive with these texts.
    pub(crate) fn of(header: &[u8], index: &[u8], index_at: u64) -> Self {
        let hash = blake3::Hasher::new().update(header).update(index).finalize();
        Self { hash, index_at }
    }

    /// Its text.
    pub(crate) fn text(&self) -> String {
        format!("{} {:020}\n", self.hash.to_hex(), self.index_at)
    }

    /// Reads its text, to which there may be padding.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = bytes.get(..usize::try_from(SEAL_BYTES).ok()?)?;
        let text = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
        let (hash, index_at) = text.split_once(' ')?;
        Some(Self {
            hash: blake3::Hash::from_hex(hash).ok()?,
            index_at: index_at.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for index_at in [0, 512, u64::MAX] {
            let seal = Seal::of(b"header", b"index", index_at);
            let text = seal.text();
            assert_eq!(text.len() as u64, SEAL_BYTES);
            assert_eq!(Seal::parse(text.as_bytes()), Some(seal));
            assert_eq!(Seal::parse(&text.as_bytes()[1..]), None);
        }
    }
}

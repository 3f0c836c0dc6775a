//! Where the content of device memory lies in the memory file.

use crate::budget::decode_fields;
use bincode::{Decode, Encode};

/// Size of a chunk of device memory in bytes, before compression; the last one of a mapping may be shorter.
pub const CHUNK_BYTES: u64 = 4 << 20;

/// Index of the memory file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode)]
pub struct MemoryIndex {
    /// Chunks by ascending address. Mapped memory that no chunk covers is zero.
    pub chunks: Vec<ChunkRef>,
    /// Pieces of the memory file; chunks of equal content share one.
    pub pieces: Vec<Piece>,
}

decode_fields!(MemoryIndex {
    chunks: list,
    pieces: list,
});

/// A chunk of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ChunkRef {
    /// Device address of its first byte.
    pub addr: u64,
    /// Index in [`MemoryIndex::pieces`].
    pub piece: u32,
}

/// A piece of the memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Piece {
    /// Offset in the memory file.
    pub offset_bytes: u64,
    /// Bytes in the memory file: one zstd frame, or the bytes themselves if as many as `raw_bytes`.
    pub stored_bytes: u32,
    /// Bytes of device memory.
    pub raw_bytes: u32,
    /// BLAKE3 of the bytes of device memory.
    pub hash: [u8; 32],
}

impl MemoryIndex {
    /// Bytes of the memory file.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.pieces.iter().map(|p| u64::from(p.stored_bytes)).sum()
    }
}

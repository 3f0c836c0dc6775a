//! From bytes as they were to bytes as they are stored. The context is kept from one part to the next: making one costs
//! more than a small part does.

use std::io;

use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

/// What parts are compressed with, one after the other.
pub(crate) struct Packer {
    /// zstd level.
    level: i32,
    compressor: Option<Compressor<'static>>,
}

impl Packer {
    pub(crate) fn new(level: i32) -> Self {
        Self {
            level,
            compressor: None,
        }
    }

    pub(crate) fn level(&self) -> i32 {
        self.level
    }

    /// Compresses `bytes` to one frame with content size and checksum, which becomes the content of `packed`.
    pub(crate) fn compress(&mut self, bytes: &[u8], packed: &mut Vec<u8>) -> io::Result<()> {
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            none => {
                let mut compressor = Compressor::new(self.level)?;
                compressor.include_checksum(true)?;
                none.insert(compressor)
            }
        };
        packed.clear();
        packed.reserve(compress_bound(bytes.len()));
        compressor.compress_to_buffer(bytes, packed).map(drop)
    }
}

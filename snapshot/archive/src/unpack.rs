//! From bytes as they are stored to bytes as they were. Contexts and buffers are kept from one part to the next: they
//! cost more than a small part does.
//!
//! What fails is told by its side: a disk that is full is not a damaged archive.

use std::io::{self, Read, Write};

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use crate::member::Pieces;

/// Bytes that are unpacked before they are written.
const OUTPUT_BYTES: usize = 1 << 20;

/// Why something cannot be unpacked.
#[derive(Debug)]
pub(crate) enum UnpackError {
    /// Its bytes cannot be read (host).
    Read(io::Error),
    /// Its bytes are not what they ought to be, which is said of it (input).
    Content(String),
    /// What comes out of it cannot be written (host).
    Write(io::Error),
}

/// What members are unpacked with, one after the other.
pub(crate) struct Unpacker {
    decoder: Decoder<'static>,
    input: Pieces,
    output: Vec<u8>,
}

impl Unpacker {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            decoder: Decoder::new()?,
            input: Pieces::default(),
            output: vec![0; OUTPUT_BYTES],
        })
    }

    /// Copies all that `input` gives to `out`; more than `limit_bytes` is an error. Gives the number of bytes.
    pub(crate) fn copy(
        &mut self,
        input: &mut impl Read,
        out: &mut impl Write,
        limit_bytes: u64,
    ) -> Result<u64, UnpackError> {
        let mut total = 0;
        loop {
            let piece = self.input.fill(input).map_err(UnpackError::Read)?;
            if piece.is_empty() {
                return Ok(total);
            }
            total = counted(total, piece, limit_bytes)?;
            out.write_all(piece).map_err(UnpackError::Write)?;
        }
    }

    /// Decompresses the one frame that `input` is to `out`; more than `limit_bytes` is an error. Gives the number of
    /// bytes.
    pub(crate) fn decompress(
        &mut self,
        input: &mut impl Read,
        out: &mut impl Write,
        limit_bytes: u64,
    ) -> Result<u64, UnpackError> {
        let bad = |e: io::Error| UnpackError::Content(format!("cannot be decompressed: {e}"));
        self.decoder.reinit().map_err(bad)?;
        let mut total = 0;
        loop {
            let piece = self.input.fill(input).map_err(UnpackError::Read)?;
            if piece.is_empty() {
                return Err(UnpackError::Content("ends inside its frame".to_owned()));
            }
            let mut source = InBuffer::around(piece);
            loop {
                let mut target = OutBuffer::around(&mut self.output[..]);
                let expected = self.decoder.run(&mut source, &mut target).map_err(bad)?;
                let unpacked = target.as_slice();
                total = counted(total, unpacked, limit_bytes)?;
                out.write_all(unpacked).map_err(UnpackError::Write)?;
                let (is_all_read, is_full) = (source.pos() == piece.len(), unpacked.len() == OUTPUT_BYTES);
                if expected == 0 {
                    return match is_all_read && self.input.fill(input).map_err(UnpackError::Read)?.is_empty() {
                        true => Ok(total),
                        false => Err(UnpackError::Content("goes on behind its frame".to_owned())),
                    };
                }
                if is_all_read && !is_full {
                    break;
                }
            }
        }
    }
}

fn counted(total: u64, bytes: &[u8], limit_bytes: u64) -> Result<u64, UnpackError> {
    let total = total.saturating_add(bytes.len() as u64);
    match total > limit_bytes {
        true => Err(UnpackError::Content("holds more than the index says".to_owned())),
        false => Ok(total),
    }
}

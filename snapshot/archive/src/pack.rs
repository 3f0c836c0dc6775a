//! From bytes as they were to bytes as they are stored. Contexts and buffers are kept from one member to the next, and
//! small members are compressed without threads: both cost more than such a member does.

use std::io::{self, Read, Write};

use zstd::bulk::Compressor;
use zstd::stream::raw::{CParameter, Encoder, InBuffer, Operation, OutBuffer};

use crate::member::Pieces;

/// Bytes that are compressed before they are written.
const OUTPUT_BYTES: usize = 1 << 20;

/// What members are compressed with, one after the other.
pub(crate) struct Packer {
    /// zstd level.
    level: i32,
    /// Threads; 0: as many as there are processors.
    threads: u32,
    input: Pieces,
    /// For what one piece holds whole.
    small: Option<Compressor<'static>>,
    packed: Vec<u8>,
    /// For the rest.
    large: Option<Encoder<'static>>,
}

impl Packer {
    pub(crate) fn new(level: i32, threads: u32) -> Self {
        Self {
            level,
            threads,
            input: Pieces::default(),
            small: None,
            packed: vec![],
            large: None,
        }
    }

    /// Copies all that `input` gives to `out`.
    pub(crate) fn copy(&mut self, input: &mut impl Read, out: &mut impl Write) -> io::Result<()> {
        loop {
            let piece = self.input.fill(input)?;
            if piece.is_empty() {
                return Ok(());
            }
            out.write_all(piece)?;
        }
    }

    /// Compresses all that `input` gives to one frame in `out`.
    pub(crate) fn compress(&mut self, input: &mut impl Read, out: &mut impl Write) -> io::Result<()> {
        let piece = self.input.fill(input)?;
        if piece.len() < Pieces::FIRST_BYTES {
            let compressor = match &mut self.small {
                Some(compressor) => compressor,
                none => none.insert(small(self.level)?),
            };
            self.packed.clear();
            self.packed.reserve(zstd::zstd_safe::compress_bound(piece.len()));
            compressor.compress_to_buffer(piece, &mut self.packed)?;
            return out.write_all(&self.packed);
        }
        let encoder = match &mut self.large {
            Some(encoder) => encoder,
            none => none.insert(large(self.level, self.threads)?),
        };
        encoder.reinit()?;
        self.packed.resize(OUTPUT_BYTES, 0);
        let mut source = InBuffer::around(piece);
        loop {
            while source.pos() < source.src.len() {
                let mut target = OutBuffer::around(&mut self.packed[..]);
                encoder.run(&mut source, &mut target)?;
                out.write_all(target.as_slice())?;
            }
            let piece = self.input.fill(input)?;
            if piece.is_empty() {
                break;
            }
            source = InBuffer::around(piece);
        }
        loop {
            let mut target = OutBuffer::around(&mut self.packed[..]);
            let left = encoder.finish(&mut target, false)?;
            out.write_all(target.as_slice())?;
            if left == 0 {
                return Ok(());
            }
        }
    }
}

fn small(level: i32) -> io::Result<Compressor<'static>> {
    let mut compressor = Compressor::new(level)?;
    compressor.include_checksum(true)?;
    Ok(compressor)
}

fn large(level: i32, threads: u32) -> io::Result<Encoder<'static>> {
    let mut encoder = Encoder::new(level)?;
    encoder.set_parameter(CParameter::ChecksumFlag(true))?;
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1)),
        n => n,
    };
    if threads > 1 {
        encoder.set_parameter(CParameter::NbWorkers(threads))?;
    }
    Ok(encoder)
}

//! From bytes as they were to bytes as they are stored. Contexts and buffers are kept from one part to the next, and
//! small parts are compressed without threads: both cost more than such a part does.

use std::io;

use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, compress_bound};

/// From this size on a part is compressed by several threads, bytes.
const LARGE_BYTES: usize = 1 << 20;

/// What parts are compressed with, one after the other.
pub(crate) struct Packer {
    /// zstd level.
    level: i32,
    /// Threads; 0: as many as there are processors.
    threads: u32,
    small: Option<Compressor<'static>>,
    large: Option<Compressor<'static>>,
    packed: Vec<u8>,
}

impl Packer {
    pub(crate) fn new(level: i32, threads: u32) -> Self {
        Self {
            level,
            threads,
            small: None,
            large: None,
            packed: vec![],
        }
    }

    /// Compresses `bytes` to one frame with content size and checksum.
    pub(crate) fn compress(&mut self, bytes: &[u8]) -> io::Result<&[u8]> {
        let (kept, threads) = match bytes.len() < LARGE_BYTES {
            true => (&mut self.small, 1),
            false => (&mut self.large, self.threads),
        };
        let compressor = match kept {
            Some(compressor) => compressor,
            none => none.insert(compressor(self.level, threads)?),
        };
        self.packed.clear();
        self.packed.reserve(compress_bound(bytes.len()));
        compressor.compress_to_buffer(bytes, &mut self.packed)?;
        Ok(&self.packed)
    }
}

fn compressor(level: i32, threads: u32) -> io::Result<Compressor<'static>> {
    let mut compressor = Compressor::new(level)?;
    compressor.include_checksum(true)?;
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1)),
        n => n,
    };
    if threads > 1 {
        compressor.set_parameter(CParameter::NbWorkers(threads))?;
    }
    Ok(compressor)
}

//! Where the pieces of device memory are written: a file, which several threads write at once, or a pipe, which takes
//! one after the other.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// A memory file that is being written, from its start.
pub struct MemoryFile<'a> {
    file: &'a File,
    end: End,
}

/// Where the next piece goes.
enum End {
    OfFile(AtomicU64),
    OfPipe(Mutex<u64>),
}

impl<'a> MemoryFile<'a> {
    /// `file` is open for writing, and nothing has been written to it.
    ///
    /// # Errors
    /// If it cannot be told what it is.
    pub fn new(file: &'a File) -> io::Result<Self> {
        let end = match file.metadata()?.file_type().is_fifo() {
            true => End::OfPipe(Mutex::new(0)),
            false => End::OfFile(AtomicU64::new(0)),
        };
        Ok(Self { file, end })
    }

    /// Adds a piece; gives the place of its first byte.
    ///
    /// # Errors
    /// What writing says; nothing may be added then.
    pub fn add(&self, piece: &[u8]) -> io::Result<u64> {
        match &self.end {
            End::OfFile(end) => {
                let offset = end.fetch_add(piece.len() as u64, Ordering::Relaxed);
                self.file.write_all_at(piece, offset)?;
                Ok(offset)
            }
            End::OfPipe(end) => {
                let mut end = end.lock();
                let (mut pipe, offset) = (self.file, *end);
                pipe.write_all(piece)?;
                *end += piece.len() as u64;
                Ok(offset)
            }
        }
    }
}

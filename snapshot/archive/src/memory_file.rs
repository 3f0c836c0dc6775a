//! Where the pieces of device memory are written: a file, or an archive's, which several threads write at once, or a
//! pipe, which takes one after the other.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::part_appender::{PartAppender, WrittenParts};

/// A memory file that is being written, from its start.
pub struct MemoryFile<'a> {
    file: &'a File,
    end: End<'a>,
}

/// Where the next piece goes.
enum End<'a> {
    File(AtomicU64),
    Pipe(Mutex<u64>),
    Archive(PartAppender<'a>),
}

impl<'a> MemoryFile<'a> {
    /// `file` is open for writing, and nothing has been written to it.
    ///
    /// # Errors
    /// If it cannot be told what it is.
    pub fn new(file: &'a File) -> io::Result<Self> {
        let end = match file.metadata()?.file_type().is_fifo() {
            true => End::Pipe(Mutex::new(0)),
            false => End::File(AtomicU64::new(0)),
        };
        Ok(Self { file, end })
    }

    /// The member `member` of an archive, `file`, that has been written so far.
    ///
    /// # Errors
    /// As [`PartAppender::new`].
    pub fn in_archive(file: &'a File, member: &str) -> io::Result<Self> {
        let end = End::Archive(PartAppender::new(file, member)?);
        Ok(Self { file, end })
    }

    /// Adds a piece; gives the place of its first byte. `hash` is its hash, if it is known.
    ///
    /// # Errors
    /// What writing says; nothing may be added then.
    pub fn add(&self, piece: &[u8], hash: Option<blake3::Hash>) -> io::Result<u64> {
        match &self.end {
            End::Archive(parts) => parts.add(piece, hash.unwrap_or_else(|| blake3::hash(piece))),
            End::File(end) => {
                let offset = end.fetch_add(piece.len() as u64, Ordering::Relaxed);
                self.file.write_all_at(piece, offset)?;
                Ok(offset)
            }
            End::Pipe(end) => {
                let mut end = end.lock();
                let (mut pipe, offset) = (self.file, *end);
                pipe.write_all(piece)?;
                *end += piece.len() as u64;
                Ok(offset)
            }
        }
    }

    /// Bytes so far.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match &self.end {
            End::File(end) => end.load(Ordering::Relaxed),
            End::Pipe(end) => *end.lock(),
            End::Archive(parts) => parts.size_bytes(),
        }
    }

    /// The parts, if it is an archive's member.
    ///
    /// # Errors
    /// As [`PartAppender::finish`].
    pub fn finish(self) -> io::Result<Option<WrittenParts>> {
        match self.end {
            End::Archive(parts) => parts.finish().map(Some),
            End::File(_) | End::Pipe(_) => Ok(None),
        }
    }
}

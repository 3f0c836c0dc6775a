//! Where the pieces of device memory are written: a file, an archive's, or several files, into which several threads
//! write at once, or a pipe, which takes one after the other.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::file_writer::FileWriter;
use crate::memory_source::MemberPlace;
use crate::part_appender::{PartAppender, WrittenParts};
use crate::stripes::Stripes;

/// A memory file that is being written, from its start.
pub struct MemoryFile<'a>(End<'a>);

/// Where the next piece goes.
enum End<'a> {
    File(FileWriter<'a>, AtomicU64),
    Pipe(&'a File, Mutex<u64>),
    Archive(PartAppender<'a>),
    Stripes(Stripes<'a>),
}

/// What has become of it.
pub enum WrittenFile {
    /// The file, or what the pipe took, is it.
    Whole,
    /// It is a member of an archive, of these parts.
    Parts(WrittenParts),
    /// It lies there in several files.
    Placed(MemberPlace),
}

impl<'a> MemoryFile<'a> {
    /// `file` is open for writing, and nothing has been written to it.
    ///
    /// # Errors
    /// If it cannot be told what it is.
    pub fn new(file: &'a File) -> io::Result<Self> {
        Ok(Self(match file.metadata()?.file_type().is_fifo() {
            true => End::Pipe(file, Mutex::new(0)),
            false => End::File(FileWriter::new(file), AtomicU64::new(0)),
        }))
    }

    /// Several files, as [`Stripes::new`] takes them.
    #[must_use]
    pub fn in_stripes(files: &'a [File]) -> Self {
        Self(End::Stripes(Stripes::new(files)))
    }

    /// The member `member` of an archive, `file`, that has been written so far.
    ///
    /// # Errors
    /// As [`PartAppender::new`].
    pub fn in_archive(file: &'a File, member: &str) -> io::Result<Self> {
        Ok(Self(End::Archive(PartAppender::new(file, member)?)))
    }

    /// Adds a piece; gives the place of its first byte. `hash` is its hash, if it is known.
    ///
    /// # Errors
    /// What writing says; nothing may be added then.
    pub fn add(&self, piece: &[u8], hash: Option<blake3::Hash>) -> io::Result<u64> {
        match &self.0 {
            End::Archive(parts) => parts.add(piece, hash.unwrap_or_else(|| blake3::hash(piece))),
            End::Stripes(stripes) => stripes.add(piece),
            End::File(file, end) => {
                let offset = end.fetch_add(piece.len() as u64, Ordering::Relaxed);
                file.write_all_at(&[piece], offset)?;
                Ok(offset)
            }
            End::Pipe(pipe, end) => {
                let mut end = end.lock();
                let (mut pipe, offset) = (*pipe, *end);
                pipe.write_all(piece)?;
                *end += piece.len() as u64;
                Ok(offset)
            }
        }
    }

    /// Bytes so far.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match &self.0 {
            End::File(_, end) => end.load(Ordering::Relaxed),
            End::Pipe(_, end) => *end.lock(),
            End::Archive(parts) => parts.size_bytes(),
            End::Stripes(stripes) => stripes.size_bytes(),
        }
    }

    /// Where it is, now that all of it has been written.
    ///
    /// # Errors
    /// As [`PartAppender::finish`].
    pub fn finish(self) -> io::Result<WrittenFile> {
        Ok(match self.0 {
            End::Archive(parts) => WrittenFile::Parts(parts.finish()?),
            End::Stripes(stripes) => WrittenFile::Placed(stripes.finish()),
            End::File(file, end) => {
                file.finish(end.into_inner())?;
                WrittenFile::Whole
            }
            End::Pipe(..) => WrittenFile::Whole,
        })
    }
}

//! An archive's way into a file.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};

use hetckpt_report::failure::Failure;
use hetckpt_supervise::interrupting::Interrupting;

use crate::outgoing::ArchiveSink;

/// Takes bytes one after the other, until a signal ends the work.
pub struct FileSink<'a> {
    file: &'a File,
    interrupting: &'a Interrupting<'a>,
}

impl<'a> FileSink<'a> {
    /// Of an empty file.
    pub fn new(file: &'a File, interrupting: &'a Interrupting<'a>) -> Self {
        Self { file, interrupting }
    }
}

impl ArchiveSink for FileSink<'_> {
    const DOING: &'static str = "writing";

    fn failure(&mut self) -> Option<Failure> {
        self.interrupting.interrupted("the dump")
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn settle(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn go_on_at(&mut self, position: u64) -> io::Result<()> {
        let mut file = self.file;
        file.seek(SeekFrom::Start(position)).map(drop)
    }
}

impl Write for FileSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.interrupting.has_come() {
            return Err(io::Error::other("a signal has come"));
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

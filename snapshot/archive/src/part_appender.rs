//! Parts of a member, written to an archive's file by several threads at once, while whoever writes the archive waits.

use std::fs::File;
use std::io;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::file_writer::FileWriter;
use crate::limits::MAX_PARTS;
use crate::manifest::{Part, part_name};
use crate::member::{TAR_BLOCK, tar_header, tar_padding};

/// The parts of a member that were written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenParts {
    /// Where the first one's header stands in the file.
    pub position: u64,
    /// All of them, in the file's order.
    pub parts: Vec<Part>,
    /// Numbers of known pieces that the member has behind them, in its order ([`crate::known_pieces`]).
    #[serde(default)]
    pub borrowed: Vec<u32>,
}

/// Appends parts behind what the file has.
pub struct PartAppender<'a> {
    writer: FileWriter<'a>,
    member: String,
    begin: u64,
    state: Mutex<State>,
}

struct State {
    /// Where the next part's header goes.
    position: u64,
    /// Bytes of the member so far.
    member_bytes: u64,
    /// In the file's order. Those that are still being written are among them.
    parts: Vec<Part>,
}

impl<'a> PartAppender<'a> {
    /// Parts of the member `member`. The file ends where the next header of a tar goes.
    ///
    /// # Errors
    /// What the system says, and if the file ends elsewhere.
    pub fn new(file: &'a File, member: &str) -> io::Result<Self> {
        let position = file.metadata()?.len();
        if !position.is_multiple_of(TAR_BLOCK) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file is no tar so far"));
        }
        Ok(Self {
            writer: FileWriter::new(file),
            member: member.to_owned(),
            begin: position,
            state: Mutex::new(State {
                position,
                member_bytes: 0,
                parts: vec![],
            }),
        })
    }

    /// Adds a part; gives the place of its first byte in the member.
    ///
    /// # Errors
    /// What the system says, and if there are too many parts. Nothing may be added then.
    pub fn add(&self, stored: &[u8], blake3: blake3::Hash) -> io::Result<u64> {
        let size = stored.len() as u64;
        let padding = tar_padding(size);
        let (number, position, offset) = {
            let mut state = self.state.lock();
            if state.parts.len() >= MAX_PARTS {
                let text = format!("an archive has {MAX_PARTS} parts at most");
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
            }
            let taken = (state.parts.len(), state.position, state.member_bytes);
            state.position += TAR_BLOCK + size + padding as u64;
            state.member_bytes += size;
            state.parts.push(Part {
                stored_bytes: size,
                raw_bytes: size,
                blake3,
            });
            taken
        };
        let header = tar_header(&part_name(&self.member, number), size)?;
        let padding = &[0; TAR_BLOCK as usize][..padding];
        self.writer
            .write_all_at(&[header.as_bytes(), stored, padding], position)?;
        Ok(offset)
    }

    /// Bytes of the member so far.
    pub fn size_bytes(&self) -> u64 {
        self.state.lock().member_bytes
    }

    /// The parts, all of which have been written: at least one, as a member has.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn finish(self) -> io::Result<WrittenParts> {
        if self.state.lock().parts.is_empty() {
            self.add(&[], blake3::hash(&[]))?;
        }
        let state = self.state.into_inner();
        self.writer.finish(state.position)?;
        Ok(WrittenParts {
            position: self.begin,
            parts: state.parts,
            borrowed: vec![],
        })
    }
}

//! Where the files of a process's state go: a folder, or this process.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use hetckpt_archive::known_pieces::KnownPieces;
use hetckpt_devices::device::PlannedView;
use hetckpt_state::names::{description_file, memory_file, parts_file, state_file};

use crate::kept_memory::{KeptMemory, copy_whole, in_memory};
use crate::memory_file;

/// A file of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What people and scripts want to know.
    Description,
    /// All but the memory's content.
    State,
    /// The memory's content.
    Memory,
    /// The parts of an archive that the memory's content has become, in its stead.
    MemoryParts,
}

impl Part {
    /// Its name for process `pid`.
    #[must_use]
    pub fn name(self, pid: u32) -> String {
        match self {
            Self::Description => description_file(pid),
            Self::State => state_file(pid),
            Self::Memory => memory_file(pid),
            Self::MemoryParts => parts_file(pid),
        }
    }
}

/// What takes the files.
pub trait StateOutput {
    /// The file for a part of the state of process `pid`, to be written from its start.
    ///
    /// # Errors
    /// What the system says.
    fn create(&self, part: Part, pid: u32) -> io::Result<File>;

    /// The archive that is to take the memory's content instead, if there is one.
    fn archive(&self) -> Option<&ArchiveEnd> {
        None
    }

    /// What is to take the memory's content instead in several files, if there are several.
    fn several_files(&self) -> Option<&KeptMemory> {
        None
    }
}

/// An archive that takes device memory behind what it has so far.
pub struct ArchiveEnd {
    /// The connection that has named it.
    pub of: u64,
    /// Its file.
    pub file: File,
    /// The member that the memory is to be.
    pub member: String,
    /// What it need not have.
    pub known: KnownPieces,
    /// If memory is to be kept as it is, and written when that connection asks for it.
    pub later: Option<Box<dyn PlannedView>>,
}

/// A folder, and the archive that takes what would be its largest file.
pub struct Folder {
    folder: OwnedFd,
    archive: Option<ArchiveEnd>,
}

impl Folder {
    /// An open one.
    #[must_use]
    pub fn new(folder: OwnedFd, archive: Option<ArchiveEnd>) -> Self {
        Self { folder, archive }
    }

    /// The view that is to be kept, if one is, and the connection that will ask for it.
    pub fn take_planned(&mut self) -> Option<(u64, Box<dyn PlannedView>)> {
        let archive = self.archive.as_mut()?;
        Some((archive.of, archive.later.take()?))
    }
}

impl StateOutput for Folder {
    fn create(&self, part: Part, pid: u32) -> io::Result<File> {
        // By its descriptor: it may have no path that this process can use.
        let folder = PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()));
        let path = folder.join(part.name(pid));
        match part {
            Part::Memory => memory_file::create(&path),
            Part::Description | Part::State | Part::MemoryParts => File::create(path),
        }
    }

    fn archive(&self) -> Option<&ArchiveEnd> {
        self.archive.as_ref()
    }
}

/// A state that this process keeps.
#[derive(Debug)]
pub struct KeptState {
    /// The description.
    pub description: File,
    /// The state.
    pub state: File,
    /// The memory's content.
    pub memory: KeptMemory,
}

impl KeptState {
    /// An empty one. `memory` takes the memory's content, if it is given.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(memory: Option<File>) -> io::Result<Self> {
        let given = |file| Ok(KeptMemory::of(vec![file], None));
        Ok(Self {
            description: in_memory("hetckpt-description")?,
            state: in_memory("hetckpt-state")?,
            memory: memory.map_or_else(KeptMemory::in_memory, given)?,
        })
    }

    /// It has no parts of an archive.
    fn part(&self, part: Part) -> io::Result<&File> {
        match part {
            Part::Description => Ok(&self.description),
            Part::State => Ok(&self.state),
            Part::Memory => self.memory.files().first().ok_or(io::ErrorKind::NotFound.into()),
            Part::MemoryParts => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Copies it to `output`; gives the names.
    ///
    /// # Errors
    /// What the system says, of which part.
    pub fn copy_to(&self, output: &impl StateOutput, pid: u32) -> Result<Vec<String>, (Part, io::Error)> {
        // The description last: what it describes is there.
        let parts = [Part::Memory, Part::State, Part::Description];
        for part in parts {
            let copied = output.create(part, pid).and_then(|mut to| match part {
                Part::Memory => self.memory.copy_to(&mut to),
                _ => copy_whole(self.part(part)?, &mut to),
            });
            copied.map_err(|error| (part, error))?;
        }
        Ok(parts.map(|part| part.name(pid)).into())
    }
}

impl StateOutput for KeptState {
    fn create(&self, part: Part, _: u32) -> io::Result<File> {
        self.part(part)?.try_clone()
    }

    fn several_files(&self) -> Option<&KeptMemory> {
        (self.memory.files().len() > 1).then_some(&self.memory)
    }
}

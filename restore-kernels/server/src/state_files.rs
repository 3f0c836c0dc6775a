//! The files of a process's state, opened before they are read: who may open them need not be who reads them.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use hetckpt_archive::chunk::Origin;
use hetckpt_archive::limits::{MAX_STATE_BYTES, MAX_TEXT_MEMBER_BYTES};
use hetckpt_archive::memory_source::{Lender, MemberPlace, MemorySource};
use hetckpt_archive::parallel::cores;
use hetckpt_archive::served_bytes::ServedBytes;
use hetckpt_state::names::{description_file, lender_file, memory_file, place_file, state_file, user_file};
use hetckpt_state::summary::{Description, DescriptionError, MAX_DESCRIPTION_BYTES, ServerUser};
use nix::unistd::geteuid;

use crate::error::ServerError;
use crate::state_output::{KeptState, Part};

struct StateFile {
    path: PathBuf,
    file: File,
}

impl StateFile {
    /// `None` if there is no such file.
    fn find(path: PathBuf) -> Result<Option<Self>, ServerError> {
        match Self::open(path) {
            Err(ServerError::File { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn open(path: PathBuf) -> Result<Self, ServerError> {
        match File::open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(ServerError::File { path, source }),
        }
    }

    /// Its bytes, and one more than `most_bytes` if it is longer.
    fn read(&self, most_bytes: u64) -> Result<Vec<u8>, ServerError> {
        let mut file = &self.file;
        let size_bytes = file.metadata().map_or(0, |found| found.len().min(most_bytes));
        // A list that grows takes twice as much for a while.
        let mut bytes = Vec::with_capacity(usize::try_from(size_bytes).unwrap_or(0));
        let read = file
            .rewind()
            .and_then(|()| file.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes));
        let of = |source| ServerError::File {
            path: self.path.clone(),
            source,
        };
        read.map(|_| bytes).map_err(of)
    }

    /// The same, open once more.
    fn again(&self) -> Result<File, ServerError> {
        self.file.try_clone().map_err(|source| ServerError::File {
            path: self.path.clone(),
            source,
        })
    }

    /// Makes sure that none but root can have written it, if this process is root's. A user namespace has no power over
    /// others anyway, and no name for who is root outside.
    fn ensure_of_root(&self) -> Result<(), ServerError> {
        let found = self.file.metadata().map_err(|source| ServerError::File {
            path: self.path.clone(),
            source,
        })?;
        if !geteuid().is_root() || is_in_user_namespace() || (found.uid() == 0 && found.mode() & 0o022 == 0) {
            return Ok(());
        }
        let (path, uid, mode) = (self.path.clone(), found.uid(), found.mode() & 0o777);
        Err(ServerError::NotOfRoot { path, uid, mode })
    }
}

/// True if some ids are not what they are outside.
fn is_in_user_namespace() -> bool {
    const ALL_IDS: [&str; 3] = ["0", "0", "4294967295"];
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !map.split_whitespace().eq(ALL_IDS)
}

/// Where device memory is.
enum Memory {
    /// In a file of its own.
    Own(StateFile),
    /// In archives.
    Member(MemberPlace, Vec<Lender>),
}

impl Memory {
    /// That of process `pid` in `dir`.
    fn open(dir: &Path, pid: u32) -> Result<Self, ServerError> {
        let open = |number| {
            let path = dir.join(lender_file(pid, number));
            let is_socket = std::fs::metadata(&path).is_ok_and(|found| found.file_type().is_socket());
            match is_socket {
                false => Ok(Lender::from(StateFile::open(path)?.file)),
                true => match ServedBytes::connect(&path, cores().min(MOST_CONNECTIONS)) {
                    Ok(served) => Ok(Lender::Served(served.into())),
                    Err(source) => Err(ServerError::File { path, source }),
                },
            }
        };
        let Some(place) = StateFile::find(dir.join(place_file(pid)))? else {
            return StateFile::open(dir.join(memory_file(pid))).map(Self::Own);
        };
        let place = parse_place(&place)?;
        let last = place.parts.iter().map(|part| part.file).max().unwrap_or(0);
        let lenders = (0..=last).map(open).collect::<Result<_, _>>()?;
        Ok(Self::Member(place, lenders))
    }
}

/// Most connections to whoever serves an archive that is no file of this machine.
const MOST_CONNECTIONS: usize = 16;

/// The files of one process's state.
pub struct StateFiles {
    pid: u32,
    description: StateFile,
    state: StateFile,
    memory: Memory,
    user: Option<StateFile>,
    /// Of the memory.
    origin: Origin,
}

impl StateFiles {
    /// Opens those of process `pid` in `dir`.
    ///
    /// # Errors
    /// [`ServerError::File`].
    pub fn open(dir: &Path, pid: u32) -> Result<Self, ServerError> {
        let open = |name: String| StateFile::open(dir.join(name));
        Ok(Self {
            pid,
            description: open(description_file(pid))?,
            state: open(state_file(pid))?,
            memory: Memory::open(dir, pid)?,
            user: StateFile::find(dir.join(user_file(pid)))?,
            origin: Origin::Outside,
        })
    }

    /// Those that this process keeps.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_kept(state: &KeptState, pid: u32) -> std::io::Result<Self> {
        let of = |file: &File, part: Part| {
            Ok::<_, std::io::Error>(StateFile {
                path: part.name(pid).into(),
                file: file.try_clone()?,
            })
        };
        let mut files = state.memory.files().iter();
        // A file that was named is anybody's; files of shared memory are this process's.
        let (memory, origin) = match state.memory.place() {
            None => {
                let file = files.next().ok_or(std::io::ErrorKind::NotFound)?;
                (Memory::Own(of(file, Part::Memory)?), Origin::Outside)
            }
            Some(place) => {
                let lenders = files.map(|file| Ok(file.try_clone()?.into()));
                let lenders = lenders.collect::<std::io::Result<_>>()?;
                (Memory::Member(place.clone(), lenders), Origin::OwnMemory)
            }
        };
        Ok(Self {
            pid,
            description: of(&state.description, Part::Description)?,
            state: of(&state.state, Part::State)?,
            memory,
            origin,
            user: None,
        })
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The description.
    ///
    /// # Errors
    /// [`ServerError::File`], [`ServerError::Damaged`], [`ServerError::Version`].
    pub fn description(&self) -> Result<Description, ServerError> {
        Description::parse(&self.description.read(MAX_DESCRIPTION_BYTES)?).map_err(|error| match error {
            DescriptionError::Version { found, known } => ServerError::Version { found, known },
            error => ServerError::Damaged(error.into()),
        })
    }

    /// As whom its device server ran: what whoever dumped has witnessed; what the server said of itself in files of
    /// older versions, which have no more ([`crate::run_as::ensure_may_serve`] finds later if that was root and should
    /// not have been).
    ///
    /// # Errors
    /// As [`Self::description`], [`ServerError::NotOfRoot`].
    pub fn server_user(&self) -> Result<Option<ServerUser>, ServerError> {
        let Some(file) = &self.user else {
            return Ok(self.description()?.server_user);
        };
        file.ensure_of_root()?;
        let user = serde_json::from_slice(&file.read(MAX_DESCRIPTION_BYTES)?);
        user.map(Some).map_err(|e| ServerError::Damaged(e.into()))
    }

    /// The state, compressed.
    ///
    /// # Errors
    /// [`ServerError::File`].
    pub fn state(&self) -> Result<Vec<u8>, ServerError> {
        self.state.read(MAX_STATE_BYTES)
    }

    /// Where device memory's content comes from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Device memory.
    ///
    /// # Errors
    /// [`ServerError::File`].
    pub fn memory(&self) -> Result<MemorySource, ServerError> {
        match &self.memory {
            Memory::Own(file) => file.again().map(MemorySource::File),
            Memory::Member(place, lenders) => Ok(MemorySource::member(lenders.clone(), place)),
        }
    }
}

fn parse_place(file: &StateFile) -> Result<MemberPlace, ServerError> {
    let place = serde_json::from_slice(&file.read(MAX_TEXT_MEMBER_BYTES)?);
    place.map_err(|error| ServerError::Damaged(error.into()))
}

//! The files of a process's state, opened before they are read: who may open them need not be who reads them.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hetckpt_archive::chunk::Origin;
use hetckpt_archive::limits::{MAX_STATE_BYTES, MAX_TEXT_MEMBER_BYTES};
use hetckpt_archive::memory_source::{MemberPlace, MemorySource};
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

/// The files of one process's state.
pub struct StateFiles {
    pid: u32,
    description: StateFile,
    state: StateFile,
    memory: StateFile,
    /// Where the memory lies in its file and others, if these are archives.
    place: Option<(MemberPlace, Vec<StateFile>)>,
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
        let place = match StateFile::find(dir.join(place_file(pid)))? {
            None => None,
            Some(file) => {
                let place = parse_place(&file)?;
                let last = place.parts.iter().map(|part| part.file).max().unwrap_or(0);
                let others = (1..=last).map(|number| open(lender_file(pid, number)));
                Some((place, others.collect::<Result<_, _>>()?))
            }
        };
        Ok(Self {
            pid,
            description: open(description_file(pid))?,
            state: open(state_file(pid))?,
            memory: open(memory_file(pid))?,
            place,
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
        let mut memory = state.memory.files().iter().map(|file| of(file, Part::Memory));
        let first = memory.next();
        let place = match state.memory.place() {
            None => None,
            Some(place) => Some((place.clone(), memory.collect::<Result<_, _>>()?)),
        };
        Ok(Self {
            pid,
            description: of(&state.description, Part::Description)?,
            state: of(&state.state, Part::State)?,
            memory: first.ok_or(std::io::ErrorKind::NotFound)??,
            // A file that was named is anybody's; files of shared memory are this process's.
            origin: match place {
                Some(_) => Origin::OwnMemory,
                None => Origin::Outside,
            },
            place,
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
        let own = self.memory.again()?;
        let Some((place, others)) = &self.place else {
            return Ok(MemorySource::File(own));
        };
        let others = others.iter().map(StateFile::again);
        let files = [Ok(own)].into_iter().chain(others).collect::<Result<_, _>>()?;
        Ok(MemorySource::member(files, place))
    }
}

fn parse_place(file: &StateFile) -> Result<MemberPlace, ServerError> {
    let place = serde_json::from_slice(&file.read(MAX_TEXT_MEMBER_BYTES)?);
    place.map_err(|error| ServerError::Damaged(error.into()))
}

//! The files of a process's state, opened before they are read: who may open them need not be who reads them.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use hetckpt_state::names::{FORMAT_VERSION, description_file, memory_file, state_file};
use hetckpt_state::summary::Description;

use crate::error::ServerError;

/// Largest state file that is read, compressed and decompressed.
pub const MAX_FILE_BYTES: u64 = 16 << 30;

struct StateFile {
    path: PathBuf,
    file: File,
}

impl StateFile {
    fn open(path: PathBuf) -> Result<Self, ServerError> {
        match File::open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(ServerError::File { path, source }),
        }
    }

    fn read(&self) -> Result<Vec<u8>, ServerError> {
        let mut bytes = Vec::new();
        let mut file = &self.file;
        let read = file
            .rewind()
            .and_then(|()| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
        let of = |source| ServerError::File {
            path: self.path.clone(),
            source,
        };
        read.map(|_| bytes).map_err(of)
    }
}

/// The files of one process's state.
pub struct StateFiles {
    pid: u32,
    description: StateFile,
    state: StateFile,
    memory: StateFile,
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
            memory: open(memory_file(pid))?,
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
        let damaged = |what: String| ServerError::Damaged(what);
        let json = self.description.read()?;
        // The version first: what follows may have changed since.
        let value: serde_json::Value = serde_json::from_slice(&json).map_err(|e| damaged(e.to_string()))?;
        let found = value.get("format_version").and_then(serde_json::Value::as_u64);
        let found = found
            .and_then(|v| u32::try_from(v).ok())
            .ok_or_else(|| damaged("no format version".to_owned()))?;
        if found != FORMAT_VERSION {
            return Err(ServerError::Version {
                found,
                known: FORMAT_VERSION,
            });
        }
        serde_json::from_value(value).map_err(|e| damaged(e.to_string()))
    }

    /// The state, compressed.
    ///
    /// # Errors
    /// [`ServerError::File`].
    pub fn state(&self) -> Result<Vec<u8>, ServerError> {
        self.state.read()
    }

    /// Device memory, from its start.
    #[must_use]
    pub fn memory(&self) -> &File {
        &self.memory.file
    }
}

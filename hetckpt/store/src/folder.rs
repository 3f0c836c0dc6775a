//! A store in a folder of a file system, which may be shared by many machines.
//!
//! Nothing is locked. A file gets its name when it is complete and on disk, by a rename or, if it must be the first of
//! its name, by a hard link, both of which NFS carries out on the server. Files have mode 0600, folders 0700.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tempfile::NamedTempFile;

use crate::error::StoreError;
use crate::record::MAX_RECORD_BYTES;

/// Names of unfinished files begin so.
const UNFINISHED: &str = ".unfinished-";

/// A file in a folder, or an object in an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its name in its job.
    pub(crate) name: String,
    /// Its size, bytes.
    pub(crate) bytes: u64,
    /// When it was last written.
    pub(crate) modified: SystemTime,
}

/// The store.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) root: PathBuf,
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Folder { action, path, source }
}

impl Folder {
    /// Path of what is called `name`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Makes the folder of `path`, and those above it.
    pub(crate) fn make_parent(&self, path: &Path) -> Result<PathBuf, StoreError> {
        let parent = path.parent().unwrap_or(&self.root);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
        made.map_err(failed("make the folder", parent))?;
        Ok(parent.to_owned())
    }

    /// What is in the small file `name`, if it is there.
    pub(crate) fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.path(name);
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed("open", &path))?,
        };
        let mut bytes = vec![];
        let read = file.take(MAX_RECORD_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(failed("read", &path))?;
        Ok(Some(bytes))
    }

    /// Writes the file `name`, in the place of what has that name.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.write(name, |out| {
            out.write_all(bytes).map_err(failed("write", &self.path(name)))
        })
    }

    /// The same of what `produce` writes.
    pub(crate) fn write(
        &self,
        name: &str,
        produce: impl FnOnce(&mut File) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let path = self.path(name);
        let parent = self.make_parent(&path)?;
        let mut unfinished = unfinished(&parent)?;
        produce(unfinished.as_file_mut())?;
        unfinished.as_file().sync_all().map_err(failed("write", &path))?;
        unfinished.persist(&path).map_err(|e| failed("write", &path)(e.error))?;
        sync(&parent)
    }

    /// Writes the file `name`; false if there is one.
    pub(crate) fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, StoreError> {
        let path = self.path(name);
        let parent = self.make_parent(&path)?;
        let mut unfinished = unfinished(&parent)?;
        unfinished.write_all(bytes).map_err(failed("write", &path))?;
        unfinished.as_file().sync_all().map_err(failed("write", &path))?;
        let linked = fs::hard_link(unfinished.path(), &path);
        // The answer to a link over NFS may be lost, and the link be there.
        let is_there = unfinished.as_file().metadata().is_ok_and(|found| found.nlink() == 2);
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && !is_there => Ok(false),
            Err(error) if !is_there => Err(failed("write", &path)(error)),
            _ => sync(&parent).map(|()| true),
        }
    }

    /// The jobs' folders.
    pub(crate) fn folders(&self) -> Result<Vec<String>, StoreError> {
        let entries = read_dir(&self.root)?.into_iter().filter(|entry| entry.path().is_dir());
        Ok(entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect())
    }

    /// What is in a job's folder, unfinished files too.
    pub(crate) fn list(&self, job: &str) -> Result<Vec<Found>, StoreError> {
        let folder = self.path(job);
        let mut all = vec![];
        for entry in read_dir(&folder)? {
            let (Ok(name), Ok(found)) = (entry.file_name().into_string(), entry.metadata()) else {
                continue;
            };
            if found.is_file() {
                let modified = found.modified().map_err(failed("look at", &entry.path()))?;
                let bytes = found.len();
                all.push(Found { name, bytes, modified });
            }
        }
        Ok(all)
    }

    /// Removes the file `name`, if it is there.
    pub(crate) fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(failed("remove", &path)),
        }
    }

    /// Removes a job's folder, if nothing is in it.
    pub(crate) fn remove_folder(&self, job: &str) {
        // What is in it may be somebody else's.
        let _ = fs::remove_dir(self.path(job));
    }

    /// Opens the file `name` to be read, and makes it private: a dump may have written it.
    pub(crate) fn open(&self, name: &str) -> Result<(File, u64), StoreError> {
        let path = self.path(name);
        let file = File::open(&path).map_err(failed("open", &path))?;
        let found = file.metadata().map_err(failed("look at", &path))?;
        if found.permissions().mode() & 0o077 != 0 && found.uid() == nix::unistd::geteuid().as_raw() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed("make private", &path))?;
        }
        Ok((file, found.len()))
    }
}

/// True if a dump, or this store, has left a file of this name unfinished.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.starts_with('.')
}

fn unfinished(parent: &Path) -> Result<NamedTempFile, StoreError> {
    let made = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(parent);
    made.map_err(failed("write in", parent))
}

fn sync(folder: &Path) -> Result<(), StoreError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(failed("write in", folder))
}

fn read_dir(folder: &Path) -> Result<Vec<fs::DirEntry>, StoreError> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(vec![]),
        entries => entries.and_then(Iterator::collect).map_err(failed("list", folder)),
    }
}

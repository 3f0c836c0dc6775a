//! The target's folder: a snapshot's archive, and a record of how far it has come, which a `serve` that is started anew
//! goes by.
//!
//! | file | |
//! |---|---|
//! | `ID.part` | an archive that is being received |
//! | `ID.hetsnap` | one that is whole, verified and flushed |
//! | `ID.json` | its record: [`Record`] |
//! | `ID.started`, `ID.pid` | written by the restore once the program runs; its process id on this node |
//! | `ID.stdout`, `ID.stderr` | what the program says where it had pipes, and what the restore says |

use hetckpt_ring::failure_code::Code;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use hetckpt_archive::verify;
use hetckpt_report::archive_error;
use hetckpt_report::failure::Failure;
use hetckpt_supervise::result_file::PREFIX as RESULT_PREFIX;

use crate::migration::message::{Report, is_id};
use crate::migration::peer::KeyHash;

/// How names of files begin that a record is written to before it gets its own.
const RECORD_PREFIX: &str = ".record-";

/// How far a snapshot has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum State {
    /// The archive is whole; the source has not said yet whose the program is. It is not started.
    Prepared,
    /// The program is this node's and has to be started.
    Released,
    /// It is being started; from here on it is not started again.
    Starting {
        /// The restore, once it has been started.
        restore: Option<ProcessId>,
    },
    /// It runs.
    Running {
        /// The restore, which stands in for it.
        restore: ProcessId,
    },
    /// It has run and ended.
    Ended {
        /// Its exit status, as a shell has it, if anybody knows.
        status: Option<i32>,
    },
    /// It could not be started; the archive stays.
    Failed {
        /// Why.
        reason: Report,
    },
}

/// A process that is not taken for a later one of the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its id.
    pub pid: i32,
    /// When it was started, in the system's ticks.
    pub start: u64,
}

/// What is known of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// How far it has come.
    #[serde(flatten)]
    pub state: State,
    /// The root of the program's tree: what it is called on this node once it runs, before that as the dump has it.
    pub root_pid: i32,
    /// Its command line.
    pub command: Vec<String>,
    /// The node that has sent it, which alone may say whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<KeyHash>,
}

/// The folder. One `serve` has it.
#[derive(Debug)]
pub struct Depot {
    folder: PathBuf,
    _lock: File,
    /// Snapshots that are on their way. Held while records change.
    receiving: Mutex<BTreeMap<String, Arriving>>,
}

/// A snapshot that is on its way.
#[derive(Debug)]
struct Arriving {
    /// The node that sends it.
    owner: Option<KeyHash>,
    /// It has withdrawn it meanwhile.
    is_withdrawn: bool,
}

/// What a release meets.
#[derive(Debug, PartialEq, Eq)]
pub enum Release {
    /// Now it is this node's: whoever gets this starts it.
    Now,
    /// It was before.
    Before,
    /// There is no such snapshot.
    Unknown,
}

impl Depot {
    /// Opens `folder`, which is made if it is not there, for us alone; removes what was not received to its end.
    pub fn open(folder: &Path) -> Result<Self, Failure> {
        let cannot = |why: String| {
            Failure::new(
                Code::CannotListen,
                format!("cannot use the folder {}", folder.display()),
            )
            .note(why)
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|e| cannot(e.to_string()))?;
        let folder = fs::canonicalize(folder).map_err(|e| cannot(e.to_string()))?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(folder.join("serve.lock"))
            .map_err(|e| cannot(e.to_string()))?;
        lock.try_lock()
            .map_err(|_| cannot("another `hetckpt serve` uses it".to_owned()))?;
        let depot = Self {
            folder,
            _lock: lock,
            receiving: Mutex::default(),
        };
        for entry in fs::read_dir(&depot.folder)
            .map_err(|e| cannot(e.to_string()))?
            .flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(RECORD_PREFIX) {
                // An earlier `serve` was killed as it wrote it.
                let _ = fs::remove_file(entry.path());
            } else if let Some(id) = name.strip_suffix(".part").filter(|id| is_id(id)) {
                // Nobody was told that it is here.
                let _ = fs::remove_file(depot.file(id, "json"));
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(depot)
    }

    /// A file of the snapshot `id`.
    pub fn file(&self, id: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{id}.{extension}"))
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes what a restore of `id` that was killed would have given its name later. There must be no such restore
    /// any more.
    pub fn remove_unfinished(&self, id: &str) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_of = |extension: &str| name.ends_with(&format!("{id}.{extension}"));
            if name.starts_with(RESULT_PREFIX) && (is_of("started") || is_of("pid")) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Removes what nobody needs any more once the program of `id` has ended. Its archive, its record, and what it and
    /// the restore have said stay.
    pub fn remove_ended(&self, id: &str) {
        for extension in ["started", "pid"] {
            let _ = fs::remove_file(self.file(id, extension));
        }
        self.remove_unfinished(id);
        for extension in ["stdout", "stderr"] {
            let path = self.file(id, extension);
            if fs::metadata(&path).is_ok_and(|found| found.len() == 0) {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// All records.
    pub fn records(&self) -> Vec<(String, Record)> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.strip_suffix(".json").filter(|id| is_id(id)).map(str::to_owned)
        });
        ids.filter_map(|id| self.record(&id).map(|record| (id, record)))
            .collect()
    }

    /// The record of `id`.
    pub fn record(&self, id: &str) -> Option<Record> {
        let text = is_id(id).then(|| fs::read(self.file(id, "json")).ok()).flatten()?;
        serde_json::from_slice(&text).ok()
    }

    /// Writes the record of `id`: from then on it says so even if the power fails.
    pub fn write(&self, id: &str, record: &Record) -> Result<(), Failure> {
        let write = || -> io::Result<()> {
            let mut file = tempfile::Builder::new()
                .prefix(RECORD_PREFIX)
                .tempfile_in(&self.folder)?;
            file.write_all(&serde_json::to_vec_pretty(record)?)?;
            file.as_file().sync_all()?;
            file.persist(self.file(id, "json")).map_err(|e| e.error)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(|e| self.cannot_write(&self.file(id, "json"), &e))
    }

    fn cannot_write(&self, path: &Path, error: &io::Error) -> Failure {
        Failure::new(Code::CannotWrite, format!("cannot write {}", path.display()))
            .note(error.to_string())
            .help(format!("make room in {}", self.folder.display()))
    }

    fn receiving(&self) -> MutexGuard<'_, BTreeMap<String, Arriving>> {
        self.receiving.lock()
    }

    /// Bytes of all archives, those on their way too.
    pub fn archive_bytes(&self) -> u64 {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let archives = entries.filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.ends_with(".hetsnap") || name.ends_with(".part")
        });
        archives
            .filter_map(|entry| entry.metadata().ok())
            .map(|found| found.len())
            .sum()
    }

    /// Removes what was prepared `after` so long a time before `now`, and has not been released. Gives the ids.
    pub fn expire(&self, now: SystemTime, after: Duration) -> Vec<String> {
        let _one_at_a_time = self.receiving();
        let is_over = |id: &str| {
            let since = fs::metadata(self.file(id, "json")).and_then(|found| found.modified());
            since.is_ok_and(|since| now.duration_since(since).is_ok_and(|age| age > after))
        };
        let records = self.records().into_iter();
        let expired = records.filter(|(id, record)| record.state == State::Prepared && is_over(id));
        expired.map(|(id, _)| id).inspect(|id| self.remove(id)).collect()
    }

    fn remove(&self, id: &str) {
        // The record first: an archive alone is nobody's.
        let _ = fs::remove_file(self.file(id, "json"));
        let _ = fs::remove_file(self.file(id, "hetsnap"));
    }

    /// Begins to receive the snapshot `id` from the node `owner`.
    pub fn begin(&self, id: &str, owner: Option<KeyHash>) -> Result<Incoming<'_>, Failure> {
        let path = self.file(id, "part");
        if !is_id(id) || self.record(id).is_some() {
            return Err(Failure::new(
                Code::NotUnderstood,
                format!(
                    "`{}` is not a valid id, or this node knows that snapshot already",
                    id.escape_debug()
                ),
            ));
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|e| self.cannot_write(&path, &e))?;
        let arriving = Arriving {
            owner,
            is_withdrawn: false,
        };
        self.receiving().insert(id.to_owned(), arriving);
        Ok(Incoming {
            depot: self,
            id: id.to_owned(),
            path,
            file,
        })
    }

    /// The source has ended the program: it is this node's. What another node has sent is as unknown to `caller` as
    /// what nobody has.
    pub fn release(&self, id: &str, caller: Option<&KeyHash>) -> Result<Release, Failure> {
        let _one_at_a_time = self.receiving();
        let record = self.record(id).filter(|_| !self.file(id, "part").exists());
        let Some(record) = record.filter(|record| is_of(record.owner.as_ref(), caller)) else {
            return Ok(Release::Unknown);
        };
        if record.state != State::Prepared {
            return Ok(Release::Before);
        }
        let state = State::Released;
        self.write(id, &Record { state, ..record })?;
        Ok(Release::Now)
    }

    /// The program goes on at the source: what there is of it is removed, or will be when it has come. False if it was
    /// released before. Of what another node than `caller` has sent nothing is removed.
    pub fn withdraw(&self, id: &str, caller: Option<&KeyHash>) -> bool {
        let mut receiving = self.receiving();
        let arriving = receiving.get_mut(id);
        if let Some(arriving) = arriving.filter(|arriving| is_of(arriving.owner.as_ref(), caller)) {
            arriving.is_withdrawn = true;
        }
        match self.record(id).filter(|record| is_of(record.owner.as_ref(), caller)) {
            Some(record) if record.state != State::Prepared => false,
            Some(_) => {
                self.remove(id);
                true
            }
            None => true,
        }
    }
}

/// True if `caller` is the node that has sent a snapshot; records that name none are of a version that noted none.
fn is_of(owner: Option<&KeyHash>, caller: Option<&KeyHash>) -> bool {
    owner.is_none_or(|owner| caller == Some(owner))
}

/// An archive on its way in. It is removed when this is dropped, unless [`Incoming::prepare`] has succeeded.
#[derive(Debug)]
pub struct Incoming<'a> {
    depot: &'a Depot,
    id: String,
    /// The file.
    pub path: PathBuf,
    file: File,
}

impl Incoming<'_> {
    /// Takes bytes of the archive.
    pub fn take(&self, position: u64, bytes: &[u8]) -> Result<(), Failure> {
        use std::os::unix::fs::FileExt;
        let written = self.file.write_all_at(bytes, position);
        written.map_err(|e| self.depot.cannot_write(&self.path, &e))
    }

    /// Flushes the archive to disk and makes sure that it is the one that the source has written.
    pub fn verify(&self, size_bytes: u64, manifest_hash: &str) -> Result<(), Failure> {
        self.file
            .sync_all()
            .map_err(|e| self.depot.cannot_write(&self.path, &e))?;
        let archive = verify::verify(&self.path).map_err(archive_error::failure)?;
        let size = self.file.metadata().map_or(0, |found| found.len());
        match archive.manifest_hash() == manifest_hash && size == size_bytes {
            true => Ok(()),
            false => Err(Failure::new(Code::Damaged, "the archive is not the one that was sent")),
        }
    }

    /// Gives the archive its name: from now on it outlives us, until its source has said whose the program is. Gives
    /// its path.
    pub fn prepare(self, record: &Record) -> Result<PathBuf, Failure> {
        let receiving = self.depot.receiving();
        if receiving.get(&self.id).is_none_or(|arriving| arriving.is_withdrawn) {
            return Err(Failure::new(
                Code::ConnectionBroke,
                "the source has taken the program back",
            ));
        }
        let path = self.depot.file(&self.id, "hetsnap");
        // A record beside what is not whole yet says nothing: the name decides.
        self.depot.write(&self.id, record)?;
        let named = fs::rename(&self.path, &path).and_then(|()| File::open(&self.depot.folder)?.sync_all());
        if let Err(e) = named {
            let _ = fs::remove_file(self.depot.file(&self.id, "json"));
            let _ = fs::remove_file(&path);
            return Err(self.depot.cannot_write(&path, &e));
        }
        drop(receiving);
        Ok(path)
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        self.depot.receiving().remove(&self.id);
        // It has another name if it was prepared.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
#[path = "depot_tests.rs"]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;

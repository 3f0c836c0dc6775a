//! The snapshots of one job in a store.
//!
//! `NAME/ID.hetsnap` is an archive, and `NAME/ID.json` its record, which is written last: an archive without a record
//! is none. Ids ascend with time.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use hetckpt_report::failure::Failure;
use hetckpt_ring::failure_code::Code;

/// After which time without a sign of life a run of a job counts as gone.
const CLAIM_LIMIT: Duration = Duration::from_secs(60);

/// What there is to know of a snapshot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// Its name within the job.
    pub id: String,
    /// When it was taken, seconds since 1970.
    pub time: u64,
    /// Length of the archive, bytes.
    pub bytes: u64,
    /// What the program had in memory, its devices' included, bytes.
    pub memory_bytes: u64,
    /// How long the dump took, seconds.
    pub dump_seconds: f64,
    /// The device it ran on.
    pub device: String,
    /// The node it ran on.
    pub host: String,
    /// The program ran on after it.
    pub is_periodic: bool,
}

/// How the job's program has ended.
#[derive(Debug, Serialize, Deserialize)]
struct Ended {
    exit_code: u8,
}

/// Who runs the job.
#[derive(Debug, Serialize, Deserialize)]
struct Claim {
    host: String,
    pid: u32,
    run: u32,
    /// Seconds since 1970.
    renewed: u64,
}

/// How many runs in a row could not restore the job.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Failures {
    count: u32,
}

/// A job's folder in the store.
#[derive(Debug)]
pub struct Snapshots {
    folder: PathBuf,
    claim: Option<Claim>,
}

impl Snapshots {
    /// The folder of the job `name` below `store`; it is made if it is not there.
    pub fn open(store: &Path, name: &str) -> Result<Self, Failure> {
        let cannot = |e: io::Error| {
            Failure::new(Code::CannotWrite, format!("cannot use the store {}", store.display()))
                .note(e.to_string())
                .help("name a folder that all nodes see and that you may write to: --store FOLDER")
        };
        let folder = std::path::absolute(store.join(name)).map_err(cannot)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(cannot)?;
        Ok(Self { folder, claim: None })
    }

    /// Where the job's snapshots lie.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The exit code of a program that has ended.
    pub fn ended(&self) -> Option<u8> {
        self.read::<Ended>("ended.json").map(|ended| ended.exit_code)
    }

    /// Keeps the exit code of the program, which has ended; its snapshots go.
    pub fn set_ended(&self, exit_code: u8) -> Result<(), Failure> {
        self.write("ended.json", &Ended { exit_code })?;
        for record in self.list() {
            self.remove(&record.id);
        }
        self.sweep();
        Ok(())
    }

    /// Makes this process the one that runs the job, the `run`-th time.
    pub fn claim(&mut self, run: u32) -> Result<(), Failure> {
        let own = Claim {
            host: host(),
            pid: std::process::id(),
            run,
            renewed: now(),
        };
        if let Some(other) = self.read::<Claim>("claim.json") {
            let is_fresh = now().saturating_sub(other.renewed) < CLAIM_LIMIT.as_secs();
            // The scheduler starts a job anew only when the run before is over.
            if is_fresh && other.run >= run {
                return Err(Failure::new(
                    Code::BeingDumped,
                    format!("the job runs already: process {} on {}", other.pid, other.host),
                )
                .help(format!(
                    "wait for its end, or give this job another name (--name); if it is gone, its claim ends {} s after its last sign of life",
                    CLAIM_LIMIT.as_secs()
                )));
            }
        }
        self.write("claim.json", &own)?;
        self.claim = Some(own);
        self.sweep();
        Ok(())
    }

    /// A sign of life.
    pub fn renew(&mut self) {
        let Some(claim) = &mut self.claim else { return };
        claim.renewed = now();
        let text = serde_json::to_vec(claim).unwrap_or_default();
        // The next one may get through.
        let _ = self.replace("claim.json", &text);
    }

    /// How many runs in a row could not restore the job.
    pub fn num_failures(&self) -> u32 {
        self.read::<Failures>("failures.json").unwrap_or_default().count
    }

    /// Notes how many there are now.
    pub fn set_num_failures(&self, count: u32) {
        let text = serde_json::to_vec(&Failures { count }).unwrap_or_default();
        // What cannot be noted is counted less.
        let _ = match count {
            0 => fs::remove_file(self.folder.join("failures.json")),
            _ => self.replace("failures.json", &text),
        };
    }

    /// All that are complete, the newest first.
    pub fn list(&self) -> Vec<Record> {
        let names = fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name());
        let ids = names.filter_map(|name| Some(name.to_str()?.strip_suffix(".json")?.to_owned()));
        let records = ids.filter_map(|id| {
            self.read::<Record>(&format!("{id}.json"))
                .filter(|record| record.id == id)
        });
        let mut all: Vec<Record> = records.filter(|record| self.archive(&record.id).exists()).collect();
        all.sort_by(|a, b| b.id.cmp(&a.id));
        all
    }

    /// A new id.
    pub fn new_id(&self) -> String {
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        format!("{:013}", since.as_millis())
    }

    /// The archive of that id.
    pub fn archive(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.hetsnap"))
    }

    /// Makes an archive that lies in its place a snapshot, and removes the oldest beyond `keep`.
    pub fn publish(&self, record: &Record, keep: u32) -> Result<(), Failure> {
        self.write(&format!("{}.json", record.id), record)?;
        for old in self.list().iter().skip(keep as usize) {
            self.remove(&old.id);
        }
        Ok(())
    }

    fn remove(&self, id: &str) {
        // The record first: an archive alone is none.
        let _ = fs::remove_file(self.folder.join(format!("{id}.json")));
        let _ = fs::remove_file(self.archive(id));
    }

    /// Removes what runs that were killed have begun.
    fn sweep(&self) {
        let known: Vec<PathBuf> = self.list().iter().map(|record| self.archive(&record.id)).collect();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_begun = entry.file_name().as_encoded_bytes().starts_with(b".hetckpt-");
            let is_lost = path.extension().is_some_and(|extension| extension == "hetsnap") && !known.contains(&path);
            // What cannot be removed takes room only.
            let _ = match (is_begun && path.is_dir(), is_begun || is_lost) {
                (true, _) => fs::remove_dir_all(path),
                (false, true) => fs::remove_file(path),
                _ => Ok(()),
            };
        }
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_reader(File::open(self.folder.join(name)).ok()?).ok()
    }

    fn write(&self, name: &str, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_vec(value).map_err(io::Error::from);
        text.and_then(|text| self.replace(name, &text)).map_err(|e| {
            Failure::new(
                Code::CannotWrite,
                format!("cannot write {}", self.folder.join(name).display()),
            )
            .note(e.to_string())
        })
    }

    /// Writes a file whole or not at all.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = NamedTempFile::with_prefix_in(".hetckpt-", &self.folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(self.folder.join(name)).map_err(|e| e.error)?;
        File::open(&self.folder)?.sync_all()
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        if self.claim.is_some() {
            // Without it, the claim ends by itself.
            let _ = fs::remove_file(self.folder.join("claim.json"));
        }
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// This node's name.
pub fn host() -> String {
    nix::sys::utsname::uname().map_or_else(|_| "?".into(), |names| names.nodename().to_string_lossy().into_owned())
}

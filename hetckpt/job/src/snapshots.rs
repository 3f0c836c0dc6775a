//! The snapshots of one job in a store.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use hetckpt_report::failure::Failure;
use hetckpt_report::remark;
use hetckpt_store::claim::Claim;
use hetckpt_store::error::StoreError;
use hetckpt_store::failure::failure;
use hetckpt_store::keep::Keep;
use hetckpt_store::name::{Key, SnapshotId};
use hetckpt_store::prune::with_needs;
use hetckpt_store::record::{Draft, Occasion, Record};
use hetckpt_store::store::Store;
use hetckpt_store::watch::{Watch, unwatched};

use crate::renewing::Renewing;

/// What is left of an earlier run is looked for as if it were that much later: nobody else writes for the job now.
const LONG_AGO: Duration = Duration::from_secs(14 * 24 * 3600);

/// All that a snapshot needs, itself included, is at most so many times as large as the largest of them, which is
/// whole: much of what is borrowed from has changed since, and takes room only.
const MOST_TIMES: u64 = 3;
/// Most snapshots that one needs: each is opened at a restore.
const MOST_NEEDED: usize = 200;

/// A job's stores: the same place twice.
#[derive(Clone, Copy)]
pub struct Stores {
    /// For archives.
    pub patient: &'static Store,
    /// For notes: whoever runs a program cannot wait long for them.
    pub hasty: &'static Store,
}

/// A job's snapshots.
pub struct Snapshots {
    store: &'static Store,
    hasty: &'static Store,
    job: Key,
    claim: Option<Renewing>,
    /// Those that are known, the newest first. The store may not answer when they are asked for.
    records: Vec<Record>,
    /// Where archives wait to be sent.
    scratch: Option<TempDir>,
    /// The next one borrows from none.
    is_next_whole: bool,
}

/// Who runs the job.
#[derive(Debug, PartialEq, Eq)]
pub enum Owner {
    /// This run.
    We,
    /// Another run has taken it.
    Another(String),
}

impl Snapshots {
    /// Those of `job`.
    pub fn of(stores: Stores, job: Key) -> Self {
        Self {
            store: stores.patient,
            hasty: stores.hasty,
            job,
            claim: None,
            records: vec![],
            scratch: None,
            is_next_whole: false,
        }
    }

    /// The job's name.
    pub fn job(&self) -> &Key {
        &self.job
    }

    /// The exit code of a program that has ended.
    pub fn ended(&self) -> Result<Option<u8>, Failure> {
        let ended = self.hasty.ended(&self.job).map_err(|e| failure(&e))?;
        Ok(ended.map(|ended| ended.exit_code))
    }

    /// Keeps the exit code of the program, which has ended; its snapshots go.
    pub fn set_ended(&self, exit_code: u8) -> Result<(), Failure> {
        self.hasty.put_ended(&self.job, exit_code).map_err(|e| failure(&e))?;
        for record in self.list() {
            // What stays takes room only.
            let _ = self.hasty.remove(&self.job, record.id());
        }
        let _ = self.hasty.put_failed_restores(&self.job, 0);
        self.sweep();
        Ok(())
    }

    /// Makes this process the one that runs the job, `run` times after the first.
    pub fn claim(&mut self, run: u32) -> Result<(), Failure> {
        let wanted = Claim {
            host: host(),
            pid: std::process::id(),
            run: run.into(),
        };
        let claim = self.hasty.claim(&self.job, &wanted).map_err(|e| failure(&e))?;
        self.claim = Some(Renewing::start(claim).map_err(|e| failure(&StoreError::Runtime(e)))?);
        self.sweep();
        Ok(())
    }

    /// Whose the job is, as far as is known.
    pub fn owner(&self) -> Owner {
        match self.claim.as_ref().and_then(Renewing::lost) {
            Some(who) => Owner::Another(who.to_owned()),
            None => Owner::We,
        }
    }

    /// How many runs in a row could not restore the job.
    pub fn num_failures(&self) -> u32 {
        self.hasty.failed_restores(&self.job).unwrap_or(0)
    }

    /// Notes how many there are now.
    pub fn set_num_failures(&self, count: u32) {
        // What cannot be noted is counted less.
        let _ = self.hasty.put_failed_restores(&self.job, count);
    }

    /// All that are known, the newest first.
    pub fn list(&self) -> &[Record] {
        &self.records
    }

    /// The same, asked of the store.
    pub fn look(&mut self) -> Result<Vec<Record>, Failure> {
        let listing = self.hasty.list(Some(&self.job)).map_err(|e| failure(&e))?;
        for unusable in listing.unusable {
            let why = unusable
                .why
                .map_or_else(|| "its archive is missing".to_owned(), |why| why.to_string());
            remark::note(format!("snapshot {} cannot be used: {why}", unusable.id));
        }
        self.records.clone_from(&listing.records);
        Ok(listing.records)
    }

    /// A new name, and where the dump is to write the archive.
    pub fn new_place(&mut self) -> Result<(SnapshotId, PathBuf), StoreError> {
        let id = SnapshotId::new(self.records.first().map(Record::id)).map_err(StoreError::Runtime)?;
        let place = match self.store.local_place(&self.job, &id)? {
            Some(place) => place,
            None => self.scratch()?.join(format!("{id}.hetsnap")),
        };
        Ok((id, place))
    }

    /// The archive that the new snapshot `id` is to borrow from: the last one, if both lie in a folder, where they can
    /// be read in their place, and unless it is time for a whole one again.
    pub fn parent(&self, id: &SnapshotId) -> Option<PathBuf> {
        // What is sent, or encrypted, lies elsewhere.
        self.store.local_place(&self.job, id).ok().flatten()?;
        let last = self.records.first().filter(|_| !self.is_next_whole)?;
        let needed = last
            .needs()
            .iter()
            .map(|id| self.records.iter().find(|record| record.id() == id));
        let sizes: Vec<u64> = needed
            .chain([Some(last)])
            .map(|record| Some(record?.stored_bytes))
            .collect::<Option<_>>()?;
        let (total, whole) = (sizes.iter().sum::<u64>(), sizes.iter().max().copied().unwrap_or(0));
        if sizes.len() > MOST_NEEDED || total > whole.saturating_mul(MOST_TIMES) {
            return None;
        }
        // What is in the way of that is in nobody else's.
        self.hasty.local_path(&self.job, last.id()).ok().flatten()
    }

    /// Has the next snapshot be a whole one: what the last one was to borrow from may be of no use.
    pub fn borrow_no_more(&mut self) {
        self.is_next_whole = true;
    }

    fn scratch(&mut self) -> Result<PathBuf, StoreError> {
        let made = match self.scratch.take() {
            Some(made) => Ok(made),
            None => TempDir::with_prefix("hetckpt-job-"),
        };
        let made = made.map_err(|source| StoreError::Local {
            action: "make a folder in",
            path: std::env::temp_dir(),
            source,
        })?;
        Ok(self.scratch.insert(made).path().to_owned())
    }

    /// Makes the archive `place` a snapshot, and removes the oldest beyond `keep` that no other needs. It is given up
    /// when `is_interrupted`, or if the job is another run's.
    pub fn publish(
        &mut self,
        draft: Draft,
        place: &Path,
        keep: u32,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Record, StoreError> {
        let mut progress = |_| ();
        let is_in_place = self.store.local_place(&self.job, &draft.id)?.is_some();
        // The program of a last dump has been ended, and its archive lies where it belongs: only its record is missing.
        let is_all_but_there = is_in_place && draft.occasion == Occasion::Final;
        let is_given_up = || (!is_all_but_there && is_interrupted()) || self.owner() != Owner::We;
        let mut watch = Watch::new(&mut progress, &is_given_up);
        let record = match is_in_place {
            true => self.store.record(&self.job, draft, &mut watch)?,
            false => {
                let sent = self.store.put(&self.job, draft, place, &mut watch)?;
                // It is in the store.
                let _ = fs::remove_file(place);
                sent
            }
        };
        self.is_next_whole = false;
        self.records.insert(0, record.clone());
        let newest = (0..self.records.len()).map(|number| number < keep as usize).collect();
        let kept = with_needs(&self.records, newest);
        let (kept, old): (Vec<_>, Vec<_>) = self.records.drain(..).zip(kept).partition(|(_, is_kept)| *is_kept);
        self.records = kept.into_iter().map(|(record, _)| record).collect();
        for (old, _) in old {
            // What stays takes room only.
            let _ = self.hasty.remove(&self.job, old.id());
        }
        Ok(record)
    }

    /// What `hetckpt restore` takes for a snapshot: a file, or a URL.
    pub fn archive(&self, record: &Record) -> Result<PathBuf, StoreError> {
        let path = self.store.local_path(&self.job, record.id())?;
        Ok(path.unwrap_or_else(|| self.store.url(&self.job, record.id()).into()))
    }

    /// True if a snapshot that could not be restored is not what was stored.
    pub fn is_damaged(&self, record: &Record) -> Result<bool, StoreError> {
        if let Some(path) = self.store.local_path(&self.job, record.id())? {
            return Ok(is_damaged(&path));
        }
        match unwatched(|watch| self.store.verify_one(record, watch)) {
            Ok(()) => Ok(false),
            Err(StoreError::Damaged { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Leaves what waits to be sent where it is; gives its folder, if there is one.
    pub fn keep_scratch(&mut self) -> Option<PathBuf> {
        self.scratch.take().map(TempDir::keep)
    }

    /// Removes what runs that were killed have begun.
    fn sweep(&self) {
        let later = SystemTime::now() + LONG_AGO;
        // What cannot be removed takes room only.
        let _ = self.hasty.prune_at(Some(&self.job), &Keep::default(), false, later);
        let Ok(id) = SnapshotId::new(None) else { return };
        let Ok(Some(place)) = self.store.local_place(&self.job, &id) else {
            return;
        };
        let folder = place.parent().map(fs::read_dir);
        for entry in folder.into_iter().flatten().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b".hetckpt-dump-") {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// This node's name.
pub fn host() -> String {
    nix::sys::utsname::uname().map_or_else(|_| "?".into(), |names| names.nodename().to_string_lossy().into_owned())
}

/// True if the archive is not whole; what else keeps it from being restored is another matter.
fn is_damaged(archive: &Path) -> bool {
    let Ok(program) = std::env::current_exe() else {
        return false;
    };
    let mut command = Command::new(program);
    command.args(["inspect", "--verify"]).arg(archive);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| !status.success())
}

//! Removes what is not to be kept, and what was left unfinished.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use crate::error::StoreError;
use crate::keep::Keep;
use crate::name::{ARCHIVE, Key, RECORD, SnapshotId, UPLOAD, object};
use crate::record::Record;
use crate::store::{Contents, Listing, Store};

/// What is unfinished for so long is nobody's work any more.
pub const UNFINISHED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// The note of an upload whose end the store refuses is kept for so long: some refuse where there is no such upload.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);

/// Why something is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No rule keeps it.
    NotKept,
    /// An archive without a record.
    NoRecord,
    /// A record without an archive, or with one of another length.
    Unusable,
    /// An upload in parts that was not ended, or a file that was not finished.
    Unfinished,
}

impl Why {
    /// As people read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotKept => "no rule keeps it",
            Self::NoRecord => "an archive without a record",
            Self::Unusable => "a record without its archive",
            Self::Unfinished => "unfinished",
        }
    }
}

/// Something that is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Its name in the store: `KEY/ID`, or that of a file.
    pub name: String,
    /// Why.
    pub why: Why,
    /// Bytes that become free; for uploads in parts it is not known.
    pub bytes: u64,
}

/// What pruning does, or would do.
#[derive(Clone, Debug, Default)]
pub struct Pruned {
    /// Snapshots that stay, the newest of each job first.
    pub kept: Vec<Record>,
    /// What goes.
    pub removed: Vec<Removal>,
}

/// What is done to remove something.
enum Step {
    Snapshot(SnapshotId),
    Object(String),
    /// The upload, and whether its note goes even if the store refuses to end it.
    Upload(SnapshotId, bool),
}

/// Which of the snapshots are kept, if `kept` are and what they need.
#[must_use]
pub fn with_needs(records: &[Record], kept: Vec<bool>) -> Vec<bool> {
    // Each names all that it needs, not only the one before it.
    let needy = records.iter().zip(&kept).filter(|(_, is_kept)| **is_kept);
    let needed: BTreeSet<&SnapshotId> = needy.flat_map(|(record, _)| record.needs()).collect();
    let each = records.iter().zip(&kept);
    each.map(|(record, &is_kept)| is_kept || needed.contains(record.id()))
        .collect()
}

impl Store {
    /// Removes the snapshots of `job`, or of all jobs, that `keep` does not keep, and, if it is a day old, what is left
    /// of uploads and dumps that were cut short: archives without a record, records without their archive, uploads in
    /// parts that this store has begun, unfinished files. With `is_dry` it only says what it would remove.
    ///
    /// Rules count only snapshots that can be used, and keep at least the newest of these. What a kept one needs stays,
    /// too. Damaged records stay, because a newer version may have written them.
    ///
    /// # Errors
    /// What the store gives. What was removed until then is gone.
    pub fn prune(&self, job: Option<&Key>, keep: &Keep, is_dry: bool) -> Result<Pruned, StoreError> {
        self.prune_at(job, keep, is_dry, SystemTime::now())
    }

    /// The same as if it were `now`.
    ///
    /// # Errors
    /// As [`Store::prune`].
    pub fn prune_at(
        &self,
        job: Option<&Key>,
        keep: &Keep,
        is_dry: bool,
        now: SystemTime,
    ) -> Result<Pruned, StoreError> {
        let jobs = match job {
            Some(job) => vec![job.clone()],
            None => self.jobs()?,
        };
        let mut pruned = Pruned::default();
        for job in jobs {
            let contents = self.contents(&job)?;
            let steps = self.plan(&job, &contents, keep, now, &mut pruned)?;
            for step in steps.into_iter().filter(|_| !is_dry) {
                match step {
                    Step::Snapshot(id) => self.remove(&job, &id)?,
                    Step::Object(name) => self.objects.remove(&name)?,
                    Step::Upload(id, is_forgotten) => match self.end_upload(&job, &id) {
                        // One that cannot be ended is not to keep the rest from being removed.
                        Err(StoreError::Remote { .. }) if is_forgotten => {
                            self.objects.remove(&object(&job, &id, UPLOAD))?;
                        }
                        Err(StoreError::Remote { .. }) => {}
                        ended => ended?,
                    },
                }
            }
        }
        Ok(pruned)
    }

    fn plan(
        &self,
        job: &Key,
        contents: &Contents,
        keep: &Keep,
        now: SystemTime,
        pruned: &mut Pruned,
    ) -> Result<Vec<Step>, StoreError> {
        let is_old = |modified: SystemTime| now.duration_since(modified).is_ok_and(|age| age > UNFINISHED_AFTER);
        let mut listing = Listing::default();
        self.list_job(job, contents, &mut listing)?;
        listing.records.sort_by(|a, b| b.id().cmp(a.id()));
        let times: Vec<SystemTime> = listing.records.iter().map(|record| record.id().time()).collect();
        let kept = with_needs(&listing.records, keep.apply(&times));
        let mut steps = vec![];
        let mut remove = |name: String, why, bytes, step| {
            pruned.removed.push(Removal { name, why, bytes });
            steps.push(step);
        };
        for (record, is_kept) in listing.records.into_iter().zip(kept) {
            match is_kept {
                true => pruned.kept.push(record),
                false => {
                    let step = Step::Snapshot(record.id().clone());
                    remove(record.name(), Why::NotKept, record.stored_bytes, step);
                }
            }
        }
        for (id, found) in &contents.archives {
            if !contents.records.contains_key(id) && is_old(found.modified) {
                let name = object(job, id, ARCHIVE);
                remove(name.clone(), Why::NoRecord, found.bytes, Step::Object(name));
            }
        }
        for unusable in &listing.unusable {
            // Without an archive there is nothing that another version could use.
            if unusable.why.is_none() && is_old(unusable.modified) {
                let name = object(job, &unusable.id, RECORD);
                remove(name.clone(), Why::Unusable, 0, Step::Object(name));
            }
        }
        for (id, found) in &contents.uploads {
            if is_old(found.modified) {
                let age = now.duration_since(found.modified);
                let is_forgotten = age.is_ok_and(|age| age > FORGOTTEN_AFTER);
                let step = Step::Upload(id.clone(), is_forgotten);
                remove(object(job, id, ARCHIVE), Why::Unfinished, 0, step);
            }
        }
        for found in contents.unfinished.iter().filter(|found| is_old(found.modified)) {
            let name = format!("{job}/{}", found.name);
            remove(name.clone(), Why::Unfinished, found.bytes, Step::Object(name));
        }
        Ok(steps)
    }
}

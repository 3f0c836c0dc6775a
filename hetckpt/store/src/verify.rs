//! Reads all that is stored, and says of each snapshot whether it can be used.

use crate::error::StoreError;
use crate::name::{Key, SnapshotId};
use crate::store::Store;
use crate::watch::Watch;

/// What a snapshot is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// All bytes are what its record says; if it is encrypted and the key was there, also what comes out of them.
    Good {
        /// It is encrypted, and was not decrypted, because there was no key.
        is_locked: bool,
    },
    /// It cannot be used, for this reason.
    Damaged {
        /// Why.
        why: String,
    },
    /// There is a record and no archive.
    Missing,
}

impl State {
    /// `good`, `damaged` or `missing`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Good { .. } => "good",
            Self::Damaged { .. } => "damaged",
            Self::Missing => "missing",
        }
    }
}

/// A snapshot that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The job.
    pub job: Key,
    /// The snapshot.
    pub id: SnapshotId,
    /// Bytes stored, as its record says; 0 if that cannot be understood.
    pub stored_bytes: u64,
    /// What it is.
    pub state: State,
}

impl Store {
    /// Reads every byte of the snapshots of `job`, or of all jobs, and compares size and hash. The newest comes first,
    /// and those whose records are of no use last.
    ///
    /// # Errors
    /// What the store gives, [`StoreError::Key`] if the key is another's, [`StoreError::Interrupted`].
    pub fn verify(&self, job: Option<&Key>, watch: &mut Watch<'_>) -> Result<Vec<Verified>, StoreError> {
        let listing = self.list(job)?;
        let mut all = vec![];
        for record in &listing.records {
            let has_key = self
                .encryption
                .as_ref()
                .is_some_and(|encryption| encryption.has_identity());
            let state = match self.verify_one(record, watch) {
                Ok(()) => State::Good {
                    is_locked: record.encrypted && !has_key,
                },
                Err(StoreError::Damaged { source, .. }) => State::Damaged {
                    why: source.to_string(),
                },
                // It may have been removed meanwhile, with its record.
                Err(StoreError::NoSuchSnapshot { .. }) => match self.record_at(&record.job, record.id()) {
                    Err(StoreError::NoSuchSnapshot { .. }) => continue,
                    _ => State::Missing,
                },
                Err(error) => return Err(error),
            };
            all.push(Verified {
                job: record.job.clone(),
                id: record.id().clone(),
                stored_bytes: record.stored_bytes,
                state,
            });
        }
        all.extend(listing.unusable.into_iter().map(|unusable| Verified {
            job: unusable.job,
            id: unusable.id,
            stored_bytes: 0,
            state: match unusable.why {
                Some(why) => State::Damaged { why: why.to_string() },
                None => State::Missing,
            },
        }));
        Ok(all)
    }
}

//! Archives that URLs name: a snapshot (`URL/KEY/ID`), the latest of a job (`URL/KEY`), or an object of any name that
//! ends in `.hetsnap`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::encryption::{Encryption, KeyError};
use crate::error::StoreError;
use crate::in_place::{AGE_MAGIC, StoredArchive};
use crate::location::{BadUrl, shown};
use crate::name::{ARCHIVE, Key, SnapshotId, object};
use crate::objects::{Objects, locate};
use crate::record::{Draft, Record};
use crate::store::{Source, Store};
use crate::transfer::Stored;
use crate::watch::Watch;

/// What a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The latest snapshot of a job, or a new one.
    Job {
        /// URL of the store.
        store: String,
        /// The job.
        job: Key,
    },
    /// A snapshot.
    Snapshot {
        /// URL of the store.
        store: String,
        /// The job.
        job: Key,
        /// The snapshot.
        id: SnapshotId,
    },
    /// An object, or a file, that is an archive and has no record.
    Archive {
        /// URL of what it lies in.
        store: String,
        /// Its name there.
        name: String,
    },
}

impl Address {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// [`StoreError::Url`], [`StoreError::Name`].
    pub fn parse(url: &str) -> Result<Self, StoreError> {
        let too_short = || StoreError::Url {
            url: shown(url),
            source: BadUrl::NoObject,
        };
        let location = locate(url)?;
        let (parent, last) = location.split().ok_or_else(too_short)?;
        if let Ok(id) = last.strip_suffix(ARCHIVE).unwrap_or(&last).parse::<SnapshotId>() {
            let (store, job) = parent.split().ok_or_else(too_short)?;
            let (store, job) = (store.name(), job.parse()?);
            return Ok(Self::Snapshot { store, job, id });
        }
        let store = parent.name();
        match last.ends_with(ARCHIVE) {
            true => Ok(Self::Archive { store, name: last }),
            false => Ok(Self::Job {
                store,
                job: last.parse()?,
            }),
        }
    }

    /// Opens the store.
    fn open(&self, encryption: Option<Encryption>) -> Result<Store, StoreError> {
        match self {
            Self::Job { store, .. } | Self::Snapshot { store, .. } | Self::Archive { store, .. } => {
                Store::open(store, encryption)
            }
        }
    }
}

/// An archive that can be read from a file.
#[derive(Debug)]
pub struct Fetched {
    path: PathBuf,
    /// It is removed when this is dropped.
    _temporary: Option<TempPath>,
    /// Its record, if it has one.
    pub record: Option<Record>,
}

impl Fetched {
    /// The file. If it was made for this, it is there until this is dropped.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Gets the archive that `url` names: where it lies in a folder and is not encrypted in its place, else in a private
/// file in the folder for temporary files.
///
/// # Errors
/// As [`Store::get`], and [`StoreError::Url`], [`StoreError::Name`].
pub fn archive_at(url: &str, encryption: Option<Encryption>, watch: &mut Watch<'_>) -> Result<Fetched, StoreError> {
    let address = Address::parse(url)?;
    let store = address.open(encryption)?;
    let record = match &address {
        Address::Archive { name, .. } => return plain_at(&store, name, watch),
        Address::Snapshot { job, id, .. } => store.record_at(job, id)?,
        Address::Job { job, .. } => store.latest(job)?.ok_or_else(|| store.no_such(job.as_str()))?,
    };
    if let Some(path) = store.local_path(&record.job, record.id())? {
        return Ok(Fetched {
            path,
            _temporary: None,
            record: Some(record),
        });
    }
    let (mut file, path) = temporary()?;
    store.get_into(&record, &path, &mut file, watch)?;
    Ok(Fetched {
        path: path.to_path_buf(),
        _temporary: Some(path),
        record: Some(record),
    })
}

/// An archive that is not fetched.
pub enum InPlace {
    /// It lies in a folder, not encrypted.
    File(PathBuf),
    /// It is read through the store.
    Stored(StoredArchive),
}

/// The archive that `url` names, where it is. Its size is that of its record, if it has one. Its own hashes tell
/// whether what is read of it is right.
///
/// # Errors
/// [`StoreError::Url`], [`StoreError::Name`], [`StoreError::NoSuchSnapshot`], [`StoreError::Damaged`],
/// [`StoreError::Key`], and what the store gives.
pub fn archive_in_place(url: &str, encryption: Option<Encryption>) -> Result<InPlace, StoreError> {
    let address = Address::parse(url)?;
    let store = address.open(encryption)?;
    let record = match &address {
        Address::Archive { name, .. } => {
            let bytes = store.objects.size(name)?.ok_or_else(|| store.no_such(name))?;
            return match &store.objects {
                Objects::Folder(folder) => Ok(InPlace::File(folder.path(name))),
                Objects::Remote(_) => StoredArchive::open(store, name.clone(), name, bytes).map(InPlace::Stored),
            };
        }
        Address::Snapshot { job, id, .. } => store.record_at(job, id)?,
        Address::Job { job, .. } => store.latest(job)?.ok_or_else(|| store.no_such(job.as_str()))?,
    };
    if let Some(path) = store.local_path(&record.job, record.id())? {
        return Ok(InPlace::File(path));
    }
    let bytes = store.stored_bytes(&record)?;
    let name = object(&record.job, record.id(), ARCHIVE);
    let opened = StoredArchive::open(store, name, &record.name(), bytes)?;
    Ok(InPlace::Stored(opened))
}

/// An archive without a record. Its own hashes tell whether it is whole.
fn plain_at(store: &Store, name: &str, watch: &mut Watch<'_>) -> Result<Fetched, StoreError> {
    if let Objects::Folder(folder) = &store.objects {
        return Ok(Fetched {
            path: folder.path(name),
            _temporary: None,
            record: None,
        });
    }
    let bytes = store.objects.size(name)?.ok_or_else(|| store.no_such(name))?;
    let (mut file, path) = temporary()?;
    let encryption = store.encryption.as_ref().filter(|encryption| encryption.has_identity());
    store.objects.read(name, bytes, watch, |stored| {
        let cannot = |source| StoreError::Local {
            action: "write",
            path: path.to_path_buf(),
            source,
        };
        let mut head = vec![0; AGE_MAGIC.len()];
        let mut filled = 0;
        while filled < head.len() {
            match stored.read(&mut head[filled..]).map_err(cannot)? {
                0 => break,
                read => filled += read,
            }
        }
        head.truncate(filled);
        let is_encrypted = head == AGE_MAGIC;
        let mut stored = std::io::Read::chain(&*head, stored);
        let needed = || KeyError::Needed { name: name.to_owned() };
        match is_encrypted {
            false => std::io::copy(&mut stored, &mut file).map_err(cannot)?,
            true => {
                let mut archive = encryption
                    .ok_or_else(needed)?
                    .decrypt(std::io::BufReader::new(stored))
                    .map_err(|_| KeyError::Other { name: name.to_owned() })?;
                std::io::copy(&mut archive, &mut file).map_err(cannot)?
            }
        };
        Ok(())
    })?;
    Ok(Fetched {
        path: path.to_path_buf(),
        _temporary: Some(path),
        record: None,
    })
}

/// A private file.
fn temporary() -> Result<(File, TempPath), StoreError> {
    let folder = std::env::temp_dir();
    let made = tempfile::Builder::new()
        .prefix("hetckpt-fetched-")
        .suffix(ARCHIVE)
        .tempfile_in(&folder);
    let made = made.map_err(|source| StoreError::Local {
        action: "write in",
        path: folder,
        source,
    })?;
    Ok(made.into_parts())
}

/// Where a dump puts its archive: a store and a name in it.
pub struct Destination {
    store: Store,
    place: Place,
}

enum Place {
    Snapshot(Key, SnapshotId),
    Archive(String),
}

impl Destination {
    /// The place that `url` names; for a job, that of a new snapshot of it. For a job the store is asked which are
    /// there.
    ///
    /// # Errors
    /// [`StoreError::Url`], [`StoreError::Name`], and what the store gives.
    pub fn find(url: &str, encryption: Option<Encryption>) -> Result<Self, StoreError> {
        let address = Address::parse(url)?;
        let store = address.open(encryption)?;
        let place = match address {
            Address::Job { job, .. } => {
                let id = store.new_id(&job)?;
                Place::Snapshot(job, id)
            }
            Address::Snapshot { job, id, .. } => Place::Snapshot(job, id),
            Address::Archive { name, .. } => Place::Archive(name),
        };
        Ok(Self { store, place })
    }

    /// URL of what is there afterwards.
    #[must_use]
    pub fn url(&self) -> String {
        let store = self.store.name().trim_end_matches('/');
        match &self.place {
            Place::Snapshot(job, id) => format!("{store}/{job}/{id}"),
            Place::Archive(name) => format!("{store}/{name}"),
        }
    }

    /// True if something has that name.
    ///
    /// # Errors
    /// What the store gives.
    pub fn is_taken(&self) -> Result<bool, StoreError> {
        let name = match &self.place {
            Place::Snapshot(job, id) => object(job, id, ARCHIVE),
            Place::Archive(name) => name.clone(),
        };
        Ok(self.store.objects.size(&name)?.is_some())
    }

    /// Where the archive may be written in its place, without being sent: in a folder, if it is not encrypted.
    ///
    /// # Errors
    /// [`StoreError::Folder`].
    pub fn local_place(&self) -> Result<Option<PathBuf>, StoreError> {
        match (&self.place, &self.store.objects, &self.store.encryption) {
            (Place::Snapshot(job, id), _, _) => self.store.local_place(job, id),
            (Place::Archive(name), Objects::Folder(folder), None) => Ok(Some(folder.path(name))),
            _ => Ok(None),
        }
    }

    /// Writes the record of an archive that was written at its [`Destination::local_place`].
    ///
    /// # Errors
    /// As [`Store::record`].
    pub fn record(&self, describe: impl FnOnce(SnapshotId) -> Draft, watch: &mut Watch<'_>) -> Result<(), StoreError> {
        match &self.place {
            Place::Snapshot(job, id) => self.store.record(job, describe(id.clone()), watch).map(drop),
            Place::Archive(_) => Ok(()),
        }
    }

    /// Stores the archive that `archive` gives, of which it need not be known how long it is. No local file is made,
    /// and at most 320 MiB are in memory. Nothing knows of the archive until [`Destination::complete`].
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn send(&self, archive: impl Read + Send, watch: &mut Watch<'_>) -> Result<Stored, StoreError> {
        self.send_source(&mut Source::stream(archive), watch)
    }

    fn send_source(&self, archive: &mut Source<'_>, watch: &mut Watch<'_>) -> Result<Stored, StoreError> {
        match &self.place {
            Place::Snapshot(job, id) => self.store.put_archive(job, id, archive, watch),
            Place::Archive(name) => self.store.send(name, archive, watch, |_| Ok(())),
        }
    }

    /// Reads back what was `stored`, and completes what is known of it by `describe`.
    ///
    /// # Errors
    /// As [`Store::put`] and [`Store::verify_one`].
    pub fn complete(
        &self,
        stored: Stored,
        describe: impl FnOnce(SnapshotId) -> Draft,
        watch: &mut Watch<'_>,
    ) -> Result<(), StoreError> {
        match &self.place {
            Place::Snapshot(job, id) => {
                let record = self.store.put_record(job, describe(id.clone()), stored)?;
                let verified = self.store.verify_one(&record, watch);
                if verified.is_err() {
                    // What is damaged is not to be the latest.
                    let _ = self.store.remove(job, id);
                }
                verified
            }
            Place::Archive(name) => {
                let read = self.store.objects.read(name, stored.stored_bytes, watch, |bytes| {
                    crate::transfer::hash(bytes, Path::new(name))
                })?;
                match read.blake3 == stored.blake3 {
                    true => Ok(()),
                    false => Err(self.store.damaged(name, crate::error::Damage::Hash)),
                }
            }
        }
    }
}

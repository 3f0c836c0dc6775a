//! The store: what a job's snapshots are put into, listed in and taken out of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use url::Url;

use crate::claim::{self, Claim, ClaimGuard, is_claim};
use crate::encryption::Encryption;
use crate::error::{Damage, StoreError};
use crate::folder::{Found, is_unfinished};
use crate::name::{ARCHIVE, Key, RECORD, SnapshotId, UPLOAD, object};
use crate::objects::{Objects, locate};
use crate::record::{
    self, BadRecord, Draft, Ended, FORMAT_VERSION, FailedRestores, MAX_RECORD_BYTES, Record, WITH_NEEDS, moment,
    parse_record,
};
use crate::remote::Patience;
use crate::transfer::{self, Stored, Target};
use crate::watch::Watch;

/// A store of snapshots.
///
/// Its functions wait until they are done. Where they fail, nothing has come into being that counts: a snapshot counts
/// from when its record is there, which is written last.
pub struct Store {
    pub(crate) objects: Objects,
    pub(crate) encryption: Option<Encryption>,
    pub(crate) name: String,
}

/// A snapshot that cannot be used, or a record that cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The job.
    pub job: Key,
    /// The snapshot.
    pub id: SnapshotId,
    /// Why; none if there is a record and no archive.
    pub why: Option<Damage>,
    /// When the record was written.
    pub modified: SystemTime,
}

/// What a store holds.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Snapshots whose record is good and whose archive is there in full length, the newest first.
    pub records: Vec<Record>,
    /// The others.
    pub unusable: Vec<Unusable>,
}

/// The note of an upload in parts, from before its first part until it is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Upload {
    format_version: u32,
    pub(crate) upload: String,
}

/// What lies in a job's folder.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) archives: BTreeMap<SnapshotId, Found>,
    pub(crate) records: BTreeMap<SnapshotId, Found>,
    pub(crate) uploads: BTreeMap<SnapshotId, Found>,
    pub(crate) unfinished: Vec<Found>,
    pub(crate) others: Vec<Found>,
}

impl Store {
    /// Opens the store at `url`: the path of a folder, `file://`, `s3://`, `gs://`, `az://`, `http://` or `https://`.
    ///
    /// Credentials and settings come from the environment, by the names that each kind of store has for them (`AWS_…`,
    /// `GOOGLE_…`, `AZURE_…`). Nothing is asked of the store yet. A folder comes into being with the first snapshot.
    /// With `encryption`, archives are encrypted, and encrypted ones decrypted.
    ///
    /// # Errors
    /// [`StoreError::Url`].
    pub fn open(url: &str, encryption: Option<Encryption>) -> Result<Self, StoreError> {
        Self::open_with(url, encryption, Patience::of_environment())
    }

    /// The same with a limit for requests.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(url: &str, encryption: Option<Encryption>, patience: Patience) -> Result<Self, StoreError> {
        let location = locate(url)?;
        Ok(Self {
            objects: Objects::open(&location, patience)?,
            encryption,
            name: location.name(),
        })
    }

    /// The store as people know it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A name for a new snapshot of `job`, later than those that are there.
    ///
    /// # Errors
    /// What listing gives.
    pub fn new_id(&self, job: &Key) -> Result<SnapshotId, StoreError> {
        let contents = self.contents(job)?;
        let latest = contents.archives.keys().chain(contents.records.keys()).max();
        SnapshotId::new(latest).map_err(StoreError::Runtime)
    }

    /// Stores `archive` as the snapshot `draft` of `job`, then its record.
    ///
    /// At no time more than 160 MiB of it lie in memory, and for archives beyond 140 GiB three of the parts, of which
    /// there are at most 9000. An upload that is cut short leaves nothing that counts; [`Store::prune`] removes it.
    ///
    /// # Errors
    /// [`StoreError::Local`] if the archive cannot be read, [`StoreError::Interrupted`], and what the store gives.
    pub fn put(&self, job: &Key, draft: Draft, archive: &Path, watch: &mut Watch<'_>) -> Result<Record, StoreError> {
        let stored = self.put_archive(job, &draft.id, &mut Source::open(archive)?, watch)?;
        self.put_record(job, draft, stored)
    }

    /// Stores the archive of the snapshot `id` of `job`, without a record.
    pub(crate) fn put_archive(
        &self,
        job: &Key,
        id: &SnapshotId,
        archive: &mut Source<'_>,
        watch: &mut Watch<'_>,
    ) -> Result<Stored, StoreError> {
        let name = object(job, id, ARCHIVE);
        let note = object(job, id, UPLOAD);
        let mut has_note = false;
        let note_upload = |upload: &str| {
            has_note = true;
            let upload = upload.to_owned();
            let format_version = FORMAT_VERSION;
            self.put_text(&note, &Upload { format_version, upload })
        };
        let sent = self.send(&name, archive, watch, note_upload);
        // Of one that has failed the note stays: the store may not even have heard that it was ended.
        if has_note && sent.is_ok() {
            let _ = self.objects.remove(&note);
        }
        sent
    }

    /// Writes the record of the snapshot `draft`, whose archive is there.
    pub(crate) fn put_record(&self, job: &Key, draft: Draft, stored: Stored) -> Result<Record, StoreError> {
        let record = self.record_of(job, draft, stored);
        self.put_text(&object(job, record.id(), RECORD), &record)?;
        Ok(record)
    }

    /// Sends `archive` as the object `name`, and sees that it is there.
    pub(crate) fn send(
        &self,
        name: &str,
        archive: &mut Source<'_>,
        watch: &mut Watch<'_>,
        note: impl FnOnce(&str) -> Result<(), StoreError>,
    ) -> Result<Stored, StoreError> {
        let encryption = self.encryption.as_ref();
        let stored = self.objects.write(name, archive.bytes, watch, note, |out| {
            transfer::give(&archive.path, &mut archive.from, encryption, out)
        })?;
        match self.objects.size(name)? {
            Some(found) if found == stored.stored_bytes => Ok(stored),
            found => Err(self.damaged(
                name,
                Damage::Size {
                    found: found.unwrap_or(0),
                    expected: stored.stored_bytes,
                },
            )),
        }
    }

    /// Where a dump may write the archive of the snapshot `id` itself, if this is a folder without encryption. The
    /// folder is there afterwards. The dump is to write under a name that begins with a dot, beside this one, and to
    /// rename; then comes [`Store::record`].
    ///
    /// # Errors
    /// [`StoreError::Folder`].
    pub fn local_place(&self, job: &Key, id: &SnapshotId) -> Result<Option<PathBuf>, StoreError> {
        match (&self.objects, &self.encryption) {
            (Objects::Folder(folder), None) => {
                let path = folder.path(&object(job, id, ARCHIVE));
                folder.make_parent(&path)?;
                Ok(Some(path))
            }
            _ => Ok(None),
        }
    }

    /// Writes the record of a snapshot whose archive lies at its [`Store::local_place`]. The archive is read, for its
    /// hash: by then the program of a periodic dump runs again, so nobody waits for it.
    ///
    /// # Errors
    /// [`StoreError::Folder`], [`StoreError::Interrupted`].
    pub fn record(&self, job: &Key, draft: Draft, watch: &mut Watch<'_>) -> Result<Record, StoreError> {
        let name = object(job, &draft.id, ARCHIVE);
        let Objects::Folder(folder) = &self.objects else {
            return Err(self.no_such(&name));
        };
        let (file, _) = match folder.open(&name) {
            Err(StoreError::Folder { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Err(self.no_such(&name));
            }
            opened => opened?,
        };
        let hashed = transfer::hash_file(&file, &folder.path(&name), watch)?;
        self.put_record(job, draft, hashed)
    }

    fn record_of(&self, job: &Key, draft: Draft, stored: Stored) -> Record {
        Record {
            format_version: match draft.needs.is_empty() {
                true => FORMAT_VERSION,
                false => WITH_NEEDS,
            },
            job: job.clone(),
            time: moment(draft.id.time()),
            stored_bytes: stored.stored_bytes,
            archive_bytes: stored.archive_bytes,
            blake3: stored.blake3,
            encrypted: self.encryption.is_some(),
            draft,
        }
    }

    /// Writes the archive of the snapshot `id` of `job` to the file `to`, with mode 0600, in the place of a file of
    /// that name. It gets the name when it is complete, and has its size and its hash.
    ///
    /// # Errors
    /// [`StoreError::NoSuchSnapshot`], [`StoreError::Damaged`], [`StoreError::Key`], [`StoreError::Local`],
    /// [`StoreError::Interrupted`], and what the store gives.
    pub fn get(&self, job: &Key, id: &SnapshotId, to: &Path, watch: &mut Watch<'_>) -> Result<Record, StoreError> {
        let record = self.record_at(job, id)?;
        let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
        let made = tempfile::Builder::new()
            .prefix(".hetckpt-fetched-")
            .tempfile_in(parent.unwrap_or(Path::new(".")));
        let mut file = made.map_err(local("write", to))?;
        self.get_into(&record, to, file.as_file_mut(), watch)?;
        file.persist(to).map_err(|error| local("write", to)(error.error))?;
        Ok(record)
    }

    /// The same, into a file that is open; `path` is its name, for errors.
    pub(crate) fn get_into(
        &self,
        record: &Record,
        path: &Path,
        file: &mut File,
        watch: &mut Watch<'_>,
    ) -> Result<(), StoreError> {
        self.take(record, watch, Some(Target { path, out: file }))
    }

    /// How many bytes are stored of `record`: as many as it says.
    pub(crate) fn stored_bytes(&self, record: &Record) -> Result<u64, StoreError> {
        let expected = record.stored_bytes;
        match self.objects.size(&object(&record.job, record.id(), ARCHIVE))? {
            None => Err(self.no_such(&record.name())),
            Some(found) if found != expected => Err(self.damaged(&record.name(), Damage::Size { found, expected })),
            Some(found) => Ok(found),
        }
    }

    /// Reads what is stored of `record`, and sees that all is as it says.
    pub(crate) fn take(
        &self,
        record: &Record,
        watch: &mut Watch<'_>,
        target: Option<Target<'_>>,
    ) -> Result<(), StoreError> {
        self.stored_bytes(record)?;
        let name = object(&record.job, record.id(), ARCHIVE);
        let encryption = self.encryption.as_ref();
        self.objects.read(&name, record.stored_bytes, watch, |stored| {
            transfer::take(&self.name, record, encryption, stored, target)
        })
    }

    /// Reads all bytes of a snapshot, and sees that they are what its record says.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn verify_one(&self, record: &Record, watch: &mut Watch<'_>) -> Result<(), StoreError> {
        self.take(record, watch, None)
    }

    /// Where the archive of the snapshot `id` can be read in its place: in a folder, if it is not encrypted.
    ///
    /// # Errors
    /// [`StoreError::NoSuchSnapshot`], [`StoreError::Damaged`], [`StoreError::Folder`].
    pub fn local_path(&self, job: &Key, id: &SnapshotId) -> Result<Option<PathBuf>, StoreError> {
        let Objects::Folder(folder) = &self.objects else {
            return Ok(None);
        };
        let record = self.record_at(job, id)?;
        Ok((!record.encrypted).then(|| folder.path(&object(job, id, ARCHIVE))))
    }

    /// What [`crate::address::archive_in_place`] takes for the archive of the snapshot `id`.
    #[must_use]
    pub fn url(&self, job: &Key, id: &SnapshotId) -> String {
        let name = object(job, id, ARCHIVE);
        let in_folder = match &self.objects {
            Objects::Folder(folder) => std::path::absolute(folder.path(&name)).ok(),
            Objects::Remote(_) => None,
        };
        let url = in_folder.and_then(|path| Url::from_file_path(path).ok());
        url.map_or_else(|| format!("{}/{name}", self.name), String::from)
    }

    /// The record of the snapshot `id` of `job`.
    ///
    /// # Errors
    /// [`StoreError::NoSuchSnapshot`], [`StoreError::Damaged`], and what the store gives.
    pub fn record_at(&self, job: &Key, id: &SnapshotId) -> Result<Record, StoreError> {
        let name = object(job, id, RECORD);
        let shown = format!("{job}/{id}");
        let text = self.objects.get(&name)?.ok_or_else(|| self.no_such(&shown))?;
        read_record(&text, job, id).map_err(|why| self.damaged(&shown, why.into()))
    }

    /// The jobs that have snapshots here.
    ///
    /// # Errors
    /// What the store gives.
    pub fn jobs(&self) -> Result<Vec<Key>, StoreError> {
        let folders = self.objects.folders()?;
        let jobs: BTreeSet<Key> = folders.iter().filter_map(|name| name.parse().ok()).collect();
        Ok(jobs.into_iter().collect())
    }

    /// The snapshots of `job`, or of all jobs. One damaged record does not hide the others.
    ///
    /// # Errors
    /// What the store gives.
    pub fn list(&self, job: Option<&Key>) -> Result<Listing, StoreError> {
        let jobs = match job {
            Some(job) => vec![job.clone()],
            None => self.jobs()?,
        };
        let mut listing = Listing::default();
        for job in jobs {
            self.list_job(&job, &self.contents(&job)?, &mut listing)?;
        }
        listing
            .records
            .sort_by(|a, b| b.id().cmp(a.id()).then_with(|| a.job.cmp(&b.job)));
        Ok(listing)
    }

    pub(crate) fn list_job(&self, job: &Key, contents: &Contents, listing: &mut Listing) -> Result<(), StoreError> {
        let names: Vec<String> = contents.records.keys().map(|id| object(job, id, RECORD)).collect();
        let texts = self.objects.get_all(&names)?;
        for ((id, found), text) in contents.records.iter().zip(texts) {
            // It was removed meanwhile.
            let Some(text) = text else { continue };
            let unusable = |why| Unusable {
                job: job.clone(),
                id: id.clone(),
                why,
                modified: found.modified,
            };
            match (read_record(&text, job, id), contents.archives.get(id)) {
                (Err(why), _) => listing.unusable.push(unusable(Some(why.into()))),
                (Ok(_), None) => listing.unusable.push(unusable(None)),
                (Ok(record), Some(archive)) if archive.bytes != record.stored_bytes => {
                    listing.unusable.push(unusable(Some(Damage::Size {
                        found: archive.bytes,
                        expected: record.stored_bytes,
                    })));
                }
                (Ok(record), Some(_)) => listing.records.push(record),
            }
        }
        Ok(())
    }

    pub(crate) fn contents(&self, job: &Key) -> Result<Contents, StoreError> {
        let mut contents = Contents::default();
        for found in self.objects.list(job.as_str())? {
            let id = |ending: &str| found.name.strip_suffix(ending)?.parse::<SnapshotId>().ok();
            if let Some(id) = id(ARCHIVE) {
                contents.archives.insert(id, found);
            } else if let Some(id) = id(RECORD) {
                contents.records.insert(id, found);
            } else if let Some(id) = id(UPLOAD) {
                contents.uploads.insert(id, found);
            } else if is_unfinished(&found.name) {
                contents.unfinished.push(found);
            } else if is_claim(&found.name) || found.name == ENDED || found.name == FAILED_RESTORES {
                contents.others.push(found);
            }
        }
        Ok(contents)
    }

    /// The newest snapshot of `job` that can be used.
    ///
    /// # Errors
    /// What the store gives.
    pub fn latest(&self, job: &Key) -> Result<Option<Record>, StoreError> {
        let contents = self.contents(job)?;
        for (id, found) in contents.records.iter().rev() {
            let only = Contents {
                records: [(id.clone(), found.clone())].into(),
                archives: contents
                    .archives
                    .get(id)
                    .map(|found| (id.clone(), found.clone()))
                    .into_iter()
                    .collect(),
                ..Contents::default()
            };
            let mut listing = Listing::default();
            self.list_job(job, &only, &mut listing)?;
            if let Some(record) = listing.records.pop() {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Removes the snapshot `id` of `job`, its record first. Those that need it are of no use then.
    ///
    /// # Errors
    /// What the store gives.
    pub fn remove(&self, job: &Key, id: &SnapshotId) -> Result<(), StoreError> {
        self.objects.remove(&object(job, id, RECORD))?;
        self.objects.remove(&object(job, id, ARCHIVE))
    }

    /// Removes all that the store holds of `job`.
    ///
    /// # Errors
    /// What the store gives.
    pub fn remove_job(&self, job: &Key) -> Result<(), StoreError> {
        let contents = self.contents(job)?;
        for id in contents.records.keys().chain(contents.archives.keys()) {
            self.remove(job, id)?;
        }
        for id in contents.uploads.keys() {
            self.end_upload(job, id)?;
        }
        for found in contents.unfinished.iter().chain(&contents.others) {
            self.objects.remove(&format!("{job}/{}", found.name))?;
        }
        if let Objects::Folder(folder) = &self.objects {
            folder.remove_folder(job.as_str());
        }
        Ok(())
    }

    /// Ends an upload in parts that nobody ends.
    pub(crate) fn end_upload(&self, job: &Key, id: &SnapshotId) -> Result<(), StoreError> {
        let note = object(job, id, UPLOAD);
        let text = self.objects.get(&note)?;
        let upload: Option<Upload> = text.and_then(|text| record::parse(&text).ok());
        if let (Objects::Remote(remote), Some(upload)) = (&self.objects, upload) {
            remote.abort_upload(&object(job, id, ARCHIVE), &upload.upload)?;
        }
        self.objects.remove(&note)
    }

    /// Notes that the program of `job` has ended.
    ///
    /// # Errors
    /// What the store gives.
    pub fn put_ended(&self, job: &Key, exit_code: u8) -> Result<(), StoreError> {
        let ended = Ended {
            format_version: FORMAT_VERSION,
            exit_code,
            time: moment(SystemTime::now()),
        };
        self.put_text(&format!("{job}/{ENDED}"), &ended)
    }

    /// How the program of `job` has ended, if it has.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], and what the store gives.
    pub fn ended(&self, job: &Key) -> Result<Option<Ended>, StoreError> {
        let name = format!("{job}/{ENDED}");
        let text = self.objects.get(&name)?;
        text.map(|text| record::parse(&text).map_err(|why| self.damaged(&name, why.into())))
            .transpose()
    }

    /// Notes how many runs of `job` in a row could not restore it.
    ///
    /// # Errors
    /// What the store gives.
    pub fn put_failed_restores(&self, job: &Key, count: u32) -> Result<(), StoreError> {
        let name = format!("{job}/{FAILED_RESTORES}");
        match count {
            0 => self.objects.remove(&name),
            _ => self.put_text(
                &name,
                &FailedRestores {
                    format_version: FORMAT_VERSION,
                    count,
                },
            ),
        }
    }

    /// How many there were; one that cannot be read counts as none.
    ///
    /// # Errors
    /// What the store gives.
    pub fn failed_restores(&self, job: &Key) -> Result<u32, StoreError> {
        let text = self.objects.get(&format!("{job}/{FAILED_RESTORES}"))?;
        let found: Option<FailedRestores> = text.and_then(|text| record::parse(&text).ok());
        Ok(found.map_or(0, |found| found.count))
    }

    /// Takes `job` for a run, which nobody else has then. The guard is to be renewed.
    ///
    /// # Errors
    /// [`StoreError::Claimed`] if a run that is not lower has it and has renewed its claim within a minute, and what
    /// the store gives.
    pub fn claim(&self, job: &Key, wanted: &Claim) -> Result<ClaimGuard<'_>, StoreError> {
        claim::claim(&self.objects, job, wanted)
    }

    fn put_text(&self, name: &str, value: &impl Serialize) -> Result<(), StoreError> {
        let text = record::to_text(value).map_err(StoreError::Record)?;
        self.objects.put(name, &text)
    }

    pub(crate) fn no_such(&self, name: &str) -> StoreError {
        StoreError::NoSuchSnapshot {
            store: self.name.clone(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn damaged(&self, name: &str, source: Damage) -> StoreError {
        StoreError::Damaged {
            store: self.name.clone(),
            name: name.to_owned(),
            source,
        }
    }
}

/// Name of the note of a program's end.
const ENDED: &str = "ended.json";

/// Name of the note of runs that could not restore a job.
const FAILED_RESTORES: &str = "failed-restores.json";

fn read_record(text: &[u8], job: &Key, id: &SnapshotId) -> Result<Record, BadRecord> {
    match text.len() as u64 > MAX_RECORD_BYTES {
        true => Err(BadRecord::TooLarge),
        false => parse_record(text, job, id),
    }
}

fn local(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Local { action, path, source }
}

/// An archive that is to be stored.
pub(crate) struct Source<'a> {
    /// What errors call it.
    path: PathBuf,
    /// Its bytes.
    from: Box<dyn Read + Send + 'a>,
    /// How many, if that is known.
    bytes: Option<u64>,
}

impl<'a> Source<'a> {
    /// The file `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(local("open", path))?;
        let found = file.metadata().map_err(local("look at", path))?;
        if !found.is_file() {
            return Err(local("open", path)(ErrorKind::InvalidInput.into()));
        }
        Ok(Self {
            path: path.to_owned(),
            from: Box::new(file),
            bytes: Some(found.len()),
        })
    }

    /// What `from` gives.
    pub(crate) fn stream(from: impl Read + Send + 'a) -> Self {
        Self {
            path: PathBuf::from("the archive"),
            from: Box::new(from),
            bytes: None,
        }
    }
}

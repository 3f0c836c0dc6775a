//! Who runs a job: a note in the store that its owner renews.
//!
//! In an object store it is one object, `claim.json`, replaced only if it is still the version that was looked at. A
//! folder has no such thing, but the first file of a name is only one's. So there the note is `claim.N.json`: whoever
//! wants to replace number N makes number N+1, the highest number is what holds, and the one before it is kept, so that
//! nobody who has looked long ago can make it again. On NFS, a directory that was looked at may be an older one. Making
//! a file brings it up to date, and then it is looked at again.
//!
//! A store that knows no conditions (WebDAV) tells two at the same moment apart only by what is there afterwards.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::folder::Folder;
use crate::name::{Key, random_token};
use crate::objects::Objects;
use crate::record::{self, FORMAT_VERSION, moment};
use crate::remote::{Remote, Version};

/// A claim that was not renewed for so long is nobody's.
pub const STALE_AFTER: Duration = Duration::from_secs(60);
/// How often it is to be renewed.
pub const RENEW_EVERY: Duration = Duration::from_secs(20);

/// How often to try if others replace the note at the same time.
const TRIES: u32 = 16;

/// Who wants to run a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The machine.
    pub host: String,
    /// The process there.
    pub pid: u32,
    /// The job's run: a run with a higher number takes the job from one with a lower.
    pub run: u64,
}

/// The note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    format_version: u32,
    /// What its owner knows it by.
    owner: String,
    #[serde(flatten)]
    claim: Claim,
    /// When it was last renewed, RFC 3339, UTC.
    renewed: String,
    /// Its owner has no need of it any more.
    #[serde(default)]
    is_released: bool,
}

impl Note {
    /// True if the job may be taken from its owner by `claim`. A note that cannot be understood is nobody's.
    fn gives_way(&self, claim: &Claim, now: SystemTime) -> bool {
        let renewed = humantime::parse_rfc3339(&self.renewed).ok();
        let is_stale = renewed.is_none_or(|renewed| now.duration_since(renewed).is_ok_and(|age| age > STALE_AFTER));
        self.is_released || self.claim.run < claim.run || is_stale
    }
}

/// What is replaced when a note is: the one that was looked at.
enum Replaced {
    Number(u64),
    Version(Version),
}

/// A job that is ours, until this is dropped.
pub struct ClaimGuard<'a> {
    objects: &'a Objects,
    job: Key,
    note: Note,
    replaced: Replaced,
    is_lost: bool,
}

/// Takes the job.
pub(crate) fn claim<'a>(objects: &'a Objects, job: &Key, claim: &Claim) -> Result<ClaimGuard<'a>, StoreError> {
    let owner = random_token().map_err(StoreError::Runtime)?;
    let mut note = Note {
        format_version: FORMAT_VERSION,
        owner,
        claim: claim.clone(),
        renewed: String::new(),
        is_released: false,
    };
    for _ in 0..TRIES {
        let now = SystemTime::now();
        note.renewed = moment(now);
        let found = look(objects, job)?;
        if let Some((Some(other), _)) = &found
            && other.owner != note.owner
            && !other.gives_way(claim, now)
        {
            return Err(StoreError::Claimed {
                job: job.to_string(),
                host: other.claim.host.clone(),
                pid: other.claim.pid,
                run: other.claim.run,
                renewed: other.renewed.clone(),
            });
        }
        if let Some(replaced) = replace(objects, job, &note, found.as_ref().map(|(_, replaced)| replaced))? {
            return Ok(ClaimGuard {
                objects,
                job: job.clone(),
                note,
                replaced,
                is_lost: false,
            });
        }
    }
    Err(StoreError::ClaimLost { job: job.to_string() })
}

impl ClaimGuard<'_> {
    /// The job.
    #[must_use]
    pub fn job(&self) -> &Key {
        &self.job
    }

    /// Says that the job is still ours. To be done every [`RENEW_EVERY`].
    ///
    /// # Errors
    /// [`StoreError::Claimed`] if another run has taken it, [`StoreError::ClaimLost`] if nobody knows; what the store
    /// gives otherwise, and then the job is still ours until [`STALE_AFTER`] has gone by.
    pub fn renew(&mut self) -> Result<(), StoreError> {
        self.note.renewed = moment(SystemTime::now());
        self.rewrite()
    }

    /// Gives the job up.
    ///
    /// # Errors
    /// As [`ClaimGuard::renew`].
    pub fn release(mut self) -> Result<(), StoreError> {
        self.give_up()
    }

    fn give_up(&mut self) -> Result<(), StoreError> {
        if self.note.is_released || self.is_lost {
            return Ok(());
        }
        self.note.is_released = true;
        self.rewrite()
    }

    fn rewrite(&mut self) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            if let Some(replaced) = replace(self.objects, &self.job, &self.note, Some(&self.replaced))? {
                self.replaced = replaced;
                return Ok(());
            }
            // The answer to an earlier request may have been lost: then what is there is still ours.
            match look(self.objects, &self.job)? {
                Some((Some(found), replaced)) if found.owner == self.note.owner => self.replaced = replaced,
                Some((Some(other), _)) => {
                    self.is_lost = true;
                    return Err(StoreError::Claimed {
                        job: self.job.to_string(),
                        host: other.claim.host,
                        pid: other.claim.pid,
                        run: other.claim.run,
                        renewed: other.renewed,
                    });
                }
                _ => break,
            }
        }
        self.is_lost = true;
        Err(StoreError::ClaimLost {
            job: self.job.to_string(),
        })
    }
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        // If it cannot be said, it becomes stale.
        let _ = self.give_up();
    }
}

/// The note of a job, if there is one; none where it is not understood.
fn look(objects: &Objects, job: &Key) -> Result<Option<(Option<Note>, Replaced)>, StoreError> {
    match objects {
        Objects::Remote(remote) => Ok(remote
            .get(&name(job))?
            .map(|(text, version)| (record::parse(&text).ok(), Replaced::Version(version)))),
        Objects::Folder(folder) => {
            for _ in 0..TRIES {
                let Some(highest) = numbers(folder, job)?.into_iter().max() else {
                    return Ok(None);
                };
                // It is gone if two newer ones have come meanwhile.
                if let Some(text) = folder.get(&numbered(job, highest))? {
                    return Ok(Some((record::parse(&text).ok(), Replaced::Number(highest))));
                }
            }
            Err(StoreError::ClaimLost { job: job.to_string() })
        }
    }
}

/// Puts `note` into the place of what was looked at. None if that is not there any more.
fn replace(
    objects: &Objects,
    job: &Key,
    note: &Note,
    replaced: Option<&Replaced>,
) -> Result<Option<Replaced>, StoreError> {
    let text = record::to_text(note).map_err(StoreError::Record)?;
    match (objects, replaced) {
        (Objects::Remote(remote), replaced) => {
            let version = match replaced {
                Some(Replaced::Version(version)) => Some(version),
                _ => None,
            };
            put_remote(remote, job, note, &text, version)
        }
        (Objects::Folder(folder), replaced) => {
            let number = match replaced {
                Some(Replaced::Number(number)) => number + 1,
                _ => 1,
            };
            put_folder(folder, job, &text, number)
        }
    }
}

fn put_remote(
    remote: &Remote,
    job: &Key,
    note: &Note,
    text: &[u8],
    version: Option<&Version>,
) -> Result<Option<Replaced>, StoreError> {
    let Some(_) = remote.put_if(&name(job), text, version)? else {
        return Ok(None);
    };
    // Not every store that is asked for a condition keeps it: what is there now is what holds.
    let Some((found, version)) = remote.get(&name(job))? else {
        return Ok(None);
    };
    let found: Option<Note> = record::parse(&found).ok();
    let is_ours = found.is_some_and(|found| found.owner == note.owner);
    Ok(is_ours.then_some(Replaced::Version(version)))
}

fn put_folder(folder: &Folder, job: &Key, text: &[u8], number: u64) -> Result<Option<Replaced>, StoreError> {
    if !folder.create(&numbered(job, number), text)? {
        return Ok(None);
    }
    let numbers = numbers(folder, job)?;
    if numbers.iter().any(|&other| other > number) {
        folder.remove(&numbered(job, number))?;
        return Ok(None);
    }
    for old in numbers.into_iter().filter(|old| old + 1 < number) {
        folder.remove(&numbered(job, old))?;
    }
    Ok(Some(Replaced::Number(number)))
}

fn name(job: &Key) -> String {
    format!("{job}/claim.json")
}

fn numbered(job: &Key, number: u64) -> String {
    format!("{job}/claim.{number}.json")
}

fn numbers(folder: &Folder, job: &Key) -> Result<Vec<u64>, StoreError> {
    let found = folder.list(job.as_str())?.into_iter();
    Ok(found
        .filter_map(|found| found.name.strip_prefix("claim.")?.strip_suffix(".json")?.parse().ok())
        .collect())
}

/// True if it is the name of such a note.
pub(crate) fn is_claim(name: &str) -> bool {
    name == "claim.json" || name.starts_with("claim.") && name.ends_with(".json")
}

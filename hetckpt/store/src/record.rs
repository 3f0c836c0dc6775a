//! What a store notes of a snapshot and of a job, as JSON.

use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::name::{Key, SnapshotId};

/// Version of notes, and of records of snapshots that need no others.
pub const FORMAT_VERSION: u32 = 1;

/// Version of records of snapshots that need others, and the newest that is read.
pub const WITH_NEEDS: u32 = 2;

/// The largest record that is read, bytes.
pub const MAX_RECORD_BYTES: u64 = 1 << 20;

/// Why a snapshot was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Occasion {
    /// Its time had come; the program ran on.
    Periodic,
    /// The program was to leave the machine.
    Final,
    /// Somebody asked for it.
    Asked,
}

impl Occasion {
    /// As people read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::Final => "final",
            Self::Asked => "asked",
        }
    }
}

/// The device on which a program ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// `cuda`, `opencl`, `cpu`; empty if the program had none.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// What whoever makes a snapshot knows of it. The store adds the rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Draft {
    /// Its name.
    pub id: SnapshotId,
    /// The device.
    pub device: Device,
    /// The machine.
    pub host: String,
    /// Why it was made.
    pub occasion: Occasion,
    /// How long the dump took, seconds.
    pub dump_seconds: f64,
    /// What the program had in memory, its devices' included, bytes; 0 if nobody has looked.
    #[serde(default)]
    pub memory_bytes: u64,
    /// What the program called its state; missing if it said nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The program's command line; may be empty.
    #[serde(default)]
    pub command: Vec<String>,
    /// Other snapshots of the job, which its archive borrows from; missing if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<SnapshotId>,
}

/// What is known of a snapshot. It is written last: a snapshot without a record does not exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the record; a reader refuses a greater one.
    pub format_version: u32,
    /// The job.
    pub job: Key,
    /// When it was made, RFC 3339, UTC.
    pub time: String,
    /// Size of what is stored, bytes.
    pub stored_bytes: u64,
    /// Size of the archive, bytes; without encryption the same.
    pub archive_bytes: u64,
    /// BLAKE3 hash of what is stored, in hexadecimal.
    pub blake3: String,
    /// What is stored is encrypted.
    pub encrypted: bool,
    /// The rest.
    #[serde(flatten)]
    pub draft: Draft,
}

impl Record {
    /// The snapshot's name.
    #[must_use]
    pub fn id(&self) -> &SnapshotId {
        &self.draft.id
    }

    /// The snapshots that it needs.
    #[must_use]
    pub fn needs(&self) -> &[SnapshotId] {
        &self.draft.needs
    }

    /// `KEY/ID`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.job, self.draft.id)
    }
}

/// How a job's program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Version, as of a [`Record`].
    pub format_version: u32,
    /// Exit code, as a shell gives it.
    pub exit_code: u8,
    /// When, RFC 3339, UTC.
    pub time: String,
}

/// How many runs of a job in a row could not restore it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FailedRestores {
    pub(crate) format_version: u32,
    pub(crate) count: u32,
}

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// It is no such JSON.
    #[error("its record cannot be understood")]
    NotUnderstood,
    /// It is of another version.
    #[error("its record has version {found}, and this version of hetckpt reads up to {WITH_NEEDS}")]
    Newer {
        /// The version.
        found: u64,
    },
    /// It says that it is of another snapshot, or what cannot be.
    #[error("its record is that of another snapshot, or says what cannot be")]
    Wrong,
    /// There is none, or it is larger than any.
    #[error("its record is larger than any")]
    TooLarge,
}

/// Takes `text` for a `T`. The version is looked at before the rest, which a newer version may have changed.
pub(crate) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, BadRecord> {
    #[derive(Deserialize)]
    struct Head {
        format_version: u64,
    }

    let head: Head = serde_json::from_slice(text).map_err(|_| BadRecord::NotUnderstood)?;
    if head.format_version > u64::from(WITH_NEEDS) {
        return Err(BadRecord::Newer {
            found: head.format_version,
        });
    }
    serde_json::from_slice(text).map_err(|_| BadRecord::NotUnderstood)
}

/// Takes `text` for the record of the snapshot `id` of `job`.
///
/// # Errors
/// [`BadRecord`].
pub fn parse_record(text: &[u8], job: &Key, id: &SnapshotId) -> Result<Record, BadRecord> {
    let record: Record = parse(text)?;
    let has_hash = record.blake3.len() == 64 && record.blake3.bytes().all(|b| b.is_ascii_hexdigit());
    let has_sizes = record.encrypted || record.stored_bytes == record.archive_bytes;
    match record.job == *job && record.draft.id == *id && has_hash && has_sizes {
        true => Ok(record),
        false => Err(BadRecord::Wrong),
    }
}

/// As text, indented, for people too.
pub(crate) fn to_text(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}

/// `moment` as records have it.
#[must_use]
pub fn moment(moment: SystemTime) -> String {
    humantime::format_rfc3339_millis(moment).to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn draft(id: SnapshotId) -> Draft {
        Draft {
            id,
            device: Device {
                kind: "cpu".to_owned(),
                name: "a processor".to_owned(),
            },
            host: "node-1".to_owned(),
            occasion: Occasion::Periodic,
            dump_seconds: 0.25,
            memory_bytes: 1 << 20,
            label: "step 7".to_owned(),
            command: vec!["./program".to_owned()],
            needs: vec![],
        }
    }

    fn record() -> Record {
        let id: SnapshotId = "20260301T123000000Z-1a2b3c4d".parse().unwrap();
        Record {
            format_version: FORMAT_VERSION,
            job: "job".parse().unwrap(),
            time: moment(id.time()),
            stored_bytes: 7,
            archive_bytes: 7,
            blake3: "ab".repeat(32),
            encrypted: false,
            draft: draft(id),
        }
    }

    #[test]
    fn records_are_those_of_their_snapshots() {
        let record = record();
        let text = to_text(&record).unwrap();
        assert_eq!(parse_record(&text, &record.job, record.id()).unwrap(), record);
        let other: Key = "other".parse().unwrap();
        assert_eq!(parse_record(&text, &other, record.id()), Err(BadRecord::Wrong));
        let newer = String::from_utf8(text.clone())
            .unwrap()
            .replace("\"format_version\": 1", "\"format_version\": 9");
        assert_eq!(
            parse_record(newer.as_bytes(), &record.job, record.id()),
            Err(BadRecord::Newer { found: 9 })
        );
        for end in 0..text.len() - 2 {
            assert!(parse_record(&text[..end], &record.job, record.id()).is_err(), "{end}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_refused(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let record = record();
            prop_assert!(parse_record(&text, &record.job, record.id()).is_err());
        }
    }
}

//! Names in a store: of jobs and of snapshots. What is no such name never becomes a part of a path.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest key of a job, bytes.
pub const MAX_KEY_BYTES: usize = 128;

/// How an archive's name ends.
pub(crate) const ARCHIVE: &str = ".hetsnap";
/// How a record's name ends.
pub(crate) const RECORD: &str = ".json";
/// How the name of the note of an upload in parts ends.
pub(crate) const UPLOAD: &str = ".upload";

/// What is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Of a job.
    #[error("`{}` is no name for a job: letters, digits, `-`, `_` and `.`, at most {MAX_KEY_BYTES}, begun with one of the first two", .0.escape_debug())]
    Key(String),
    /// Of a snapshot.
    #[error("`{}` is no name of a snapshot, as `20260301T123000000Z-1a2b3c4d` is", .0.escape_debug())]
    Snapshot(String),
}

/// A job's name in a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Key {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let is_plain = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let is_taken = text.ends_with(ARCHIVE) || text.parse::<SnapshotId>().is_ok();
        if is_plain && begins_well && !is_taken && text.len() <= MAX_KEY_BYTES {
            return Ok(Self(text.to_owned()));
        }
        Err(BadName::Key(text.to_owned()))
    }
}

/// A snapshot's name: when it was made, and something random. In the order of texts, later ones come later.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(String);

impl SnapshotId {
    /// A new one, of this moment, or a millisecond later than `latest` if that is not earlier: clocks of nodes differ.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(latest: Option<&Self>) -> io::Result<Self> {
        let now = SystemTime::now();
        let moment = match latest.map(|latest| latest.time() + Duration::from_millis(1)) {
            Some(next) if next > now => next,
            _ => now,
        };
        let text = humantime::format_rfc3339_millis(moment).to_string();
        let digits: String = text.chars().filter(|c| !matches!(c, '-' | ':' | '.')).collect();
        Ok(Self(format!("{digits}-{}", &random_token()?[..8])))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// That of the snapshot whose archive is called `file`.
    #[must_use]
    pub fn of_archive(file: &str) -> Option<Self> {
        file.strip_suffix(ARCHIVE)?.parse().ok()
    }

    /// When it was made.
    #[must_use]
    pub fn time(&self) -> SystemTime {
        let t = &self.0;
        let text = format!(
            "{}-{}-{}T{}:{}:{}.{}Z",
            &t[..4],
            &t[4..6],
            &t[6..8],
            &t[9..11],
            &t[11..13],
            &t[13..15],
            &t[15..18]
        );
        // It was looked at when the name was taken.
        humantime::parse_rfc3339(&text).unwrap_or(UNIX_EPOCH)
    }
}

impl FromStr for SnapshotId {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        // 20260301T123000000Z-1a2b3c4d
        let shape = "dddddddd\u{54}ddddddddd\u{5a}-hhhhhhhh";
        let fits = |(found, expected): (char, char)| match expected {
            'd' => found.is_ascii_digit(),
            'h' => matches!(found, '0'..='9' | 'a'..='f'),
            _ => found == expected,
        };
        let id = Self(text.to_owned());
        let is_one = text.len() == shape.len() && text.chars().zip(shape.chars()).all(fits);
        match is_one && id.time() != UNIX_EPOCH {
            true => Ok(id),
            false => Err(BadName::Snapshot(text.to_owned())),
        }
    }
}

/// 32 random hexadecimal digits.
pub(crate) fn random_token() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

macro_rules! as_text {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

as_text! { Key SnapshotId }

/// `KEY/ID` and an ending.
pub(crate) fn object(key: &Key, id: &SnapshotId, ending: &str) -> String {
    format!("{key}/{id}{ending}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_lead_nowhere_else() {
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "-x",
            ".x",
            "a b",
            "a\0",
            "ä",
            "x.hetsnap",
            "20260301T123000000Z-1a2b3c4d",
        ] {
            assert!(bad.parse::<Key>().is_err(), "{bad:?}");
        }
        for good in ["a", "job-1", "A_b.c", &"x".repeat(MAX_KEY_BYTES)] {
            assert!(good.parse::<Key>().is_ok(), "{good:?}");
        }
        assert!("x".repeat(MAX_KEY_BYTES + 1).parse::<Key>().is_err());
        for bad in [
            "20260301T123000000Z-1a2b3c4g",
            "20261301T123000000Z-1a2b3c4d",
            "x",
            "20260301T123000000Z-1a2b3c4dé",
        ] {
            assert!(bad.parse::<SnapshotId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn later_snapshots_have_later_names() {
        let mut last = SnapshotId::new(None).unwrap();
        for _ in 0..50 {
            let next = SnapshotId::new(Some(&last)).unwrap();
            assert!(next > last && next.time() > last.time(), "{last} {next}");
            assert_eq!(next.as_str().parse::<SnapshotId>().unwrap(), next);
            last = next;
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_name_or_refused(text in ".{0,40}") {
            let _ = text.parse::<SnapshotId>();
            if let Ok(key) = text.parse::<Key>() {
                prop_assert!(!key.as_str().contains('/') && !key.as_str().starts_with('.'));
            }
        }
    }
}

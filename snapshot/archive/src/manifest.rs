//! The manifest: the archive's first member, JSON, readable without this program.

use hetckpt_state::bounded;
use hetckpt_state::summary::{Description, DescriptionError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::limits::{MAX_MEMBERS, MAX_PATH_BYTES, MAX_STDIO, MAX_TEXT_BYTES, MAX_WORD_BYTES, MAX_WORDS};
use crate::member::is_safe_name;

/// Name of the manifest's member.
pub const MANIFEST_NAME: &str = "manifest.json";
/// Name of the last member: the BLAKE3 hash of the manifest's bytes, in hexadecimal.
pub const MANIFEST_HASH_NAME: &str = "manifest.blake3";
/// Value of [`Manifest::format`].
pub const FORMAT: &str = "hetckpt-snapshot";
/// Version that this program writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;

/// What an archive is and holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Always [`FORMAT`].
    #[serde(deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
    pub format: String,
    /// Version of the format; a reader refuses a greater one.
    pub format_version: u32,
    /// Version of the program that wrote it.
    #[serde(deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
    pub written_by: String,
    /// Process that was dumped, as seen in its own pid namespace; the root of the tree.
    pub root_pid: i32,
    /// Command line of the root process.
    #[serde(deserialize_with = "bounded::texts::<_, MAX_WORDS, MAX_WORD_BYTES>")]
    pub command: Vec<String>,
    /// Version of the CRIU that made the process images.
    #[serde(deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
    pub criu_version: String,
    /// Seconds from the Unix epoch.
    pub created_unix: u64,
    /// One entry for each process with device state: what its device server said of it.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_MEMBERS>")]
    pub processes: Vec<DescriptionText>,
    /// What stdin, stdout and stderr of the root process were open on (`/proc/PID/fd/N` targets).
    #[serde(deserialize_with = "bounded::texts::<_, MAX_STDIO, MAX_TEXT_BYTES>")]
    pub stdio: Vec<String>,
    /// Files of the node that the archive carries, for nodes that lack them. Archives of earlier versions have none.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, MAX_MEMBERS>"
    )]
    pub files: Vec<CarriedFile>,
    /// What the processes' clocks showed, where CRIU has not written that into its images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<Clocks>,
    /// All members but the manifest and its hash, in the order they are stored.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_MEMBERS>")]
    pub members: Vec<MemberEntry>,
}

/// The description of a process's device state, as the text that it is: another version may say something else.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DescriptionText(Box<RawValue>);

impl DescriptionText {
    /// Takes a text that is JSON, whatever it says.
    ///
    /// # Errors
    /// If it is no JSON.
    pub fn new(text: String) -> serde_json::Result<Self> {
        RawValue::from_string(text).map(Self)
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// What it says.
    ///
    /// # Errors
    /// [`DescriptionError`].
    pub fn parse(&self) -> Result<Description, DescriptionError> {
        Description::parse(self.text().as_bytes())
    }
}

impl PartialEq for DescriptionText {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

/// Clocks that count from the machine's start, or from what stands for that in the processes' time namespace,
/// nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`.
    pub monotonic_ns: i64,
    /// `CLOCK_BOOTTIME`.
    pub boottime_ns: i64,
}

/// A file that the processes had mapped, such as the program and its libraries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedFile {
    /// Where it was: an absolute path.
    #[serde(deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
    pub path: String,
    /// Its member, whose bytes are one zstd frame.
    #[serde(deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
    pub member: String,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// Its kind and permissions (`st_mode`).
    pub mode: u32,
    /// BLAKE3 hash of its content, in hexadecimal.
    #[serde(deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
    pub blake3: String,
}

impl CarriedFile {
    /// True if it can be told apart from an attempt to write elsewhere: `path` stays below whatever folder it is put
    /// into.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        is_plain_path(&self.path) && is_safe_name(&self.member)
    }
}

/// True if `path` is absolute, short enough for the system, and leads through ordinary names alone: none is empty, `.`
/// or `..`.
#[must_use]
pub fn is_plain_path(path: &str) -> bool {
    path.len() <= MAX_PATH_BYTES
        && !path.contains('\0')
        && path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(|part| !matches!(part, "" | "." | "..")))
}

/// A member, as the manifest lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberEntry {
    /// Name in the tar.
    #[serde(deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
    pub name: String,
    /// Bytes as stored.
    pub stored_bytes: u64,
    /// Bytes of the file it was made from.
    pub raw_bytes: u64,
    /// How it is stored.
    pub encoding: Encoding,
    /// BLAKE3 hash of the stored bytes, in hexadecimal.
    #[serde(deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
    pub blake3: String,
}

impl MemberEntry {
    /// Name of the file that it was made from: without the `.zst` of what was compressed here.
    #[must_use]
    pub fn raw_name(&self) -> &str {
        match self.encoding {
            Encoding::Zstd => self.name.strip_suffix(".zst").unwrap_or(&self.name),
            Encoding::Stored => &self.name,
        }
    }
}

/// How a member is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// One zstd frame with content checksum; the name ends in `.zst`.
    Zstd,
    /// As it was (it is compressed inside).
    Stored,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_could_escape_are_not_plain() {
        for path in [
            "",
            "/",
            "etc/passwd",
            "/../x",
            "/a/../b",
            "/a//b",
            "/a/.",
            "/a/",
            "/a\0b",
            "//a",
        ] {
            assert!(!is_plain_path(path), "{path:?}");
        }
        assert!(!is_plain_path(&format!("/{}", "n".repeat(4096))));
        for path in ["/a", "/usr/lib/x86_64-linux-gnu/libc.so.6", "/home/a b/..c/d\\e"] {
            assert!(is_plain_path(path), "{path:?}");
        }
    }
}

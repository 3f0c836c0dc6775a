//! What an archive says of itself: a header, its first member, and an index behind all others. Both are JSON, readable
//! without this program.

use hetckpt_state::bounded;
use hetckpt_state::summary::{Description, Summary};
use serde::{Deserialize, Serialize};

use crate::hex_hash;
use crate::limits::{
    MAX_MEMBERS, MAX_PARENTS, MAX_PARTS, MAX_PATH_BYTES, MAX_STDIO, MAX_TEXT_BYTES, MAX_WORD_BYTES, MAX_WORDS,
};
use crate::member::is_safe_name;

/// Name of the header's member, the first one.
pub const HEADER_NAME: &str = "header.json";
/// Name of the index's member, the last but one.
pub const INDEX_NAME: &str = "index.json";
/// Name of the last member: [`crate::seal::Seal`].
pub const SEAL_NAME: &str = "index.blake3";
/// Value of [`Header::format`].
pub const FORMAT: &str = "hetckpt-snapshot";
/// Version of an archive that has all that it needs. 1 was never released.
pub const FORMAT_VERSION: u32 = 2;
/// Version of an archive that borrows from others, and the newest that is read. In 3, only what is stored as it is
/// borrowed, and all of it stood behind a member's own parts.
pub const INCREMENTAL_VERSION: u32 = 4;

/// What an archive is and holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// What is known when it is begun.
    pub header: Header,
    /// What is known when it is complete.
    pub index: Index,
}

impl Manifest {
    /// What the device servers said of the processes.
    pub fn summaries(&self) -> impl Iterator<Item = &Summary> {
        self.index.processes.iter().map(|process| &process.summary)
    }

    /// What the first process that has a label called its state; empty if none has one.
    #[must_use]
    pub fn label(&self) -> &str {
        let mut labels = self.summaries().map(|summary| summary.label.as_str());
        labels.find(|label| !label.is_empty()).unwrap_or_default()
    }
}

/// What is known when an archive is begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Always [`FORMAT`].
    #[serde(deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
    pub format: String,
    /// Version of the format, of all that is in the archive; a reader refuses a greater one.
    pub format_version: u32,
    /// Version of the program that wrote it.
    #[serde(deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
    pub written_by: String,
    /// Version of the CRIU that made the process images.
    #[serde(deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
    pub criu_version: String,
    /// Seconds from the Unix epoch.
    pub created_unix: u64,
    /// Process that was dumped, as seen in its own pid namespace; the root of the tree.
    pub root_pid: i32,
    /// Command line of the root process.
    #[serde(deserialize_with = "bounded::texts::<_, MAX_WORDS, MAX_WORD_BYTES>")]
    pub command: Vec<String>,
    /// What stdin, stdout and stderr of the root process were open on (`/proc/PID/fd/N` targets).
    #[serde(deserialize_with = "bounded::texts::<_, MAX_STDIO, MAX_TEXT_BYTES>")]
    pub stdio: Vec<String>,
}

/// What is known when an archive is complete.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// What the processes' clocks showed, where CRIU has not written that into its images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<Clocks>,
    /// One entry for each process with device state: what its device server said of it.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_MEMBERS>")]
    pub processes: Vec<Description>,
    /// Files of the node that the archive carries, for nodes that lack them.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_MEMBERS>")]
    pub files: Vec<CarriedFile>,
    /// All members but header, index and seal, in the order they are stored.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_MEMBERS>")]
    pub members: Vec<MemberEntry>,
    /// The archives that members borrow from.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, MAX_PARENTS>"
    )]
    pub parents: Vec<Parent>,
}

/// An archive that another one borrows from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Its file: a path that starts from the folder of the archive that borrows.
    #[serde(deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
    pub file: String,
    /// BLAKE3 hash of its header and index, in hexadecimal.
    #[serde(with = "hex_hash")]
    pub manifest: blake3::Hash,
}

/// Bytes that a member has in another archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Borrowed {
    /// Which of [`Index::parents`].
    pub parent: u32,
    /// That archive's member, which is stored as the one that borrows.
    #[serde(deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
    pub member: String,
    /// Where the bytes begin in that member's own parts, unpacked. Of a compressed member, only whole parts are
    /// borrowed.
    pub offset_bytes: u64,
    /// How many they are, unpacked.
    pub size_bytes: u64,
    /// How many of the borrowing member's own parts stand before them: all of them, unless it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_parts: Option<u32>,
}

impl Borrowed {
    /// True if `next` is what stands behind it, there and here.
    #[must_use]
    pub fn is_continued_by(&self, next: &Self) -> bool {
        self.parent == next.parent
            && self.member == next.member
            && self.after_parts == next.after_parts
            && self.offset_bytes.checked_add(self.size_bytes) == Some(next.offset_bytes)
    }
}

/// What a member has at some place.
#[derive(Clone, Copy, Debug)]
pub enum Run<'a> {
    /// Its own part with this number.
    Own(usize),
    /// Bytes of another archive.
    Borrowed(&'a Borrowed),
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

/// A member, as the index lists it: one file of the tar for each of its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberEntry {
    /// Name of its first part in the tar; see [`part_name`] for the others.
    #[serde(deserialize_with = "bounded::text::<_, MAX_TEXT_BYTES>")]
    pub name: String,
    /// How it is stored.
    pub encoding: Encoding,
    /// Its own parts. One that borrows nothing has at least one.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_PARTS>")]
    pub parts: Vec<Part>,
    /// What it has in other archives, in its order.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, MAX_PARTS>"
    )]
    pub borrowed: Vec<Borrowed>,
}

/// A part of a member: so large a piece of the file that its size and hash are known when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Bytes as stored.
    pub stored_bytes: u64,
    /// Bytes of the file.
    pub raw_bytes: u64,
    /// BLAKE3 hash of the stored bytes, in hexadecimal.
    #[serde(with = "hex_hash")]
    pub blake3: blake3::Hash,
}

/// Name in the tar of part `number`, counted from 0, of the member `name`.
#[must_use]
pub fn part_name(name: &str, number: usize) -> String {
    match number {
        0 => name.to_owned(),
        n => format!("{name}.part{n}"),
    }
}

impl MemberEntry {
    /// Bytes as stored; a sum that no number holds is the largest.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.parts
            .iter()
            .fold(0, |sum, part| sum.saturating_add(part.stored_bytes))
    }

    /// Bytes of the file that it was made from, likewise.
    #[must_use]
    pub fn raw_bytes(&self) -> u64 {
        let own = self.parts.iter().map(|part| part.raw_bytes);
        own.fold(self.borrowed_bytes(), u64::saturating_add)
    }

    /// Bytes of it that are in other archives, likewise.
    #[must_use]
    pub fn borrowed_bytes(&self) -> u64 {
        let borrowed = self.borrowed.iter().map(|borrowed| borrowed.size_bytes);
        borrowed.fold(0, u64::saturating_add)
    }

    /// What it is made of, in its order.
    pub fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        let ends = self.borrowed.iter().map(|borrowed| self.parts_before(borrowed));
        let starts = [0].into_iter().chain(ends.clone());
        let own = starts
            .zip(ends.chain([self.parts.len()]))
            .map(|(start, end)| start..end);
        let borrowed = self.borrowed.iter().map(Some).chain([None]);
        own.zip(borrowed)
            .flat_map(|(own, borrowed)| own.map(Run::Own).chain(borrowed.map(Run::Borrowed)))
    }

    /// How many of its own parts stand before what is borrowed.
    fn parts_before(&self, borrowed: &Borrowed) -> usize {
        let said = borrowed.after_parts.map(|count| count as usize);
        said.map_or(self.parts.len(), |count| count.min(self.parts.len()))
    }

    /// True if what it borrows stands in its order.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        let said = |borrowed: &Borrowed| borrowed.after_parts.map_or(self.parts.len(), |count| count as usize);
        self.borrowed.iter().map(said).is_sorted()
            && self.borrowed.iter().all(|borrowed| said(borrowed) <= self.parts.len())
    }

    /// Has it go on with what is borrowed.
    pub(crate) fn borrow(&mut self, borrowed: Borrowed) {
        match self.borrowed.last_mut() {
            Some(last) if last.is_continued_by(&borrowed) => last.size_bytes += borrowed.size_bytes,
            _ => self.borrowed.push(borrowed),
        }
    }

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
    /// Each part is one zstd frame with content checksum; the name ends in `.zst`.
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

//! The manifest: the archive's first member, JSON, readable without this program.

use serde::{Deserialize, Serialize};

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
    pub format: String,
    /// Version of the format; a reader refuses a greater one.
    pub format_version: u32,
    /// Version of the program that wrote it.
    pub written_by: String,
    /// Process that was dumped, as seen in its own pid namespace; the root of the tree.
    pub root_pid: i32,
    /// Command line of the root process.
    pub command: Vec<String>,
    /// Version of the CRIU that made the process images.
    pub criu_version: String,
    /// Seconds from the Unix epoch.
    pub created_unix: u64,
    /// One entry for each process with device state: what its device server said of it.
    pub processes: Vec<serde_json::Value>,
    /// What stdin, stdout and stderr of the root process were open on (`/proc/PID/fd/N` targets).
    pub stdio: Vec<String>,
    /// All members but the manifest and its hash, in the order they are stored.
    pub members: Vec<MemberEntry>,
}

/// A member, as the manifest lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberEntry {
    /// Name in the tar.
    pub name: String,
    /// Bytes as stored.
    pub stored_bytes: u64,
    /// Bytes of the file it was made from.
    pub raw_bytes: u64,
    /// How it is stored.
    pub encoding: Encoding,
    /// BLAKE3 hash of the stored bytes, in hexadecimal.
    pub blake3: String,
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

//! Limits on what an archive may claim, checked before anything is allocated.

/// Largest manifest, bytes.
pub const MAX_MANIFEST_BYTES: u64 = 64 << 20;
/// Most members of an archive.
pub const MAX_MEMBERS: usize = 1 << 16;
/// Longest member name, bytes (what a plain tar header holds).
pub const MAX_NAME_BYTES: usize = 99;
/// Longest path of a carried file, bytes: shorter than the system's longest, because it is put into a folder.
pub const MAX_PATH_BYTES: usize = 3072;

//! Limits on what an archive may claim, checked before anything is allocated.

/// Largest header or index, bytes.
pub const MAX_TEXT_MEMBER_BYTES: u64 = 64 << 20;
/// Most members of an archive.
pub const MAX_MEMBERS: usize = 1 << 16;
/// Most parts of an archive's members.
pub const MAX_PARTS: usize = 1 << 18;
/// Most archives that one borrows from: all of them are open at once.
pub const MAX_PARENTS: usize = 256;
/// Longest member name, bytes (what a plain tar header holds).
pub const MAX_NAME_BYTES: usize = 99;
/// Longest path of a carried file, bytes: shorter than the system's longest, because it is put into a folder.
pub const MAX_PATH_BYTES: usize = 3072;
/// Largest state of a process, unpacked, bytes.
pub const MAX_STATE_BYTES: u64 = 16 << 30;
/// Most bytes that a byte of a zstd frame can stand for: a block has 128 KiB at most and takes four bytes at least.
pub const MAX_EXPANSION: u64 = (128 << 10) / 4;
/// Most words of a command line: no system takes more.
pub const MAX_WORDS: usize = 1 << 20;
/// Longest of them, bytes.
pub const MAX_WORD_BYTES: usize = 1 << 20;
/// Most descriptors whose targets are noted.
pub const MAX_STDIO: usize = 16;
/// Longest text of another kind, bytes: a version, a hash, the target of a descriptor.
pub const MAX_TEXT_BYTES: usize = 16 << 10;

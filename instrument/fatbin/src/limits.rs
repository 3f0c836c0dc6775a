//! Upper bounds for what a fat binary may ask for.

/// Largest PTX text after decompression.
pub const MAX_PTX_BYTES: u64 = 512 << 20;
/// Most entries in one fatbin.
pub const MAX_ENTRIES: usize = 65_536;
/// Largest options record.
pub const MAX_OPTIONS_BYTES: usize = 64 << 10;

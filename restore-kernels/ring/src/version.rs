//! The protocol's version and magic number.

/// Version of ring layout, commands and control messages together; both sides must have the same.
pub const PROTOCOL_VERSION: u32 = 1;

/// First word of the shared memory: `hetring\0`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"hetring\0");

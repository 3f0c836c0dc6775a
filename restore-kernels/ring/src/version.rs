//! The protocol's version and magic number.

/// Version of ring layout, commands and control messages together. A program brings its driver library along when it is
/// restored, and with it this version: servers go on reading older ones.
pub const PROTOCOL_VERSION: u32 = 11;

/// Versions that a server reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readable {
    /// The oldest.
    pub oldest: u32,
    /// The newest.
    pub newest: u32,
}

impl Readable {
    /// What this server reads. 1 and 2 were never released; 4 has [`crate::command::Command::MallocAt`], 5
    /// clusters of launches and tensor maps, 6 [`crate::command::Command::EventSynchronizeElapsed`], arrays,
    /// texture and surface objects, and variables in managed memory, 7 [`crate::command::Command::QueryClusters`],
    /// 8 [`crate::command::Command::GraphPart`], 9 [`crate::printed`], 10
    /// [`crate::command::Command::StepAfter`], 11 [`crate::command::Command::ManagedFaults`].
    pub const HERE: Self = Self {
        oldest: 3,
        newest: PROTOCOL_VERSION,
    };

    /// True if `version` is one of them.
    #[must_use]
    pub fn has(self, version: u32) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }
}

/// First word of the shared memory: `hetring\0`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"hetring\0");

/// Name of the symbol by which a shared object of ours tells its version to whoever reads the file.
pub const PART_SYMBOL: &str = "HETCKPT_VERSION";

/// Bytes that the symbol stands for: the version, then zeros.
pub const PART_VERSION_BYTES: usize = 32;

/// `version` as [`PART_SYMBOL`] has it.
#[must_use]
pub const fn part_version(version: &str) -> [u8; PART_VERSION_BYTES] {
    let mut bytes = [0; PART_VERSION_BYTES];
    bytes.split_at_mut(version.len()).0.copy_from_slice(version.as_bytes());
    bytes
}

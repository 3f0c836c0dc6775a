//! Device memory and pinned host memory of a process.

use bincode::{Decode, Encode};

/// A range that the device maps: whole multiples of the mapping granularity. Its content is in the memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Mapping {
    /// First device address.
    pub addr: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Index of the device.
    pub device: u32,
}

/// What the program allocated; lies inside one [`Mapping`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Allocation {
    /// First device address.
    pub addr: u64,
    /// Size in bytes as the program asked for it.
    pub size_bytes: u64,
    /// Who owns it.
    pub owner: Owner,
}

/// Who owns an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Owner {
    /// The program, through an allocation call.
    Program,
    /// A module: its variables.
    Module(u64),
}

/// Pinned host memory: a memfd of the process, mapped at the same address in server and process. Its content is saved
/// with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PinnedMemory {
    /// Address in the process, and for kernels.
    pub addr: u64,
    /// Size in bytes, page-aligned.
    pub size_bytes: u64,
    /// Number of the memfd in the process.
    pub fd: i32,
}

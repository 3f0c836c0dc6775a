//! Streams, events and what waits in them.

use bincode::{Decode, Encode};

use crate::kernel_run::KernelRun;

/// A stream of the process and what it still has to do.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StreamState {
    /// Handle, as the process uses it.
    pub id: u64,
    /// `CUstream_flags`: bit 0 = does not synchronise with the legacy default stream.
    pub flags: u32,
    /// Priority.
    pub priority: i32,
    /// What it still has to do, in order.
    pub work: Vec<WorkItem>,
}

/// Something a stream still has to do.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WorkItem {
    /// What.
    pub work: Work,
    /// Places in other streams that must be reached first: stream handle and number of the item there.
    pub after: Vec<(u64, u64)>,
    /// Number in its stream, counted from its creation.
    pub number: u64,
}

/// What a stream has to do.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Work {
    /// Go on with a stopped launch.
    Resume(Box<KernelRun>),
    /// A command that was held back, in the words of the ring of the version that the process state names.
    Command(Vec<u8>),
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct EventState {
    /// Handle, as the process uses it.
    pub id: u64,
    /// `CUevent_flags`.
    pub flags: u32,
    /// Number of records asked for.
    pub records: u64,
    /// Number of the last record that happened.
    pub completed: u64,
    /// Time of that record in nanoseconds since the process's first record.
    pub time_ns: u64,
}

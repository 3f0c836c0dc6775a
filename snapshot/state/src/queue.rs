//! Streams, events and what waits in them.

use bincode::de::Decoder;
use bincode::error::{AllowedEnumVariants, DecodeError};
use bincode::{Decode, Encode};

use crate::budget::{self, Budget, decode_fields};
use crate::command::{StreamCommand, WaitingCommand};
use crate::kernel_run::KernelRun;

/// A stream of the process and what it still has to do.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct StreamState {
    /// Handle, as the process uses it; 0 is the legacy default stream.
    pub id: u64,
    /// Index of its device.
    pub device: u32,
    /// True if it does not join with the legacy default stream.
    pub non_blocking: bool,
    /// Priority.
    pub priority: i32,
    /// True if the process has destroyed it; it goes when its work is done.
    pub is_destroyed: bool,
    /// Items ever put into it; items are numbered from 1.
    pub submitted: u64,
    /// Items done; less than `submitted` by the length of `work`.
    pub completed: u64,
    /// What it still has to do, in order.
    pub work: Vec<WorkItem>,
}

decode_fields!(StreamState {
    id: value,
    device: value,
    non_blocking: value,
    priority: value,
    is_destroyed: value,
    submitted: value,
    completed: value,
    work: list,
});

/// A place in a stream: reached when so many of its items are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Place {
    /// Stream.
    pub stream: u64,
    /// Number of items done there.
    pub number: u64,
}

/// Something a stream still has to do.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct WorkItem {
    /// What.
    pub work: Work,
    /// Reply slot of the thread of the process that waits for it.
    pub reply: Option<u32>,
    /// Places in other streams that must be reached first.
    pub after: Vec<Place>,
}

decode_fields!(WorkItem {
    work: part,
    reply: value,
    after: list,
});

/// What a stream has to do.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub enum Work {
    /// A command that was held back.
    Command(StreamCommand),
    /// Go on with a stopped launch.
    Resume(Box<KernelRun>),
    /// Wait until the process reports that its host function has returned.
    AwaitHostFunction(u64),
}

impl Decode<Budget> for Work {
    fn decode<D: Decoder<Context = Budget>>(decoder: &mut D) -> Result<Self, DecodeError> {
        match u32::decode(decoder)? {
            0 => budget::part(decoder).map(Self::Command),
            1 => budget::boxed(decoder).map(Self::Resume),
            2 => budget::value(decoder).map(Self::AwaitHostFunction),
            found => Err(DecodeError::UnexpectedVariant {
                type_name: "Work",
                allowed: &AllowedEnumVariants::Range { min: 0, max: 2 },
                found,
            }),
        }
    }
}

/// A command that waits for places in streams but is in none: a synchronise, a free.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct PendingCommand {
    /// The command.
    pub command: WaitingCommand,
    /// Reply slot of the thread of the process that waits for it.
    pub reply: Option<u32>,
    /// Places that must be reached first.
    pub after: Vec<Place>,
}

decode_fields!(PendingCommand {
    command: value,
    reply: value,
    after: list,
});

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct EventState {
    /// Handle, as the process uses it.
    pub id: u64,
    /// Index of its device.
    pub device: u32,
    /// False if it was made without timing.
    pub timing: bool,
    /// Where its latest record stands.
    pub latest: Option<Place>,
    /// When the last record that happened did so, in nanoseconds since the start of the device's clock.
    pub time_ns: Option<u64>,
}

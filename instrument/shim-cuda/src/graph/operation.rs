//! What a node does, and what a stream that is captured would have been given.

use std::sync::Arc;

use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_ring::command::{Command, EventId, FillValue, KernelId, LaunchCommand, Rows, StreamId};

use crate::copy_params::Copy3D;
use crate::handles::Handle;
use crate::host_functions::HostFunction;

/// A launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel's handle.
    pub function: Handle,
    /// Its number in the ring.
    pub kernel: KernelId,
    /// How many threads.
    pub shape: LaunchShape,
    /// Parameter buffer.
    pub params: Arc<[u8]>,
}

impl Launch {
    /// The command for `stream`.
    pub fn into_command(self, stream: StreamId) -> Command {
        Command::Launch(LaunchCommand {
            stream,
            kernel: self.kernel,
            shape: self.shape,
            params: self.params,
        })
    }
}

/// What a node does.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Nothing: it stands for what it depends on.
    Empty,
    /// Launches.
    Launch(Launch),
    /// Copies.
    Copy(Box<Copy3D>),
    /// Fills.
    Fill {
        /// Where.
        dst: Rows,
        /// With what.
        value: FillValue,
    },
    /// Calls a function of the program's.
    HostFunction(HostFunction),
    /// Records an event that is not the graph's own.
    RecordEvent {
        /// Its handle.
        event: Handle,
        /// Its number in the ring.
        id: EventId,
    },
    /// Waits for an event that is not the graph's own.
    WaitEvent {
        /// Its handle.
        event: Handle,
        /// Its number in the ring.
        id: EventId,
    },
    /// Has memory of the graph's own, which is there as long as the graph.
    Allocate {
        /// First address.
        addr: u64,
        /// Length.
        size_bytes: u64,
    },
    /// Has no use for such memory any more.
    Free {
        /// First address.
        addr: u64,
    },
    /// Does what another graph does, which is this node's own.
    Graph(Handle),
}

impl Operation {
    /// `CUgraphNodeType`.
    pub fn kind(&self) -> u32 {
        match self {
            Self::Launch(_) => 0,
            Self::Copy(_) => 1,
            Self::Fill { .. } => 2,
            Self::HostFunction(_) => 3,
            Self::Graph(_) => 4,
            Self::Empty => 5,
            Self::WaitEvent { .. } => 6,
            Self::RecordEvent { .. } => 7,
            Self::Allocate { .. } => 10,
            Self::Free { .. } => 11,
        }
    }
}

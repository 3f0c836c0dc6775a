//! All that is known of one process at the moment it was stopped.

use bincode::{Decode, Encode};

use crate::allocation::{Allocation, Mapping, PinnedMemory};
use crate::kernel_run::ProbedKernel;
use crate::memory_index::MemoryIndex;
use crate::module::ModuleState;
use crate::queue::{EventState, StreamState};
use crate::virtual_device::VirtualDevice;

/// State of one process.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ProcessState {
    /// Process id at capture.
    pub pid: u32,
    /// Version of the ring's words.
    pub ring_version: u32,
    /// Number of the ring's memfd in the process.
    pub ring_fd: i32,
    /// Commands of the ring that have been taken out.
    pub ring_consumed: u64,
    /// Bytes of the ring that the server alone knows the meaning of (none so far).
    pub ring_private: Vec<u8>,
    /// The device that it was captured on.
    pub captured_on: CaptureDevice,
    /// The device that the process sees.
    pub virtual_device: VirtualDevice,
    /// Result that every call of the process gets from now on, 0 for none.
    pub fault: u32,
    /// Next handle to give out.
    pub next_handle: u64,
    /// Mapped device memory.
    pub mappings: Vec<Mapping>,
    /// Allocations.
    pub allocations: Vec<Allocation>,
    /// Pinned host memory.
    pub pinned: Vec<PinnedMemory>,
    /// Modules.
    pub modules: Vec<ModuleState>,
    /// Kernels that launches are stopped in.
    pub probed_kernels: Vec<ProbedKernel>,
    /// Streams and what they still have to do.
    pub streams: Vec<StreamState>,
    /// Events.
    pub events: Vec<EventState>,
    /// Where the content of device memory lies in the memory file.
    pub memory: MemoryIndex,
}

/// A device as a snapshot remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CaptureDevice {
    /// `cpu` or `cuda`.
    pub kind: String,
    /// Its own name.
    pub name: String,
    /// Driver or compiler.
    pub driver: String,
}

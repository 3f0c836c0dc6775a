//! All that is known of one process at the moment it was stopped.

use bincode::Encode;
use bincode::enc::Encoder;
use bincode::error::EncodeError;

use crate::allocation::{Allocation, Mapping, PinnedMemory};
use crate::array::{ArrayState, ImageState};
use crate::budget::decode_fields;
use crate::command::{StreamCommand, WaitingCommand};
use crate::kernel_run::ProbedKernel;
use crate::memory_index::MemoryIndex;
use crate::module::{ArrivingPart, ModuleState, PlacedVariable};
use crate::names::{FORMAT_VERSION, OLDEST_FORMAT_VERSION, WITH_VARIABLES};
use crate::queue::{EventState, PendingCommand, StreamState, Work};
use crate::virtual_device::VirtualDevice;

/// State of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessState {
    /// Process id at capture.
    pub pid: u32,
    /// Version of the ring that the process speaks, also after a restore.
    pub ring_version: u32,
    /// Its devices; whatever names a device does so by its index here.
    pub devices: Vec<DeviceState>,
    /// Result that every call of the process gets from now on, 0 for none.
    pub fault: u32,
    /// Nanoseconds on the clock of events.
    pub clock_ns: u64,
    /// Mapped device memory.
    pub mappings: Vec<Mapping>,
    /// Allocations.
    pub allocations: Vec<Allocation>,
    /// Pinned host memory.
    pub pinned: Vec<PinnedMemory>,
    /// Modules.
    pub modules: Vec<ModuleState>,
    /// Parts of modules that are on their way.
    pub arriving: Vec<ArrivingPart>,
    /// Kernels that launches are stopped in.
    pub probed_kernels: Vec<ProbedKernel>,
    /// Streams and what they still have to do.
    pub streams: Vec<StreamState>,
    /// Commands that wait for streams.
    pub pending: Vec<PendingCommand>,
    /// Host functions that have returned and that their streams have not seen yet.
    pub host_functions_done: Vec<u64>,
    /// Events.
    pub events: Vec<EventState>,
    /// Where the content of device memory lies in the memory file.
    pub memory: MemoryIndex,
    /// Variables that the device has placed.
    pub variables: Vec<PlacedVariable>,
    /// Arrays.
    pub arrays: Vec<ArrayState>,
    /// Texture and surface objects.
    pub images: Vec<ImageState>,
}

impl ProcessState {
    /// Format version that it is written as.
    #[must_use]
    pub fn format_version(&self) -> u32 {
        if self.has_arrays() {
            FORMAT_VERSION
        } else if !self.variables.is_empty() || self.has_clusters() {
            WITH_VARIABLES
        } else {
            OLDEST_FORMAT_VERSION
        }
    }

    /// There are arrays, texture or surface objects, or commands for them that are held back.
    #[must_use]
    pub fn has_arrays(&self) -> bool {
        let mut work = self.streams.iter().flat_map(|stream| &stream.work);
        let mut pending = self.pending.iter().map(|pending| &pending.command);
        !self.arrays.is_empty()
            || !self.images.is_empty()
            || work.any(|item| matches!(&item.work, Work::Command(StreamCommand::CopyBox(_))))
            || pending.any(|c| {
                matches!(
                    c,
                    WaitingCommand::DestroyArray { .. } | WaitingCommand::DestroyImage { .. }
                )
            })
    }

    /// The address that the process has of a variable; `None` if its module has none of that name.
    #[must_use]
    pub fn address_of(&self, variable: &PlacedVariable) -> Option<u64> {
        let module = self.modules.iter().find(|module| module.id == variable.module)?;
        let global = module.globals.iter().find(|global| global.name == variable.name)?;
        Some(global.addr)
    }

    /// A launch that is held back comes in clusters.
    fn has_clusters(&self) -> bool {
        let work = self.streams.iter().flat_map(|stream| &stream.work);
        let shapes = work.filter_map(|item| match &item.work {
            Work::Command(StreamCommand::Launch(launch)) => Some(launch.shape),
            Work::Resume(run) => Some(run.shape),
            Work::Command(_) | Work::AwaitHostFunction(_) => None,
        });
        shapes.into_iter().any(|shape| shape.cluster != [0; 3])
    }
}

impl Encode for ProcessState {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        let Self {
            pid,
            ring_version,
            devices,
            fault,
            clock_ns,
            mappings,
            allocations,
            pinned,
            modules,
            arriving,
            probed_kernels,
            streams,
            pending,
            host_functions_done,
            events,
            memory,
            variables,
            arrays,
            images,
        } = self;
        (pid, ring_version, devices, fault, clock_ns).encode(encoder)?;
        (mappings, allocations, pinned, modules, arriving).encode(encoder)?;
        (probed_kernels, streams, pending, host_functions_done, events, memory).encode(encoder)?;
        match self.format_version() {
            ..WITH_VARIABLES => Ok(()),
            WITH_VARIABLES => variables.encode(encoder),
            _ => (variables, arrays, images).encode(encoder),
        }
    }
}

decode_fields!(ProcessState {
    pid: value,
    ring_version: value,
    devices: list,
    fault: value,
    clock_ns: value,
    mappings: list,
    allocations: list,
    pinned: list,
    modules: list,
    arriving: list,
    probed_kernels: list,
    streams: list,
    pending: list,
    host_functions_done: list,
    events: list,
    memory: part,
    variables: list_since_3,
    arrays: list_since_4,
    images: list_since_4,
});

/// A device of a process.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct DeviceState {
    /// What it was captured on.
    pub captured_on: CaptureDevice,
    /// What the process sees.
    pub virtual_device: VirtualDevice,
}

decode_fields!(DeviceState {
    captured_on: part,
    virtual_device: part,
});

/// A device as a snapshot remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct CaptureDevice {
    /// `cpu`, `cuda` or `opencl`.
    pub kind: String,
    /// Its own name.
    pub name: String,
    /// Driver or compiler.
    pub driver: String,
}

decode_fields!(CaptureDevice {
    kind: text,
    name: text,
    driver: text,
});

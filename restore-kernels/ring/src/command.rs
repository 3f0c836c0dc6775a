//! Commands: what the application asks of its device. Encoded with bincode 2 (standard configuration).
//!
//! Ids of modules, streams, events and host functions are given out by the application, so that making one costs no
//! round trip. A command with a reply slot is answered when it has been done (for a synchronise: when what it waits for
//! is done); one without is never answered, and its failure becomes the ring's fault word.

use std::sync::Arc;

use bincode::{Decode, Encode};
use hetckpt_abi::array::{ArrayShape, BoxCopy};
use hetckpt_abi::cluster_query::ClusterQuery;
use hetckpt_abi::image_object::{ImageHandle, ImageObject};
use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_abi::tensor_map::TensorMap;

use crate::error::RingError;
use crate::layout;

/// A module, numbered by the application from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct ModuleId(pub u64);

/// A device of the application, numbered from 0 in the order of [`crate::message::Response::Welcome`]. Streams, events
/// and modules belong to the device that they were made for. So far every application has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct DeviceIndex(pub u32);

impl DeviceIndex {
    /// The first device.
    pub const FIRST: Self = Self(0);
}

/// A stream, numbered by the application. Numbers below [`StreamId::FIRST_CREATED`] are the legacy default streams of
/// the devices, which always exist. Per-thread default streams are created like others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The legacy default stream of the first device: joins with all its blocking streams.
    pub const LEGACY_DEFAULT: Self = Self(0);
    /// From here on streams are made by [`Command::StreamCreate`]. No machine has as many devices.
    pub const FIRST_CREATED: u64 = 64;
}

/// An event, numbered by the application from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct EventId(pub u64);

/// An array, numbered by the application from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct ArrayId(pub u64);

/// An executable graph, numbered by the application from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct GraphId(pub u64);

/// A kernel: its module and its index in the module's [`crate::reply::ModuleDescription::kernels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct KernelId {
    /// Module.
    pub module: ModuleId,
    /// Index.
    pub index: u32,
}

/// Number of a reply slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct SlotId(pub u32);

/// A staging chunk and how much of it counts. The server gives it back with
/// [`crate::server_side::ServerSide::release_chunk`] when it has taken the data out (copies to the device), or answers
/// when it has put the data in (copies from it), after which the application gives it back itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Chunk {
    /// Number of the chunk.
    pub index: u32,
    /// Bytes that count, from the chunk's start.
    pub length: u32,
}

/// Bytes on their way to the server.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Payload {
    /// In the command itself, at most [`layout::MAX_INLINE_BYTES`].
    Inline(Vec<u8>),
    /// In a staging chunk.
    Staged(Chunk),
}

impl Payload {
    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Staged(chunk) => u64::from(chunk.length),
        }
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Rows in device (or pinned) memory; a plain range is one row.
///
/// # Units
/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Rows {
    /// Address of the first row.
    pub addr: u64,
    /// From row to row.
    pub pitch: u64,
    /// Length of a row.
    pub width: u64,
    /// Number of rows.
    pub rows: u64,
}

impl Rows {
    /// A plain range.
    #[must_use]
    pub fn range(addr: u64, length: u64) -> Self {
        Self {
            addr,
            pitch: length,
            width: length,
            rows: 1,
        }
    }
}

/// Width of an element of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum FillValue {
    /// Bytes.
    U8(u8),
    /// 16-bit words.
    U16(u16),
    /// 32-bit words.
    U32(u32),
}

/// Flags of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct StreamFlags {
    /// Does not join with the legacy default stream (`CU_STREAM_NON_BLOCKING`).
    pub non_blocking: bool,
    /// As CUDA has it: 0 least, negative more urgent.
    pub priority: i32,
}

/// A kernel launch.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LaunchCommand {
    /// Stream.
    pub stream: StreamId,
    /// Kernel.
    pub kernel: KernelId,
    /// How many threads.
    pub shape: LaunchShape,
    /// Parameters, packed as the module's description says.
    pub params: Arc<[u8]>,
}

/// Addresses of device memory that the application places itself ([`Command::MallocAt`]); the server's own choice never
/// falls in here.
pub const PLACED_ADDRESSES: std::ops::Range<u64> = 0x2200_0000_0000..0x2400_0000_0000;
/// They are multiples of this, and so are the sizes.
pub const PLACED_GRANULARITY: u64 = 2 << 20;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Command {
    /// Bytes of a module to come, appended to part `part` of module `module`. No reply.
    ModuleData {
        /// Module.
        module: ModuleId,
        /// Which part (device-linked programs consist of several fatbins).
        part: u32,
        /// Bytes.
        data: Payload,
    },
    /// Loads the module from its parts: each is PTX text, a fatbin or a cubin. Reply
    /// [`crate::reply::Reply::ModuleLoaded`].
    ModuleLoad {
        /// Module.
        module: ModuleId,
        /// Its device.
        device: DeviceIndex,
    },
    /// Puts `chunk.length` bytes of the encoded [`crate::reply::ModuleDescription`], from `offset` on, into the chunk.
    ModuleDescribe {
        /// Module.
        module: ModuleId,
        /// First byte.
        offset: u64,
        /// Where to.
        chunk: Chunk,
    },
    /// Unloads the module (which may not exist). No reply.
    ModuleUnload {
        /// Module.
        module: ModuleId,
    },
    /// Attributes of a kernel once built for the device. Reply [`crate::reply::Reply::KernelAttributes`].
    KernelAttributes {
        /// Kernel.
        kernel: KernelId,
    },
    /// Allocates. Reply [`crate::reply::Reply::Address`].
    Malloc {
        /// Bytes.
        size_bytes: u64,
        /// Where.
        device: DeviceIndex,
    },
    /// Frees an allocation after everything queued before. Reply: CUresult (1 if `addr` starts no allocation).
    Free {
        /// Its address.
        addr: u64,
    },
    /// Frees in stream order. No reply.
    FreeAsync {
        /// Its address.
        addr: u64,
        /// Stream.
        stream: StreamId,
    },
    /// Makes pinned memory known; it is a memfd that the server opens as `/proc/APP/fd/FD` and maps at `addr`.
    /// The same facts stand in the ring's table of pinned memory. Reply: CUresult.
    RegisterHost {
        /// Address in the application, and to be in the server.
        addr: u64,
        /// Bytes, whole pages.
        size_bytes: u64,
        /// Descriptor number in the application.
        fd: i32,
    },
    /// Forgets pinned memory, after everything queued before. Reply: CUresult.
    UnregisterHost {
        /// Its address.
        addr: u64,
    },
    /// Host to device. Reply (if a slot is given) when the data is on the device.
    CopyIn {
        /// Stream.
        stream: StreamId,
        /// Where to; `data` holds the rows without gaps.
        dst: Rows,
        /// Bytes.
        data: Payload,
    },
    /// Device to host through a chunk. Reply when the rows are in the chunk, without gaps.
    CopyOut {
        /// Stream.
        stream: StreamId,
        /// Where from.
        src: Rows,
        /// Where to; `length` is `src.width * src.rows`.
        chunk: Chunk,
    },
    /// Between addresses that the server knows: device memory or pinned memory, either side. Reply if a slot is given.
    Copy {
        /// Stream.
        stream: StreamId,
        /// Where to.
        dst: Rows,
        /// Address of the first row to copy.
        src: u64,
        /// From row to row at the source.
        src_pitch: u64,
    },
    /// Fills rows; `dst.width` is in bytes. Reply if a slot is given.
    Fill {
        /// Stream.
        stream: StreamId,
        /// Where to.
        dst: Rows,
        /// With what.
        value: FillValue,
    },
    /// Launches a kernel. No reply, unless a slot is given (`CUDA_LAUNCH_BLOCKING`): then when it is done.
    Launch(LaunchCommand),
    /// Makes a stream. No reply.
    StreamCreate {
        /// Stream.
        stream: StreamId,
        /// Its device.
        device: DeviceIndex,
        /// Flags.
        flags: StreamFlags,
    },
    /// Forgets a stream once all that is queued in it is done. No reply.
    StreamDestroy {
        /// Stream.
        stream: StreamId,
    },
    /// Makes an event. No reply.
    EventCreate {
        /// Event.
        event: EventId,
        /// Its device.
        device: DeviceIndex,
        /// False: `CU_EVENT_DISABLE_TIMING`.
        timing: bool,
    },
    /// Records an event. No reply.
    EventRecord {
        /// Event.
        event: EventId,
        /// Stream.
        stream: StreamId,
    },
    /// Forgets an event (what waits for it goes on waiting for what it meant). No reply.
    EventDestroy {
        /// Event.
        event: EventId,
    },
    /// What comes later in the stream waits for the event's latest record at this moment. No reply.
    StreamWaitEvent {
        /// Stream.
        stream: StreamId,
        /// Event.
        event: EventId,
    },
    /// Is the stream idle? Reply: 0 or 600.
    StreamQuery {
        /// Stream.
        stream: StreamId,
    },
    /// Is the event's latest record done? Reply: 0 or 600.
    EventQuery {
        /// Event.
        event: EventId,
    },
    /// Reply once the stream is idle.
    StreamSynchronize {
        /// Stream.
        stream: StreamId,
    },
    /// Reply once the event's latest record is done.
    EventSynchronize {
        /// Event.
        event: EventId,
    },
    /// Reply once all streams of a device are idle.
    Synchronize {
        /// The device.
        device: DeviceIndex,
    },
    /// Time between two recorded events. Reply [`crate::reply::Reply::Milliseconds`], or 600 or 400.
    EventElapsed {
        /// First.
        start: EventId,
        /// Second.
        end: EventId,
    },
    /// In stream order: the application is to run its function `id`
    /// ([`crate::server_side::ServerSide::push_callback`]); the stream goes on when [`Command::HostFunctionDone`]
    /// comes. No reply.
    HostFunction {
        /// Stream.
        stream: StreamId,
        /// The application's number.
        id: u64,
    },
    /// A host function has returned. No reply.
    HostFunctionDone {
        /// The application's number.
        id: u64,
    },
    /// Free and total memory. Reply [`crate::reply::Reply::Memory`].
    MemoryInfo {
        /// The device.
        device: DeviceIndex,
    },
    /// Everything is dropped after all work is done: allocations, modules, streams, events (`cuDevicePrimaryCtxReset`).
    /// Ids are not used again. Clears the fault word. Reply.
    Reset {
        /// The device.
        device: DeviceIndex,
    },
    /// The application leaves in an orderly way; the server may exit when the socket closes. Reply when all is idle.
    Exit,
    /// Allocates at an address in [`PLACED_ADDRESSES`] that the application has chosen; both are multiples
    /// of [`PLACED_GRANULARITY`]. Reply: CUresult (1 if something is there). Freed like others.
    MallocAt {
        /// Where.
        addr: u64,
        /// Bytes.
        size_bytes: u64,
        /// On which device.
        device: DeviceIndex,
    },
    /// Makes a tensor map (`CUtensorMap`). Reply [`crate::reply::Reply::TensorMap`].
    EncodeTensorMap(Box<TensorMap>),
    /// [`Self::EventSynchronize`] of `end`, with what [`Self::EventElapsed`] says then. Reply
    /// [`crate::reply::Reply::Milliseconds`], or [`crate::reply::Reply::Nothing`] if there is no time to tell.
    EventSynchronizeElapsed {
        /// First.
        start: EventId,
        /// The event to wait for.
        end: EventId,
    },
    /// Makes an array. Reply: CUresult (801 if the device has none).
    ArrayCreate {
        /// The application's number of it, never used before.
        array: ArrayId,
        /// Where.
        device: DeviceIndex,
        /// What it is.
        shape: ArrayShape,
    },
    /// Frees an array after everything queued before. No reply.
    ArrayDestroy {
        /// Its number.
        array: ArrayId,
    },
    /// Copies a box of elements; one of its places or both are in arrays. Reply if a slot is given.
    CopyBox {
        /// Stream.
        stream: StreamId,
        /// What is copied.
        copy: Box<BoxCopy>,
    },
    /// Makes a texture or surface object. Reply [`crate::reply::Reply::ImageObject`].
    ImageCreate {
        /// Where.
        device: DeviceIndex,
        /// What it is.
        object: Box<ImageObject>,
    },
    /// Frees a texture or surface object after everything queued before. No reply.
    ImageDestroy {
        /// Which.
        image: ImageHandle,
    },
    /// Says where a variable of a module lies that is to be loaded, in managed memory. No reply.
    ModulePlace {
        /// Module.
        module: ModuleId,
        /// The variable.
        name: String,
        /// Where.
        addr: u64,
    },
    /// As [`Self::ModuleLoad`]; but if variables are to lie in managed memory and it has not been said where, the reply
    /// is [`crate::reply::Reply::ManagedVariables`], and the module can be loaded once that has been said.
    ModuleLoadPlaced {
        /// Module.
        module: ModuleId,
        /// Its device.
        device: DeviceIndex,
    },
    /// Asks about a kernel's clusters. Reply [`crate::reply::Reply::Count`], or the driver's CUresult (801 if the
    /// device has no clusters).
    QueryClusters {
        /// The kernel.
        kernel: KernelId,
        /// The question.
        query: ClusterQuery,
    },
    /// Launches a part of a graph, all of its steps, which the server may know already. No reply.
    GraphPart {
        /// Stream.
        stream: StreamId,
        /// The graph.
        graph: GraphId,
        /// Which part of it, from 0.
        part: u32,
        /// Its steps, in order, as [`crate::graph_part::encode`] makes them.
        steps: Arc<[u8]>,
    },
    /// Nothing of the graph will be launched any more. No reply.
    GraphForget {
        /// The graph.
        graph: GraphId,
    },
    /// Only in a part of a graph ([`crate::graph_part`]): the step behind this begins once these steps of the part have
    /// ended, and not the one before it.
    StepAfter {
        /// Their places in the part.
        steps: Vec<u32>,
    },
    /// Hands over descriptor `fd` of the application, a userfaultfd: from now on the server sees to faults of managed
    /// memory. The reply, without content, comes as soon as the server has it.
    ManagedFaults {
        /// The descriptor.
        fd: i32,
    },
}

impl Command {
    /// The device that it names.
    #[must_use]
    pub fn device(&self) -> Option<DeviceIndex> {
        match self {
            Self::ModuleLoad { device, .. }
            | Self::ModuleLoadPlaced { device, .. }
            | Self::Malloc { device, .. }
            | Self::MallocAt { device, .. }
            | Self::StreamCreate { device, .. }
            | Self::EventCreate { device, .. }
            | Self::Synchronize { device }
            | Self::ArrayCreate { device, .. }
            | Self::ImageCreate { device, .. }
            | Self::MemoryInfo { device }
            | Self::Reset { device } => Some(*device),
            _ => None,
        }
    }
}

/// A command with the slot for its answer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Envelope {
    /// Where the answer goes; `None` if none is wanted.
    pub reply: Option<SlotId>,
    /// The command.
    pub command: Command,
}

impl Envelope {
    /// As bytes for the ring, but for launches.
    ///
    /// # Errors
    /// [`RingError::TooLarge`].
    pub fn encode(&self) -> Result<Vec<u8>, RingError> {
        let bytes = encode(self, "command")?;
        let limit = layout::MAX_RECORD_BYTES - 8;
        if bytes.len() > limit {
            let (size_bytes, limit_bytes) = (bytes.len() as u64, limit as u64);
            return Err(RingError::TooLarge {
                what: "command",
                size_bytes,
                limit_bytes,
            });
        }
        Ok(bytes)
    }

    /// Inverse of [`Self::encode`]; any bytes may be given.
    ///
    /// # Errors
    /// [`RingError::Decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RingError> {
        decode::<Self, { layout::MAX_RECORD_BYTES }>(bytes, "command")
    }
}

/// Encodes with the crate's configuration.
pub(crate) fn encode<T: Encode>(value: &T, what: &'static str) -> Result<Vec<u8>, RingError> {
    bincode::encode_to_vec(value, bincode::config::standard()).map_err(|error| RingError::Decode {
        what,
        reason: error.to_string(),
    })
}

/// Decodes all of `bytes`, allocating at most `LIMIT` bytes.
pub(crate) fn decode<T: Decode<()>, const LIMIT: usize>(bytes: &[u8], what: &'static str) -> Result<T, RingError> {
    let (value, used) = decode_first::<T, LIMIT>(bytes, what)?;
    if used != bytes.len() {
        return Err(RingError::Decode {
            what,
            reason: format!("{} bytes too many", bytes.len() - used),
        });
    }
    Ok(value)
}

/// Decodes what `bytes` begin with, allocating at most `LIMIT` bytes. Returns how many bytes it was.
pub(crate) fn decode_first<T: Decode<()>, const LIMIT: usize>(
    bytes: &[u8],
    what: &'static str,
) -> Result<(T, usize), RingError> {
    let config = bincode::config::standard().with_limit::<LIMIT>();
    bincode::decode_from_slice(bytes, config).map_err(|error| RingError::Decode {
        what,
        reason: error.to_string(),
    })
}

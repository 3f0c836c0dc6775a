//! The interface of a device, as the server sees it.
//!
//! Memory lies at addresses that the server chooses ([`DEVICE_BASE`] and up), the same on every device. Copies and
//! fills are synchronous and never wait for running kernels. Order between commands is the server's business, except
//! that launches given to one [`Queue`] run in the order given.
//!
//! Pausing: after [`Device::request_pause`] every launch, running or queued or given later, stops at its next probe;
//! [`RunningLaunch::wait`] then hands out what is left of it. [`Device::end_pause`] lets later launches run again; what
//! was stopped is started anew by the server as a continuation, on this device or another. Some devices also stop of
//! their own accord ([`Device::cuts_launches`]).

use std::any::Any;
use std::sync::Arc;

use hetckpt_abi::array::{ArrayShape, BoxCopy};
use hetckpt_abi::cluster_query::ClusterQuery;
use hetckpt_abi::image_object::{ImageHandle, ImageObject};
use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_abi::opencl_program::OpenClProgram;
use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_abi::tensor_map::{TENSOR_MAP_BYTES, TensorMap};
use hetckpt_abi::thread_state::ThreadStateLayout;

use crate::error::DeviceError;

/// First device address.
pub const DEVICE_BASE: u64 = 0x2000_0000_0000;
/// Mapping granularity: every address and size given to [`Device::map`] is a multiple of it (2 MiB).
pub const GRANULARITY: u64 = 2 << 20;

/// What [`Queue::read`] reads and [`Queue::write`] writes at most, bytes.
pub const MAX_QUEUED_BYTES: u64 = 64 << 10;

/// What a device is and can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// How the user names it: `cpu`, `cuda:0`, `opencl:0:0`.
    pub id: String,
    /// `cpu`, `cuda` or `opencl`.
    pub kind: &'static str,
    /// The device's own name.
    pub name: String,
    /// Vendor.
    pub vendor: String,
    /// Driver version, or the compiler's for the CPU.
    pub driver: String,
    /// All memory in bytes.
    pub total_bytes: u64,
    /// Free memory in bytes.
    pub free_bytes: u64,
    /// Limits a program can hit: threads a block.
    pub max_threads_per_block: u32,
    /// Shared memory a block may have, with opt-in.
    pub max_shared_bytes: u32,
    /// Number of multiprocessors (CPU: worker threads).
    pub num_multiprocessors: u32,
    /// CUDA device attributes by number (`CUdevice_attribute`) for a CUDA device; empty elsewhere.
    pub cuda_attributes: Vec<(u32, i32)>,
    /// UUID (CUDA) or zeros.
    pub uuid: [u8; 16],
}

impl DeviceDescription {
    /// Compute capability of a CUDA device: major, minor; `None` for other devices.
    #[must_use]
    pub fn compute_capability(&self) -> Option<[u32; 2]> {
        const MAJOR: u32 = 75;
        const MINOR: u32 = 76;

        let get = |wanted| {
            let attribute = self.cuda_attributes.iter().find(|(number, _)| *number == wanted);
            attribute.and_then(|&(_, value)| u32::try_from(value).ok())
        };
        Some([get(MAJOR)?, get(MINOR).unwrap_or(0)])
    }
}

/// Generated code for one program.
#[derive(Clone, Debug)]
pub enum Code {
    /// PTX text with one entry `name`, its hidden last parameter the control block's address.
    Ptx(String),
    /// hetIR text of the program's kernel (globals bound), and the resume points with the block each starts at; the CPU
    /// device compiles it.
    HetIr {
        /// The kernel's text form.
        text: String,
        /// Resume points and basic blocks to start at.
        entries: Vec<(u32, u32)>,
    },
    /// OpenCL C text with what its kernel takes.
    OpenClC(OpenClProgram),
}

/// What has to have room on a multiprocessor at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    /// Threads a block.
    pub threads: u32,
    /// Blocks.
    pub blocks: u32,
}

/// A program ready to be loaded.
#[derive(Clone, Debug)]
pub struct LoadRequest {
    /// Kernel name.
    pub name: String,
    /// What to load.
    pub code: Code,
    /// Resume points at which blocks may start; `[0]` for an ordinary launch.
    pub entries: Vec<u32>,
    /// Where registers are saved.
    pub layout: ThreadStateLayout,
    /// Size of the kernel's own parameter buffer, bytes (without the hidden parameter).
    pub param_bytes: u32,
    /// Offset and size of each parameter.
    pub params: Vec<(u32, u32)>,
    /// Static shared memory, bytes.
    pub static_shared_bytes: u32,
    /// Local frame of a thread, bytes (hetIR's; not what the device's compiler spills).
    pub local_bytes: u32,
}

/// What a loaded kernel needs and allows (for `cuFuncGetAttribute` and occupancy).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelAttributes {
    /// Threads a block may have.
    pub max_threads_per_block: u32,
    /// Registers a thread.
    pub num_registers: u32,
    /// Static shared memory.
    pub static_shared_bytes: u32,
    /// Local memory a thread, spills included.
    pub local_bytes: u32,
}

/// A program loaded on a device.
pub trait LoadedKernel: Send + Sync {
    /// Attributes.
    fn attributes(&self) -> KernelAttributes;

    /// True if a launch of this shape, started as a whole, is over so soon that a pause can as well wait for it
    /// ([`Queue::launch_to_end`]).
    fn ends_soon(&self, _shape: &LaunchShape) -> bool {
        false
    }

    /// For down-casting by the device that made it.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// A kernel of which there is machine code only: it cannot be stopped, only waited for.
#[derive(Clone)]
pub struct OpaqueKernel {
    /// Mangled name.
    pub name: String,
    /// Offset and size of each parameter.
    pub params: Vec<(u32, u32)>,
    /// For which compute capability (times ten plus minor) the PTX was that it was made from: programs choose by that
    /// how to launch it.
    pub ptx_version: u32,
    /// The kernel; launched like any other, but a pause does not reach it.
    pub kernel: Arc<dyn LoadedKernel>,
}

/// A module of machine code.
#[derive(Clone, Default)]
pub struct OpaqueModule {
    /// Kernels.
    pub kernels: Vec<OpaqueKernel>,
    /// Variables: name, address (the driver's choice), size.
    pub globals: Vec<(String, u64, u64)>,
    /// What keeps it loaded, kernels or none: its variables are there as long as this is.
    pub loaded: Option<Arc<dyn Any + Send + Sync>>,
}

/// Which blocks a launch runs.
#[derive(Clone, Debug)]
pub enum Blocks {
    /// The whole grid, from the start.
    All,
    /// What a pause left: needs a program with the entries of its resume points (and `rp0` for what has not started).
    Rest(Arc<PausedGrid>),
}

/// One launch.
#[derive(Clone)]
pub struct Launch {
    /// The loaded program.
    pub kernel: Arc<dyn LoadedKernel>,
    /// How many threads, as the program sees it.
    pub shape: LaunchShape,
    /// Parameter buffer, laid out as the kernel's parameters are.
    pub params: Arc<[u8]>,
    /// Which blocks.
    pub blocks: Blocks,
}

/// How a launch ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// All its blocks finished.
    Finished,
    /// It was paused with this left over (never empty).
    Paused(PausedGrid),
    /// A graph of launches was paused: this is left of one after another, of at least one of them something.
    PausedSteps(Vec<PausedGrid>),
    /// It failed.
    Failed(DeviceError),
}

/// A launch that was given to a queue.
pub trait RunningLaunch: Send + Sync {
    /// True once `wait` would return at once.
    fn is_done(&self) -> bool;
    /// Waits for the end and, after a pause, for the capture of what is left. Callable once; later calls return
    /// `Finished`.
    fn wait(&self) -> Outcome;
    /// Waits until the launch is no longer on the device, without capturing anything.
    fn wait_stopped(&self);
}

/// An event that a queue has been given behind launches.
pub trait RecordedEvent: Send + Sync {
    /// True once all that was given before it has ended, or stopped.
    fn is_done(&self) -> bool;

    /// Waits for that.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if the device has failed.
    fn wait(&self) -> Result<(), DeviceError>;

    /// Milliseconds on the device from `start` to this; `None` if they were not recorded with time on the same device.
    fn milliseconds_since(&self, start: &dyn RecordedEvent) -> Option<f32>;

    /// For down-casting by the device that made it.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// A read of device memory that a queue has been given behind launches.
pub trait PendingRead: Send + Sync {
    /// How much is read.
    fn size_bytes(&self) -> u64;

    /// True once it is done.
    fn is_done(&self) -> bool;

    /// Waits for that, and shows what was read.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if the device has failed.
    fn wait(&self, take: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError>;
}

/// What a queue does beside launches. Each range is device memory, or host memory given to [`Device::register_host`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Copies; the ranges do not overlap.
    Copy {
        /// To.
        dst: u64,
        /// From.
        src: u64,
        /// How much.
        size_bytes: u64,
    },
    /// Fills, as [`Device::fill`].
    Fill {
        /// First element.
        dst: u64,
        /// From one row to the next, bytes.
        pitch_bytes: u64,
        /// Each element.
        value: Fill,
        /// Elements of a row.
        width: u64,
        /// Rows.
        rows: u64,
    },
}

/// Something that a queue takes.
pub enum GraphStep {
    /// A launch of all blocks of a grid, at least one.
    Launch(Launch),
    /// A copy or a fill.
    Transfer(Transfer),
}

/// A step of a graph.
pub struct GraphNode {
    /// What it does.
    pub step: GraphStep,
    /// Nodes that have ended when it begins, by their places in the graph, which are before its own.
    pub after: Vec<usize>,
}

impl GraphNode {
    /// True if it only follows the one before, at `place` in the graph.
    #[must_use]
    pub fn is_next(&self, place: usize) -> bool {
        match self.after[..] {
            [] => place == 0,
            [before] => before + 1 == place,
            _ => false,
        }
    }
}

/// What a pause is to do to a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPause {
    /// It stops all launches, which all steps are. None is of machine code.
    Stops {
        /// So often the graph is to be on the device at once, at most.
        at_a_time: usize,
    },
    /// It waits for it. All launches are of machine code, or of kernels that [`LoadedKernel::ends_soon`].
    Waits,
}

/// Steps that the device has made one thing of: queues are given it at once.
pub trait DeviceGraph: Send + Sync {
    /// For down-casting by the device that made it.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// Launches in order.
pub trait Queue: Send + Sync {
    /// Starts `launch` behind all launches given before; returns at once.
    ///
    /// # Errors
    /// [`DeviceError::Launch`] if the device cannot run it; nothing was started then.
    fn launch(&self, launch: Launch) -> Result<Arc<dyn RunningLaunch>, DeviceError>;

    /// As [`Queue::launch`], for a launch of all blocks that [`LoadedKernel::ends_soon`]. A pause waits for it; the
    /// kernel does not ask whether there is one, and is faster for it.
    ///
    /// # Errors
    /// As [`Queue::launch`].
    fn launch_to_end(&self, launch: Launch) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        self.launch(launch)
    }

    /// Records an event behind all that was given before, where [`Device::works_through_queues`].
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn record(&self, _has_time: bool) -> Result<Arc<dyn RecordedEvent>, DeviceError> {
        Err(no_followers("record"))
    }

    /// Reads `size_bytes` at `addr`, at most [`MAX_QUEUED_BYTES`], behind all that was given before, where
    /// [`Device::works_through_queues`]. Pauses do not reach it: what it reads behind a launch that stops is of no use.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn read(&self, _addr: u64, _size_bytes: u64) -> Result<Arc<dyn PendingRead>, DeviceError> {
        Err(no_followers("read"))
    }

    /// Writes `bytes`, at most [`MAX_QUEUED_BYTES`], to `dst` behind all that was given before, where
    /// [`Device::works_through_queues`]. Pauses do not stop it.
    ///
    /// # Errors
    /// [`DeviceError`]; nothing was started then.
    fn write(&self, _dst: u64, _bytes: &[u8]) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        Err(no_followers("write"))
    }

    /// Copies or fills behind all that was given before, where [`Device::works_through_queues`]. Pauses do not stop it.
    ///
    /// # Errors
    /// [`DeviceError`]; nothing was started then.
    fn transfer(&self, _transfer: &Transfer) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        Err(no_followers("transfer"))
    }

    /// Does the steps of `graph` in their order behind all that was given before. A pause does to it what
    /// [`Device::make_graph`] was told, and may leave [`Outcome::PausedSteps`]. Where
    /// `is_watched`, that it is done is seen at once, which costs the device some microseconds before what comes next.
    ///
    /// # Errors
    /// [`DeviceError`]; nothing was started then.
    fn launch_graph(
        &self,
        _graph: &Arc<dyn DeviceGraph>,
        _is_watched: bool,
    ) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        Err(no_followers("launch of a graph"))
    }

    /// Looks whether [`Queue::launch`] would refuse `launch` for its sizes, and starts nothing.
    ///
    /// # Errors
    /// [`DeviceError::Launch`].
    fn check(&self, launch: &Launch) -> Result<(), DeviceError>;
}

fn no_followers(call: &'static str) -> DeviceError {
    DeviceError::Driver {
        call,
        reason: "queues of this device take launches only".to_owned(),
    }
}

fn no_arrays() -> DeviceError {
    const NOT_SUPPORTED: u32 = 801;
    DeviceError::Refused {
        what: "an array, or a texture or surface object".to_owned(),
        reason: "this device has none".to_owned(),
        cuda_result: NOT_SUPPORTED,
    }
}

/// What to fill memory with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Bytes.
    U8(u8),
    /// 16-bit words.
    U16(u16),
    /// 32-bit words.
    U32(u32),
}

impl Fill {
    /// Size of an element, bytes.
    #[must_use]
    pub fn element_bytes(self) -> u64 {
        match self {
            Self::U8(_) => 1,
            Self::U16(_) => 2,
            Self::U32(_) => 4,
        }
    }
}

/// Device memory as it was at one moment, whatever is written to it afterwards.
pub trait MemoryView: Send + Sync {
    /// Copies what was at `src` then to the host; several threads may read at once.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn read(&self, src: u64, dst: &mut [u8]) -> Result<(), DeviceError>;
}

/// A view that is to be made; what of that takes long is done. What it keeps for it goes when this is dropped.
pub trait PlannedView: Send {
    /// Memory as it is now, while no kernel runs: `ranges` (address, bytes) of what is mapped. None if the device has
    /// no room for it.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn make(self: Box<Self>, ranges: &[(u64, u64)]) -> Result<Option<Box<dyn MemoryView>>, DeviceError>;
}

/// A device.
pub trait Device: Send + Sync {
    /// Describes the device as it is now.
    fn describe(&self) -> DeviceDescription;

    /// Maps zeroed memory at `addr`.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Map`].
    fn map(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError>;

    /// Unmaps what [`Device::map`] mapped, the whole range at once.
    ///
    /// # Errors
    /// [`DeviceError::Map`].
    fn unmap(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError>;

    /// True if kernels reach memory given to [`Device::register_host`]; otherwise only copies do.
    fn reaches_host_memory(&self) -> bool {
        true
    }

    /// Makes host memory that is mapped in this process at `addr` (page-aligned) usable by kernels at that address.
    ///
    /// # Errors
    /// [`DeviceError::Map`].
    fn register_host(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError>;

    /// True if managed memory belongs into this device's own memory while kernels run: what they would reach in the
    /// host's is far from them.
    fn has_far_host_memory(&self) -> bool {
        false
    }

    /// Maps zeroed memory at `addr`, a multiple of 32 MiB that is not the server's choice.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Map`], also if the driver does not give memory at this address.
    fn map_managed(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        self.map(addr, size_bytes)
    }

    /// Undoes [`Device::map_managed`].
    ///
    /// # Errors
    /// [`DeviceError::Map`].
    fn unmap_managed(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        self.unmap(addr, size_bytes)
    }

    /// Makes copies from and to host memory that is mapped in this process at `addr` (page-aligned) faster, if it can.
    /// The memory stays mapped for as long as the device is open.
    ///
    /// # Errors
    /// [`DeviceError::Map`]; copies work all the same.
    fn pin_for_copies(&self, _addr: u64, _size_bytes: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Undoes [`Device::register_host`].
    ///
    /// # Errors
    /// [`DeviceError::Map`].
    fn unregister_host(&self, addr: u64) -> Result<(), DeviceError>;

    /// Host to device.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn write(&self, dst: u64, src: &[u8]) -> Result<(), DeviceError>;

    /// Host to device: what `produce` puts into `size_bytes` of memory that the device can copy from, or that is its
    /// own. It is there after [`Device::end_writes`], and nobody uses what is at `dst` until then. If `produce` says
    /// false, what is there afterwards is of no use. `spare` is for devices that have no such memory. Several threads
    /// may write at once.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn begin_write(
        &self,
        dst: u64,
        size_bytes: usize,
        spare: &mut Vec<u8>,
        produce: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<(), DeviceError> {
        spare.resize(size_bytes, 0);
        match produce(spare) {
            true => self.write(dst, spare),
            false => Ok(()),
        }
    }

    /// Waits for what [`Device::begin_write`] has begun.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn end_writes(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Device to host.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn read(&self, src: u64, dst: &mut [u8]) -> Result<(), DeviceError>;

    /// Begins to make a view of memory, some `size_bytes` of it; kernels may run still. None if the device cannot keep
    /// that, or has no room for it.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn plan_view(&self, _size_bytes: u64) -> Result<Option<Box<dyn PlannedView>>, DeviceError> {
        Ok(None)
    }

    /// Device to device; ranges may not overlap.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn copy(&self, dst: u64, src: u64, size_bytes: u64) -> Result<(), DeviceError>;

    /// Fills `rows` rows of `width` elements, rows `pitch_bytes` apart.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn fill(&self, dst: u64, pitch_bytes: u64, value: Fill, width: u64, rows: u64) -> Result<(), DeviceError>;

    /// Makes mapped memory zero.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn zero(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        // Small enough for devices that fill while kernels run only by copies.
        const PIECE_BYTES: u64 = 1 << 20;
        let mut at = 0;
        while at < size_bytes {
            let piece = PIECE_BYTES.min(size_bytes - at);
            self.fill(addr + at, piece, Fill::U8(0), piece, 1)?;
            at += piece;
        }
        Ok(())
    }

    /// Builds and loads a program.
    ///
    /// # Errors
    /// [`DeviceError::Build`].
    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedKernel>, DeviceError>;

    /// True if the registers that code takes limit how large blocks are and how many fit a multiprocessor. What probes
    /// need can make it too many then.
    fn has_registers(&self) -> bool {
        false
    }

    /// True if the registers of `kernel` leave `room`.
    fn leaves_room(&self, _kernel: &dyn LoadedKernel, _room: Room) -> bool {
        true
    }

    /// As [`Device::load`], with so few registers that they leave `room`; what does not fit into them lies in local
    /// memory.
    ///
    /// # Errors
    /// [`DeviceError::Build`], also if there is no such code.
    fn load_leaving_room(&self, request: &LoadRequest, _room: Room) -> Result<Arc<dyn LoadedKernel>, DeviceError> {
        self.load(request)
    }

    /// The compute capability (times ten plus minor) for which [`Device::load_opaque`] takes images; `None` if it takes
    /// none.
    fn takes_images_for(&self) -> Option<u32> {
        None
    }

    /// Loads an image (a fatbin, a cubin or PTX) as it came, and finds those of the `variables` that it has. The
    /// default has no use for any.
    ///
    /// # Errors
    /// [`DeviceError::Build`].
    fn load_opaque(&self, image: &[u8], _variables: &[String]) -> Result<OpaqueModule, DeviceError> {
        Err(DeviceError::Build {
            kernel: format!("machine code of {} bytes", image.len()),
            device: self.describe().id,
            log: "this device runs only what has PTX".to_owned(),
        })
    }

    /// Has the driver link images into one, which [`Device::load_opaque`] takes. The default has no linker.
    ///
    /// # Errors
    /// [`DeviceError::Build`].
    fn link(&self, images: &[&[u8]]) -> Result<Vec<u8>, DeviceError> {
        Err(DeviceError::Build {
            kernel: format!("{} images", images.len()),
            device: self.describe().id,
            log: "this device has no linker".to_owned(),
        })
    }

    /// Says that kernels loaded as they came may print: from now on [`Device::flush_output`] is worth its while.
    fn expect_output(&self) {}

    /// Has the driver write to this process's stdout what such kernels have printed, those of all queues that have
    /// ended. False if there can be nothing.
    fn flush_output(&self) -> bool {
        false
    }

    /// Makes a tensor map as kernels of this device's own code take it.
    ///
    /// # Errors
    /// [`DeviceError::Fault`] with what the driver says; the default has no such kernels.
    fn encode_tensor_map(&self, _map: &TensorMap) -> Result<[u8; TENSOR_MAP_BYTES], DeviceError> {
        const NOT_SUPPORTED: u32 = 801;
        Err(DeviceError::Fault {
            kernel: "a tensor map".to_owned(),
            reason: "no kernel of this device takes any".to_owned(),
            cuda_result: NOT_SUPPORTED,
        })
    }

    /// True if its kernels may have their blocks in clusters, so that [`Device::query_clusters`] can tell of them.
    fn has_clusters(&self) -> bool {
        false
    }

    /// Answers a question about clusters of `kernel`.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] with what the driver says; the default has no clusters.
    fn query_clusters(&self, _kernel: &dyn LoadedKernel, _query: &ClusterQuery) -> Result<u32, DeviceError> {
        const NOT_SUPPORTED: u32 = 801;
        Err(DeviceError::Refused {
            what: "a question about clusters".to_owned(),
            reason: "this device has none".to_owned(),
            cuda_result: NOT_SUPPORTED,
        })
    }

    /// True if it has arrays, and texture and surface objects, which kernels of its own code read them through. Arrays
    /// have numbers, which are the caller's choice, as memory has addresses.
    fn has_arrays(&self) -> bool {
        false
    }

    /// Makes an array, whose content is anything.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] with what the driver says; the default has none.
    fn create_array(&self, _array: u64, _shape: &ArrayShape) -> Result<(), DeviceError> {
        Err(no_arrays())
    }

    /// Frees an array. Texture and surface objects made of it are of no use any more.
    ///
    /// # Errors
    /// [`DeviceError::Driver`], also if there is none of this number.
    fn destroy_array(&self, _array: u64) -> Result<(), DeviceError> {
        Err(no_arrays())
    }

    /// Reads all of a level of an array, rows and slices without gaps.
    ///
    /// # Errors
    /// [`DeviceError::Driver`], also if `dst` has not its length.
    fn read_array(&self, _array: u64, _level: u32, _dst: &mut [u8]) -> Result<(), DeviceError> {
        Err(no_arrays())
    }

    /// The inverse.
    ///
    /// # Errors
    /// [`DeviceError::Driver`], also if `src` has not its length.
    fn write_array(&self, _array: u64, _level: u32, _src: &[u8]) -> Result<(), DeviceError> {
        Err(no_arrays())
    }

    /// Copies a box of elements; one of its places or both are in arrays. May wait until kernels leave a
    /// multiprocessor.
    ///
    /// # Errors
    /// [`DeviceError::Refused`].
    fn copy_box(&self, _copy: &BoxCopy) -> Result<(), DeviceError> {
        Err(no_arrays())
    }

    /// Makes a texture or surface object; returns the value by which kernels know it.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] with what the driver says; the default has none.
    fn create_image(&self, _object: &ImageObject) -> Result<u64, DeviceError> {
        Err(no_arrays())
    }

    /// Frees a texture or surface object; its value may be given out again.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn destroy_image(&self, _image: ImageHandle) -> Result<(), DeviceError> {
        Err(no_arrays())
    }

    /// A new queue; `priority` as CUDA's (0 least, negative more urgent). Dropping it waits for nothing.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn create_queue(&self, priority: i32) -> Result<Box<dyn Queue>, DeviceError>;

    /// True if the device works through its queues by itself, with a processor of its own: they take records and reads,
    /// and to look whether something is done costs kernels no time.
    fn works_through_queues(&self) -> bool {
        false
    }

    /// True if it makes graphs.
    fn has_graphs(&self) -> bool {
        false
    }

    /// Makes one thing of `nodes`, for [`Queue::launch_graph`]. Its kernels must have been launched before. A graph
    /// that a pause stops does its nodes one after another, whatever they say.
    ///
    /// # Errors
    /// [`DeviceError`], also if the nodes are not what `in_pause` says.
    fn make_graph(&self, _nodes: &[GraphNode], _in_pause: InPause) -> Result<Arc<dyn DeviceGraph>, DeviceError> {
        Err(DeviceError::NotBuilt("this device has no graphs".to_owned()))
    }

    /// True if [`Device::load`] works while kernels run, without waiting for them. Where it does not, a pause requested
    /// meanwhile would wait as well.
    fn loads_while_running(&self) -> bool {
        true
    }

    /// True if launches stop after a while though nobody has asked: nothing that the host says reaches a running
    /// kernel. All that were given by then come back as after [`Device::request_pause`], and so do later ones. To go
    /// on, a pause is requested and ended.
    fn cuts_launches(&self) -> bool {
        false
    }

    /// Tells all launches, present and future, to stop at their next probe. Returns as soon as they are told.
    ///
    /// # Errors
    /// [`DeviceError`] if the device cannot be told (then it runs on as before).
    fn request_pause(&self) -> Result<(), DeviceError>;

    /// Lets future launches run again.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn end_pause(&self) -> Result<(), DeviceError>;
}

//! NVIDIA devices, through the driver API loaded at run time (cudarc). Nothing of CUDA is needed to build this, and on
//! a machine without a driver everything here answers [`DeviceError::NotPresent`].

mod apart;
mod arena;
mod arrays;
mod buffers;
mod clusters;
mod driver;
mod events;
mod executable;
mod flight;
mod graph;
mod graph_copy;
mod handles;
mod image_calls;
mod launch;
mod launcher;
mod library;
mod link;
mod memory;
mod module;
mod opaque;
mod pausing;
mod progress;
mod queue;
mod read;
mod recorded;
mod register_budget;
mod shadow;
mod shared_base;
mod stoppable_graph;
mod transfer;
mod trap_word;
mod unstoppable;
mod write;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hetckpt_abi::array::{ArrayShape, BoxCopy};
use hetckpt_abi::cluster_query::ClusterQuery;
use hetckpt_abi::image_object::{ImageHandle, ImageObject};
use hetckpt_abi::tensor_map::{TENSOR_MAP_BYTES, TensorMap};
use parking_lot::Mutex;

use crate::device::{
    Code, Device, DeviceDescription, DeviceGraph, Fill, GraphNode, InPause, LoadRequest, LoadedKernel, OpaqueModule,
    PlannedView, Queue, Room,
};
use crate::error::DeviceError;
use apart::Apart;
use arena::{Arenas, Scratch};
use arrays::Arrays;
use buffers::Buffers;
use driver::DriverError;
use events::Pool;
use handles::{Context, Stream};
use launcher::Launcher;
use memory::Memory;
use module::{Builder, LoadedCuda};
use pausing::Pausing;
use progress::Progress;
use queue::CudaQueue;
use register_budget::Multiprocessor;
use shadow::PlannedShadow;
use transfer::{PIECE_BYTES, Transfers};
use trap_word::TrapWord;

pub use library::DRIVER_VARIABLE;

/// Numbers of device attributes (`CUdevice_attribute`) that are looked at here.
mod attribute {
    pub const MAX_THREADS_PER_BLOCK: u32 = 1;
    pub const MAX_THREADS_PER_MULTIPROCESSOR: u32 = 39;
    pub const MAX_REGISTERS_PER_MULTIPROCESSOR: u32 = 82;
    pub const NUM_MULTIPROCESSORS: u32 = 16;
    pub const MAX_SHARED_OPT_IN: u32 = 97;
    /// Numbers beyond those known today are asked for too.
    pub const LAST: u32 = 200;
}

/// Scratch memory set aside for pauses, so that none must be found then.
const SCRATCH_BYTES: u64 = 128 << 20;
/// Fills up to this size are done by copies while kernels run.
const MAX_COPIED_FILL: u64 = 1 << 20;

/// Settings of a CUDA device.
#[derive(Clone, Debug, Default)]
pub struct CudaOptions {
    /// Where the driver keeps the kernels it has built, if `CUDA_CACHE_PATH` does not say; `None`: where it does by
    /// default.
    pub cache_dir: Option<PathBuf>,
}

/// Limits of a device.
#[derive(Clone, Copy, Debug)]
struct Limits {
    max_threads_per_block: u32,
    max_shared_bytes: u32,
    num_multiprocessors: u32,
    multiprocessor: Multiprocessor,
}

/// What the device's queues and launches share.
struct CudaInner {
    limits: Limits,
    transfers: Transfers,
    memory: Memory,
    arrays: Arrays,
    returned_controls: Mutex<Vec<u64>>,
    pausing: Mutex<Pausing>,
    trapped: Arc<TrapWord>,
    events: Arc<Pool>,
    buffers: Buffers,
    memory_stream: Arc<Stream>,
    /// Always empty: what kernels have printed, in whatever stream, is written when somebody waits for any. There once
    /// output is expected.
    output_stream: OnceLock<Stream>,
    launcher: Option<Launcher>,
    apart: Apart,
    /// Dropped last: all above belongs to it.
    context: Arc<Context>,
}

/// One NVIDIA GPU.
pub struct CudaDevice {
    inner: Arc<CudaInner>,
    builder: Builder,
    description: DeviceDescription,
    sm: u32,
    shared_base: u32,
    next_queue: AtomicU64,
    priorities: (i32, i32),
}

fn start_driver() -> Result<(), DeviceError> {
    library::load()?;
    let absent = |e: DriverError| DeviceError::NotPresent {
        device: "cuda".into(),
        reason: e.reason(),
    };
    driver::cuInit(0).map_err(absent)
}

/// Describes all NVIDIA devices of this machine, without using any.
///
/// # Errors
/// [`DeviceError::NotPresent`] if there is no driver or no device.
pub fn list() -> Result<Vec<DeviceDescription>, DeviceError> {
    start_driver()?;
    let count = driver::cuDeviceGetCount()?;
    (0..count).map(|ordinal| Ok(describe(ordinal)?)).collect()
}

fn describe(ordinal: i32) -> driver::Result<DeviceDescription> {
    let device = driver::cuDeviceGet(ordinal)?;
    let attributes: Vec<(u32, i32)> = (1..=attribute::LAST)
        .filter_map(|number| Some((number, driver::cuDeviceGetAttribute(number, device).ok()?)))
        .collect();
    let get = |number| {
        attributes
            .iter()
            .find(|(n, _)| *n == number)
            .map_or(0, |(_, v)| v.cast_unsigned())
    };
    let version = driver::cuDriverGetVersion()?;
    let total_bytes = driver::cuDeviceTotalMem(device)?;
    Ok(DeviceDescription {
        id: format!("cuda:{ordinal}"),
        kind: "cuda",
        name: driver::cuDeviceGetName(device)?,
        vendor: "NVIDIA".into(),
        driver: format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        total_bytes,
        free_bytes: total_bytes,
        max_threads_per_block: get(attribute::MAX_THREADS_PER_BLOCK),
        max_shared_bytes: get(attribute::MAX_SHARED_OPT_IN),
        num_multiprocessors: get(attribute::NUM_MULTIPROCESSORS),
        uuid: driver::cuDeviceGetUuid(device)?,
        cuda_attributes: attributes,
    })
}

impl CudaDevice {
    /// Opens device `ordinal`. Sets variables of the environment that the driver reads, so no other thread may read it
    /// meanwhile.
    ///
    /// # Errors
    /// [`DeviceError::NotPresent`] if there is no such device, [`DeviceError::Driver`] if it cannot be used.
    pub fn open(ordinal: u32, options: &CudaOptions) -> Result<Self, DeviceError> {
        library::prepare_environment(options.cache_dir.as_deref());
        start_driver()?;
        let count = driver::cuDeviceGetCount()?;
        let number = i32::try_from(ordinal)
            .ok()
            .filter(|n| *n < count)
            .ok_or_else(|| DeviceError::NotPresent {
                device: format!("cuda:{ordinal}"),
                reason: format!("the driver has {count} device(s)"),
            })?;
        let description = describe(number)?;
        let get = |number| {
            description
                .cuda_attributes
                .iter()
                .find(|(n, _)| *n == number)
                .map_or(0, |(_, v)| *v)
        };
        let sm = description
            .compute_capability()
            .map_or(0, |[major, minor]| major * 10 + minor);
        let context = Arc::new(Context::retain(driver::cuDeviceGet(number)?)?);
        let priorities = driver::cuCtxGetStreamPriorityRange()?;
        let urgent = priorities.1;
        let transfers = Transfers::new(urgent);
        let memory_stream = Arc::new(Stream::new(urgent)?);
        let scratch_bytes = SCRATCH_BYTES.min(description.total_bytes / 64);
        let trapped = Arc::new(TrapWord::new()?);
        let pausing = Pausing {
            is_paused: false,
            arenas: Arenas::new(&context, urgent, Arc::clone(&trapped))?,
            scratch: Scratch::new(&transfers, &context, &memory_stream, scratch_bytes)?,
            flights: std::collections::BTreeMap::new(),
        };
        let num_threads = |number| get(number).max(0).cast_unsigned();
        let builder = Builder {
            device: description.id.clone(),
            num_threads: u64::from(description.num_multiprocessors)
                * u64::from(num_threads(attribute::MAX_THREADS_PER_MULTIPROCESSOR)),
        };
        let shared_base = shared_base::measure(&builder, &context, &transfers, &memory_stream, sm)?;
        let inner = CudaInner {
            limits: Limits {
                max_threads_per_block: description.max_threads_per_block,
                max_shared_bytes: description.max_shared_bytes,
                num_multiprocessors: description.num_multiprocessors,
                multiprocessor: Multiprocessor {
                    registers: get(attribute::MAX_REGISTERS_PER_MULTIPROCESSOR).cast_unsigned(),
                    threads: get(attribute::MAX_THREADS_PER_MULTIPROCESSOR).cast_unsigned(),
                },
            },
            transfers,
            memory: Memory::default(),
            arrays: Arrays::default(),
            returned_controls: Mutex::default(),
            pausing: Mutex::new(pausing),
            trapped,
            events: Arc::default(),
            buffers: Buffers::default(),
            memory_stream,
            output_stream: OnceLock::new(),
            launcher: Launcher::start_if_useful({
                let context = Arc::clone(&context);
                // If it fails, the driver refuses what it is given.
                move || {
                    let _ = context.enter();
                }
            })?,
            apart: Apart::new(urgent),
            context,
        };
        let inner = Arc::new(inner);
        Ok(Self {
            inner,
            builder,
            description,
            sm,
            shared_base,
            next_queue: AtomicU64::new(0),
            priorities,
        })
    }

    /// Compute capability, `10 * major + minor`: what PTX for it may be generated for.
    #[must_use]
    pub fn sm(&self) -> u32 {
        self.sm
    }

    /// Makes memory zero that has just been mapped.
    fn zero_mapped(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        let inner = &self.inner;
        // A fill would wait for a free multiprocessor.
        let zeroed = if inner.is_running() {
            inner.transfers.zero_by_copies(&inner.context, addr, size_bytes)
        } else {
            let size = size_bytes as usize;
            inner
                .transfers
                .on_stream(&inner.context, |s| driver::cuMemsetD8Async(addr, 0, size, s.0))
        };
        Ok(zeroed?)
    }

    /// Address of the first byte of dynamic shared memory: what generated PTX adds to shared addresses.
    #[must_use]
    pub fn shared_base(&self) -> u32 {
        self.shared_base
    }
}

impl Device for CudaDevice {
    fn describe(&self) -> DeviceDescription {
        let now = self.inner.context.enter().and_then(|()| driver::cuMemGetInfo());
        let free_bytes = now.map_or(self.description.free_bytes, |(free, _)| free);
        DeviceDescription {
            free_bytes,
            ..self.description.clone()
        }
    }

    fn map(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        let inner = &self.inner;
        inner.memory.map(&inner.context, addr, size_bytes)?;
        self.zero_mapped(addr, size_bytes)
            .inspect_err(|_| drop(self.unmap(addr, size_bytes)))
    }

    fn unmap(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        self.inner.memory.unmap(&self.inner.context, addr, size_bytes)
    }

    fn has_far_host_memory(&self) -> bool {
        true
    }

    fn map_managed(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        let inner = &self.inner;
        inner.memory.map_apart(&inner.context, addr, size_bytes)?;
        self.zero_mapped(addr, size_bytes)
            .inspect_err(|_| drop(self.unmap_managed(addr, size_bytes)))
    }

    fn unmap_managed(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        self.inner.memory.unmap_apart(&self.inner.context, addr, size_bytes)
    }

    fn register_host(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        self.inner.memory.register_host(&self.inner.context, addr, size_bytes)
    }

    fn pin_for_copies(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        self.inner.memory.register_host(&self.inner.context, addr, size_bytes)
    }

    fn unregister_host(&self, addr: u64) -> Result<(), DeviceError> {
        self.inner.memory.unregister_host(&self.inner.context, addr)
    }

    fn write(&self, dst: u64, src: &[u8]) -> Result<(), DeviceError> {
        let inner = &self.inner;
        if inner.memory.is_registered(src.as_ptr(), src.len()) {
            return Ok(inner.transfers.write_pinned(&inner.context, dst, src)?);
        }
        Ok(inner.transfers.write(&inner.context, dst, src)?)
    }

    fn begin_write(
        &self,
        dst: u64,
        size_bytes: usize,
        spare: &mut Vec<u8>,
        produce: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<(), DeviceError> {
        let inner = &self.inner;
        if size_bytes <= PIECE_BYTES {
            return Ok(inner.transfers.begin_write(&inner.context, dst, size_bytes, produce)?);
        }
        spare.resize(size_bytes, 0);
        match produce(spare) {
            true => self.write(dst, spare),
            false => Ok(()),
        }
    }

    fn end_writes(&self) -> Result<(), DeviceError> {
        Ok(self.inner.transfers.end_writes(&self.inner.context)?)
    }

    fn plan_view(&self, size_bytes: u64) -> Result<Option<Box<dyn PlannedView>>, DeviceError> {
        let planned = PlannedShadow::new(&self.inner, size_bytes)?;
        Ok(planned.map(|planned| Box::new(planned) as Box<dyn PlannedView>))
    }

    fn read(&self, src: u64, dst: &mut [u8]) -> Result<(), DeviceError> {
        let inner = &self.inner;
        if inner.memory.is_registered(dst.as_ptr(), dst.len()) {
            return Ok(inner.transfers.read_pinned(&inner.context, src, dst)?);
        }
        Ok(inner.transfers.read(&inner.context, src, dst)?)
    }

    fn copy(&self, dst: u64, src: u64, size_bytes: u64) -> Result<(), DeviceError> {
        let size = size_bytes as usize;
        let copy = |stream: &Stream| driver::cuMemcpyDtoDAsync(dst, src, size, stream.0);
        Ok(self.inner.transfers.on_stream(&self.inner.context, copy)?)
    }

    fn fill(&self, dst: u64, pitch_bytes: u64, value: Fill, width: u64, rows: u64) -> Result<(), DeviceError> {
        let row_bytes = width * value.element_bytes();
        let is_dense = rows <= 1 || pitch_bytes == row_bytes;
        if is_dense && row_bytes * rows <= MAX_COPIED_FILL && self.inner.is_running() {
            let bytes: Vec<u8> = match value {
                Fill::U8(v) => [v].repeat((width * rows) as usize),
                Fill::U16(v) => v.to_le_bytes().repeat((width * rows) as usize),
                Fill::U32(v) => v.to_le_bytes().repeat((width * rows) as usize),
            };
            return self.write(dst, &bytes);
        }
        let fill = |stream: &Stream| stream.fill(dst, pitch_bytes, value, width, rows);
        Ok(self.inner.transfers.on_stream(&self.inner.context, fill)?)
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedKernel>, DeviceError> {
        let Code::Ptx(ptx) = &request.code else {
            return Err(DeviceError::Build {
                kernel: request.name.clone(),
                device: self.description.id.clone(),
                log: "a CUDA device takes PTX".into(),
            });
        };
        self.inner.context.enter()?;
        Ok(Arc::new(LoadedCuda(Arc::new(self.builder.load(request, ptx, None)?))))
    }

    fn has_registers(&self) -> bool {
        true
    }

    fn leaves_room(&self, kernel: &dyn LoadedKernel, room: Room) -> bool {
        let attributes = kernel.attributes();
        let most = self.inner.limits.multiprocessor.most(room);
        room.threads <= attributes.max_threads_per_block && attributes.num_registers <= most
    }

    fn load_leaving_room(&self, request: &LoadRequest, room: Room) -> Result<Arc<dyn LoadedKernel>, DeviceError> {
        let fault = |log: String| DeviceError::Build {
            kernel: request.name.clone(),
            device: self.description.id.clone(),
            log,
        };
        let Code::Ptx(ptx) = &request.code else {
            return Err(fault("a CUDA device takes PTX".into()));
        };
        self.inner.context.enter()?;
        let most = self.inner.limits.multiprocessor.most(room);
        let kernel = LoadedCuda(Arc::new(self.builder.load(request, ptx, Some(most))?));
        if !self.leaves_room(&kernel, room) {
            let taken = kernel.attributes().num_registers;
            return Err(fault(format!("it takes {taken} registers where there are {most}")));
        }
        Ok(Arc::new(kernel))
    }

    fn takes_images_for(&self) -> Option<u32> {
        Some(self.sm)
    }

    fn load_opaque(&self, image: &[u8], variables: &[String]) -> Result<OpaqueModule, DeviceError> {
        self.inner.context.enter()?;
        opaque::load(image, variables, &self.description.id)
    }

    fn link(&self, images: &[&[u8]]) -> Result<Vec<u8>, DeviceError> {
        self.inner.context.enter()?;
        link::link(images).map_err(|(error, log)| DeviceError::Build {
            kernel: format!("{} images", images.len()),
            device: self.description.id.clone(),
            log: format!("{error}: {log}"),
        })
    }

    fn expect_output(&self) {
        let inner = &self.inner;
        if inner.output_stream.get().is_some() {
            return;
        }
        match inner.context.enter().and_then(|()| Stream::new(self.priorities.0)) {
            Ok(stream) => drop(inner.output_stream.set(stream)),
            Err(error) => tracing::warn!(%error, "what kernels of machine code print will be lost"),
        }
    }

    fn flush_output(&self) -> bool {
        let inner = &self.inner;
        let Some(stream) = inner.output_stream.get() else {
            return false;
        };
        // A device that has failed prints no more, and says so elsewhere.
        let _ = inner
            .context
            .enter()
            .and_then(|()| driver::cuStreamSynchronize(stream.0));
        true
    }

    fn encode_tensor_map(&self, map: &TensorMap) -> Result<[u8; TENSOR_MAP_BYTES], DeviceError> {
        self.inner.context.enter()?;
        driver::cuTensorMapEncodeTiled(map).map_err(|error| DeviceError::Fault {
            kernel: "a tensor map".to_owned(),
            reason: error.to_string(),
            cuda_result: error.code,
        })
    }

    fn has_clusters(&self) -> bool {
        self.sm >= clusters::FIRST_SM
    }

    fn query_clusters(&self, kernel: &dyn LoadedKernel, query: &ClusterQuery) -> Result<u32, DeviceError> {
        self.inner.context.enter()?;
        clusters::query(kernel, query).map_err(|error| error.refusing("a question about clusters"))
    }

    fn has_arrays(&self) -> bool {
        true
    }

    fn create_array(&self, array: u64, shape: &ArrayShape) -> Result<(), DeviceError> {
        let inner = &self.inner;
        let made = inner.arrays.create(&inner.context, array, shape);
        made.map_err(|error| error.refusing("an array"))
    }

    fn destroy_array(&self, array: u64) -> Result<(), DeviceError> {
        Ok(self.inner.arrays.destroy(&self.inner.context, array)?)
    }

    fn read_array(&self, array: u64, level: u32, dst: &mut [u8]) -> Result<(), DeviceError> {
        let inner = &self.inner;
        let place = (array, level);
        Ok(inner.arrays.read(&inner.context, &inner.transfers, place, dst)?)
    }

    fn write_array(&self, array: u64, level: u32, src: &[u8]) -> Result<(), DeviceError> {
        let inner = &self.inner;
        let place = (array, level);
        Ok(inner.arrays.write(&inner.context, &inner.transfers, place, src)?)
    }

    fn copy_box(&self, copy: &BoxCopy) -> Result<(), DeviceError> {
        let inner = &self.inner;
        let copied = inner.arrays.copy(&inner.context, &inner.transfers, copy);
        copied.map_err(|error| error.refusing("a copy of an array"))
    }

    fn create_image(&self, object: &ImageObject) -> Result<u64, DeviceError> {
        let made = self.inner.arrays.create_image(&self.inner.context, object);
        made.map_err(|error| error.refusing(&format!("a {}", object.kind())))
    }

    fn destroy_image(&self, image: ImageHandle) -> Result<(), DeviceError> {
        Ok(arrays::destroy_image(&self.inner.context, image)?)
    }

    fn create_queue(&self, priority: i32) -> Result<Box<dyn Queue>, DeviceError> {
        self.inner.context.enter()?;
        let (least, greatest) = self.priorities;
        // The most urgent one is kept for pausing and copies where there is a choice.
        let priority = priority.clamp((greatest + 1).min(least), least);
        let id = self.next_queue.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(CudaQueue {
            device: self.inner.clone(),
            id,
            progress: Arc::new(Progress::new(Stream::new(priority)?, self.inner.events.clone())),
        }))
    }

    fn works_through_queues(&self) -> bool {
        true
    }

    fn has_graphs(&self) -> bool {
        true
    }

    fn make_graph(&self, nodes: &[GraphNode], in_pause: InPause) -> Result<Arc<dyn DeviceGraph>, DeviceError> {
        graph::make(&self.inner, nodes, in_pause)
    }

    fn loads_while_running(&self) -> bool {
        false
    }

    fn request_pause(&self) -> Result<(), DeviceError> {
        let inner = &self.inner;
        inner.context.enter()?;
        Ok(inner.pausing.lock().request(&inner.transfers, &inner.context)?)
    }

    fn end_pause(&self) -> Result<(), DeviceError> {
        let inner = &self.inner;
        inner.context.enter()?;
        Ok(inner.pausing.lock().end(&inner.transfers, &inner.context)?)
    }
}

impl CudaInner {
    /// True if kernels may be running.
    fn is_running(&self) -> bool {
        let mut pausing = self.pausing.lock();
        pausing.forget_done();
        !pausing.flights.is_empty()
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        let inner = &self.inner;
        let flights = std::mem::take(&mut inner.pausing.lock().flights);
        drop(flights);
        inner.arrays.clear(&inner.context);
        inner.memory.clear(&inner.context);
    }
}

//! OpenCL devices, through the library loaded at run time (`libOpenCL.so.1`, or what `OPENCL_DYLIB_PATH` names).
//! Nothing of OpenCL is needed to build this, and on a machine without it everything here answers
//! [`DeviceError::NotPresent`].
//!
//! Kernels are OpenCL C programs ([`hetckpt_abi::opencl_program`]), device memory is one buffer, or several where the
//! device allows none so large ([`arena`]). How far the device and the host share memory is tried when the device is
//! opened ([`self_test`]).
//!
//! A kernel that accesses what it must not may take the process with it where the device is the host's processor: the
//! driver's threads have no handler for that.

mod failure;
mod handles;
mod platforms;
mod capabilities;
mod host_memory;
mod buffers;
mod not_shared;
mod arena;
mod self_test;
mod program_form;
mod module;
mod pool;
mod plan;
mod arguments;
mod slices;
mod pausing;
mod host_clock;
mod grids;
mod queue;
mod flight;
mod capture;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hetckpt_cache::folder::CacheFolder;
use opencl3::device::{CL_DEVICE_HOST_UNIFIED_MEMORY, CL_DEVICE_MAX_MEM_ALLOC_SIZE};
use parking_lot::Mutex;

use crate::device::{Device, DeviceDescription, Fill, GRANULARITY, LoadRequest, LoadedKernel, Queue};
use crate::error::DeviceError;
use arena::Arena;
use flight::DroppedLaunch;
use grids::Programs;
use handles::{CommandQueue, Context, DeviceId};
use host_clock::HostClock;
use module::{Builder, LoadedOpenCl};
use not_shared::{Finding, NotShared};
use pausing::{PauseWord, Pausing};
use pool::WordsPool;
use program_form::ProgramForm;
use queue::OpenClQueue;
use self_test::SelfTest;

pub use capabilities::OpenClCapabilities;
pub use platforms::{FailedPlatform, Listing, list};
pub use program_form::{IlCompiler, IlError};

/// The largest arena: the range of addresses that the server gives out.
const MAX_ARENA_BYTES: u64 = 4 << 40;
/// Memory for what stops, of each queue: at least this, and a part of the device's.
const MIN_STOPPED_BYTES: u64 = 64 << 20;
const STOPPED_PART: u64 = 64;
/// How long running kernels are waited for when the device is dropped.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Settings of an OpenCL device.
#[derive(Clone, Debug, Default)]
pub struct OpenClOptions {
    /// Folder for built programs; `None` keeps none.
    pub cache_dir: Option<PathBuf>,
    /// Most memory for programs; `None`: what the device has for them. Of a device whose memory is not the host's, as
    /// much as one buffer may have is taken when it is opened, and more when programs come to need it.
    pub max_arena_bytes: Option<u64>,
    /// Most memory in one buffer, less than the device allows, for tests.
    pub max_buffer_bytes: Option<u64>,
    /// Whether running kernels see what the host writes, where it is not to be tried out, for tests.
    pub sees_host_writes: Option<bool>,
    /// Treats the device as one that shares no memory with the host, for tests.
    pub force_separate: bool,
    /// Makes SPIR-V, for a device that takes that and has no compiler of OpenCL C.
    pub il_compiler: Option<IlCompiler>,
    /// Gives SPIR-V to a device that takes OpenCL C as well, for tests.
    pub prefer_il: bool,
    /// Takes the device for one that mixes grids up ([`grids`]), for tests.
    pub mixes_grids: bool,
}

/// Limits of a device.
#[derive(Clone, Copy, Debug)]
struct Limits {
    max_shared_bytes: u32,
    num_multiprocessors: u32,
    /// The device runs blocks to their end, one after another on each core.
    is_cpu: bool,
    max_cooperative_blocks: u64,
    /// Memory of each queue for what stops.
    max_stopped_bytes: u64,
}

/// What the device's queues and launches share.
struct OpenClInner {
    limits: Limits,
    pausing: Pausing,
    clock: HostClock,
    words: WordsPool,
    /// Launches of one kernel with different grids must not be under way together ([`grids`]).
    mixes_grids: bool,
    /// Launches that were dropped while they ran.
    dropped: Mutex<Vec<DroppedLaunch>>,
    /// For lists and what has stopped.
    transfers: CommandQueue,
    arena: Arena,
    builder: Builder,
    /// Dropped last: all above belongs to it.
    context: Context,
}

/// One OpenCL device.
pub struct OpenClDevice {
    inner: Arc<OpenClInner>,
    next_queue: AtomicU64,
    /// True if running kernels see what the host writes, and so stop at their next probe when a pause is requested.
    /// Where it is false kernels stop after a while whether a pause is requested or not ([`Device::cuts_launches`]).
    pub sees_host_writes: bool,
}

impl OpenClDevice {
    /// Opens device `device` of platform `platform`, both counted from 0 in the library's order.
    ///
    /// # Errors
    /// [`DeviceError::NotPresent`] if there is no such device, [`DeviceError::Driver`] if it cannot be used.
    pub fn open(platform: u32, device: u32, options: &OpenClOptions) -> Result<Self, DeviceError> {
        let id = platforms::find(platform, device)?;
        let description = platforms::describe(platform, device, id);
        let capabilities = OpenClCapabilities::of(id);
        let limits = Limits {
            max_shared_bytes: description.max_shared_bytes,
            num_multiprocessors: description.num_multiprocessors,
            is_cpu: id.is_cpu(),
            max_cooperative_blocks: capabilities.max_cooperative_blocks,
            max_stopped_bytes: MIN_STOPPED_BYTES.max(description.total_bytes / STOPPED_PART),
        };
        let arena_bytes = arena_bytes(&description, options);
        let max_buffer = id
            .number(CL_DEVICE_MAX_MEM_ALLOC_SIZE)
            .min(options.max_buffer_bytes.unwrap_or(u64::MAX));
        let form = ProgramForm::of(&capabilities, options);
        let shared = if options.force_separate {
            Err(NotShared::Unwanted)
        } else {
            share(id, &limits, (arena_bytes, max_buffer), form)
        };
        let (context, arena) = match shared {
            Ok(both) => both,
            Err(error) => {
                let cause = std::error::Error::source(&error);
                tracing::debug!(device = description.id, %error, cause, "memory is not shared with the host");
                if id.is_cpu() && not_shared::loses_writes(&description.vendor) {
                    return Err(DeviceError::Unusable {
                        device: description.id.clone(),
                        reason: format!("its runtime is right only where it shares the host's memory, but {error}"),
                    });
                }
                let context = Context::new(id)?;
                let arena = Arena::separate(&context, arena_bytes, max_buffer)?;
                (context, arena)
            }
        };
        let mut word = PauseWord::new(&context, arena.is_shared())?;
        let sees_host_writes = match options.sees_host_writes {
            Some(sees) => sees,
            // Memory is shared only where that has been seen.
            None if arena.is_shared() => true,
            None => SelfTest::new(&context, &limits, form)?.sees_host_writes(&context, false, &word)?,
        };
        if !sees_host_writes {
            tracing::info!(
                device = description.id,
                "running kernels do not see what the host writes: launches are of bounded length"
            );
            word.count_looks()?;
        }
        let builder = Builder {
            capabilities,
            form,
            counts_looks: !sees_host_writes,
            cache: options.cache_dir.clone().map(CacheFolder::new),
            compiling: Mutex::default(),
            programs: Programs::default(),
            description,
        };
        let inner = OpenClInner {
            pausing: Pausing::new(word, &limits),
            clock: HostClock::new(&context, arena.is_shared())?,
            limits,
            words: WordsPool::default(),
            mixes_grids: options.mixes_grids || grids::are_mixed_up(id),
            dropped: Mutex::default(),
            transfers: context.queue()?,
            arena,
            builder,
            context,
        };
        Ok(Self {
            inner: Arc::new(inner),
            next_queue: AtomicU64::new(0),
            sees_host_writes,
        })
    }

    /// What the device has beyond OpenCL C 1.2's core.
    #[must_use]
    pub fn capabilities(&self) -> &OpenClCapabilities {
        &self.inner.builder.capabilities
    }

    /// True if device memory is the host's, at the same addresses.
    #[must_use]
    pub fn shares_memory(&self) -> bool {
        self.inner.arena.is_shared()
    }
}

fn arena_bytes(description: &DeviceDescription, options: &OpenClOptions) -> u64 {
    let bytes = description
        .free_bytes
        .min(options.max_arena_bytes.unwrap_or(MAX_ARENA_BYTES))
        .min(MAX_ARENA_BYTES);
    (bytes / GRANULARITY * GRANULARITY).max(GRANULARITY)
}

/// A context and an arena in the host's memory, if the device can be seen to share it.
fn share(
    id: DeviceId,
    limits: &Limits,
    (arena_bytes, max_buffer): (u64, u64),
    form: ProgramForm,
) -> Result<(Context, Arena), NotShared> {
    // Drivers of other devices copy the buffer back and forth, even what of it cannot be accessed.
    if id.number(CL_DEVICE_HOST_UNIFIED_MEMORY) == 0 {
        return Err(NotShared::OwnMemory);
    }
    let context = Context::new(id)?;
    let arena = Arena::shared(&context, arena_bytes, max_buffer)?;
    let tests = SelfTest::new(&context, limits, form)?;
    tests.shares_memory(&context, &arena)?;
    // The host's own processor sees them: how soon it did would tell how busy the machine is.
    if limits.is_cpu || tests.sees_host_writes(&context, true, &PauseWord::new(&context, true)?)? {
        Ok((context, arena))
    } else {
        Err(NotShared::Found(Finding::WritesUnseenMeanwhile))
    }
}

impl OpenClInner {
    /// Takes what a dropped launch has used.
    fn take_dropped(&self, launch: DroppedLaunch) {
        if !launch.end.is_over() {
            self.dropped.lock().push(launch);
        } else if let Some(words) = launch.words {
            self.words.give_back(words);
        }
    }

    /// Takes back what dropped launches have used that are over by now.
    fn take_back_ended(&self) {
        let mut dropped = self.dropped.lock();
        if dropped.is_empty() {
            return;
        }
        let over = dropped.extract_if(.., |launch| launch.end.is_over());
        for words in over.filter_map(|launch| launch.words) {
            self.words.give_back(words);
        }
    }
}

impl Device for OpenClDevice {
    /// All memory is the arena's: no program can have more.
    fn describe(&self) -> DeviceDescription {
        DeviceDescription {
            total_bytes: self.inner.arena.size_bytes(),
            free_bytes: self.inner.arena.free_bytes(),
            ..self.inner.builder.description.clone()
        }
    }

    fn map(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        self.inner.arena.map(&self.inner.context, addr, size_bytes)
    }

    fn unmap(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        self.inner.arena.unmap(addr, size_bytes)
    }

    /// Where memory is shared, kernels reach pinned memory as it is. Elsewhere only copies do, which go through the
    /// host: a kernel has nothing but the arena's buffer to reach memory by.
    fn reaches_host_memory(&self) -> bool {
        self.shares_memory()
    }

    fn register_host(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        self.inner.arena.register_host(addr, size_bytes);
        Ok(())
    }

    fn unregister_host(&self, addr: u64) -> Result<(), DeviceError> {
        self.inner.arena.unregister_host(addr)
    }

    fn write(&self, dst: u64, src: &[u8]) -> Result<(), DeviceError> {
        self.inner.arena.write(dst, src)
    }

    fn read(&self, src: u64, dst: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.arena.read(src, dst)
    }

    fn copy(&self, dst: u64, src: u64, size_bytes: u64) -> Result<(), DeviceError> {
        self.inner.arena.copy(dst, src, size_bytes)
    }

    fn fill(&self, dst: u64, pitch_bytes: u64, value: Fill, width: u64, rows: u64) -> Result<(), DeviceError> {
        self.inner.arena.fill(dst, pitch_bytes, value, width, rows)
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedKernel>, DeviceError> {
        let kernel = self
            .inner
            .builder
            .load(&self.inner.context, request, &self.inner.arena)?;
        Ok(Arc::new(LoadedOpenCl(Arc::new(kernel))))
    }

    /// OpenCL 1.2 has no priorities.
    fn create_queue(&self, _priority: i32) -> Result<Box<dyn Queue>, DeviceError> {
        self.inner.pausing.forget_done();
        Ok(Box::new(OpenClQueue {
            device: self.inner.clone(),
            id: self.next_queue.fetch_add(1, Ordering::Relaxed),
            commands: Arc::new(self.inner.context.queue()?),
            area: Mutex::new(None),
        }))
    }

    /// NVIDIA's driver does not; others are not trusted with it either.
    fn loads_while_running(&self) -> bool {
        self.inner.limits.is_cpu
    }

    fn cuts_launches(&self) -> bool {
        self.inner.pausing.cuts_launches()
    }

    fn request_pause(&self) -> Result<(), DeviceError> {
        Ok(self.inner.pausing.request()?)
    }

    fn end_pause(&self) -> Result<(), DeviceError> {
        Ok(self.inner.pausing.end()?)
    }
}

impl Drop for OpenClDevice {
    fn drop(&mut self) {
        if self.inner.pausing.stop_within(LAST_WAIT) {
            self.inner.take_back_ended();
        } else {
            // A kernel that does not stop keeps its memory for as long as the process lives.
            std::mem::forget(self.inner.clone());
        }
    }
}

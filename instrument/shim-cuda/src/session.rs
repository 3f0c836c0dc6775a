//! All that the library knows. One per process, made by `cuInit`.

use std::sync::{Arc, OnceLock};

use hetckpt_abi::image_object::ImageHandle;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;

use hetckpt_ring::command::{Command, DeviceIndex, StreamId};
use hetckpt_ring::pinned_table::PINNED_ADDRESSES;
use hetckpt_ring::reply::Reply;

use crate::advice::AdviceTable;
use crate::device::Device;
use crate::device_heap::place::DEFAULT_LIMIT;
use crate::device_output;
use crate::event::Event;
use crate::fork;
use crate::graph::capture::Captures;
use crate::graph::executable::Executable;
use crate::graph::node::Graphs;
use crate::handles::{Handle, Registry};
use crate::host_functions::HostFunctions;
use crate::library::{Kernel, Library};
use crate::link::Linking;
use crate::log;
use crate::managed_faults;
use crate::objects::{Array, Context, Image, MipmappedArray, Stream, StreamAttributes};
use crate::pinned_pool::{AREA_ALIGNMENT, Inheritance, PinnedPool};
use crate::pools::Pools;
use crate::result::{CuResult, Outcome};
use crate::server_process::SpawnError;
use crate::storage::Storage;
use crate::virtual_memory::{Physical, VirtualMemory};

static SESSION: OnceLock<Result<Session, CuResult>> = OnceLock::new();

/// All state of the library once it has been initialised.
#[derive(Debug)]
pub struct Session {
    /// The device the program sees.
    pub device: Device,
    pinned: Mutex<PinnedPool>,
    /// What the program has said of its managed memory.
    pub advice: Mutex<AdviceTable>,
    /// Contexts made by the program, and the primary one.
    pub contexts: Registry<Context>,
    /// The device's primary context.
    pub primary: Handle,
    /// How often the primary context is held.
    pub primary_count: Mutex<u32>,
    /// Streams.
    pub streams: Registry<Stream>,
    /// What the program has set of the streams' attributes.
    pub stream_attributes: Mutex<FxHashMap<StreamId, StreamAttributes>>,
    /// Events.
    pub events: Registry<Event>,
    /// Arrays, and levels of mipmapped ones.
    pub arrays: Registry<Array>,
    /// Mipmapped arrays.
    pub mipmapped: Registry<MipmappedArray>,
    /// Texture and surface objects by the device's values.
    pub images: Mutex<FxHashMap<ImageHandle, Image>>,
    /// Libraries and modules.
    pub libraries: Registry<Library>,
    /// Kernels.
    pub kernels: Registry<Kernel>,
    /// Graphs.
    pub graphs: Graphs,
    /// Graphs made ready to be launched.
    pub executables: Registry<Mutex<Executable>>,
    /// Held while a graph is given to a stream.
    pub graph_launch: Mutex<()>,
    /// Streams whose work becomes a graph.
    pub captures: Captures,
    /// What is being linked.
    pub linkings: Registry<Mutex<Linking>>,
    /// Memory pools.
    pub pools: Mutex<Pools>,
    /// Memory that the program has made for addresses of its own.
    pub physical_memory: Registry<Physical>,
    /// Addresses of its own.
    pub virtual_memory: Mutex<VirtualMemory>,
    /// Values that the runtime keeps with contexts.
    pub storage: Storage,
    /// Functions of the program waiting for their turn in a stream.
    pub host_functions: HostFunctions,
    /// `CUDA_LAUNCH_BLOCKING`: every launch is waited for.
    pub is_launch_blocking: bool,
    /// Limits as set, by number.
    pub limits: Mutex<[u64; 16]>,
}

/// The session, if the library has been initialised in this process.
pub fn get() -> Outcome<&'static Session> {
    if fork::is_forked_child() {
        return Err(CuResult::NOT_INITIALIZED);
    }
    match SESSION.get() {
        None => Err(CuResult::NOT_INITIALIZED),
        Some(Ok(session)) => Ok(session),
        Some(Err(result)) => Err(*result),
    }
}

/// Initialises the library: starts the server and asks it for the device.
pub fn initialise() -> Outcome {
    if fork::is_forked_child() {
        return Err(CuResult::NOT_INITIALIZED);
    }
    let start = || {
        if has_no_visible_device() {
            return Err(CuResult::NO_DEVICE);
        }
        Device::connect().map(Session::new).map_err(|error| {
            log::failure(&describe(&error));
            CuResult::NO_DEVICE
        })
    };
    let made = match SESSION.get() {
        Some(made) => made,
        None => fork::without_forks(|| SESSION.get_or_init(start)),
    };
    let session = made.as_ref().map_err(|result| *result)?;
    managed_faults::watch(&session.device);
    Ok(())
}

fn describe(error: &SpawnError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// `CUDA_VISIBLE_DEVICES` that names no device.
fn has_no_visible_device() -> bool {
    std::env::var("CUDA_VISIBLE_DEVICES").is_ok_and(|list| list.trim().is_empty() || list.trim_start().starts_with('-'))
}

impl Session {
    fn new(device: Device) -> Self {
        let contexts = Registry::new(1);
        let primary = contexts.insert(Arc::new(Context {
            flags: Mutex::new(0),
            is_primary: true,
        }));
        Self {
            device,
            pinned: Mutex::new(PinnedPool::new(PINNED_ADDRESSES, AREA_ALIGNMENT, Inheritance::Shared)),
            advice: Mutex::default(),
            contexts,
            primary,
            primary_count: Mutex::new(0),
            streams: Registry::new(2),
            stream_attributes: Mutex::default(),
            events: Registry::new(3),
            arrays: Registry::new(12),
            mipmapped: Registry::new(13),
            images: Mutex::default(),
            libraries: Registry::new(4),
            kernels: Registry::new(5),
            graphs: Graphs::default(),
            executables: Registry::new(8),
            graph_launch: Mutex::default(),
            captures: Captures::default(),
            linkings: Registry::new(11),
            pools: Mutex::default(),
            physical_memory: Registry::new(9),
            virtual_memory: Mutex::default(),
            storage: Storage::default(),
            host_functions: HostFunctions::default(),
            is_launch_blocking: std::env::var("CUDA_LAUNCH_BLOCKING").is_ok_and(|value| value == "1"),
            limits: Mutex::new(DEFAULT_LIMITS),
        }
    }

    /// Pinned memory.
    pub fn pinned(&self) -> MutexGuard<'_, PinnedPool> {
        self.pinned.lock()
    }

    /// The error that has broken the device for good, if so.
    pub fn check_fault(&self) -> Outcome {
        if self.device.fault() == CuResult::SUCCESS {
            return Ok(());
        }
        device_output::print(&self.device);
        Err(self.device.fault())
    }

    /// Sends a command and waits for its answer.
    pub fn call(&self, command: Command) -> Outcome<Reply> {
        let synchronises = matches!(
            command,
            Command::Synchronize { .. }
                | Command::StreamSynchronize { .. }
                | Command::EventSynchronize { .. }
                | Command::EventSynchronizeElapsed { .. }
        );
        let answer = self.device.call_raw(command)?;
        if synchronises {
            device_output::print(&self.device);
        }
        self.device.outcome(answer)
    }

    /// Resets the device: everything on it is gone, libraries are loaded again when needed.
    pub fn reset(&self) -> Outcome {
        device_output::print(&self.device);
        let result = self.call(Command::Reset {
            device: DeviceIndex::FIRST,
        });
        self.device.forget_all();
        let table = self.device.producer().pinned_table();
        for mut pool in [self.pinned(), self.device.managed()] {
            pool.abandon().into_iter().for_each(|area| {
                let _ = table.remove(area);
            });
        }
        self.advice.lock().clear();
        self.streams.retain(|_| false);
        self.stream_attributes.lock().clear();
        self.events.retain(|_| false);
        self.arrays.retain(|_| false);
        self.mipmapped.retain(|_| false);
        self.images.lock().clear();
        self.executables.retain(|_| false);
        self.graphs.clear();
        self.virtual_memory.lock().clear_mappings();
        self.pools.lock().clear();
        result.map(|_| ())
    }

    /// The handle of kernel `name` of a library, made at its first use.
    pub fn kernel(&self, library: &Arc<Library>, name: &str) -> Outcome<Handle> {
        if !library.loaded(&self.device)?.has_kernel(name) {
            return Err(CuResult::NOT_FOUND);
        }
        let mut kernels = library.kernels.lock();
        if let Some(&handle) = kernels.get(name) {
            return Ok(handle);
        }
        let handle = self
            .kernels
            .insert(Arc::new(Kernel::new(Arc::clone(library), name.to_owned())));
        kernels.insert(name.to_owned(), handle);
        Ok(handle)
    }
}

/// `cuCtxGetLimit`: stack size, printf buffer, malloc heap, device runtime depth and launches, L2 fetch granularity.
const DEFAULT_LIMITS: [u64; 16] = {
    let known = [1024, 8_650_752, DEFAULT_LIMIT, 2, 2048, 128];
    let mut all = [0; 16];
    let mut at = 0;
    while at < known.len() {
        all[at] = known[at];
        at += 1;
    }
    all
};

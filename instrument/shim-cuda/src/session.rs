//! The connection to the device server and all that the library knows. One per process, made by `cuInit`.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hetckpt_ring::command::{Command, Payload};
use hetckpt_ring::control_socket::{ControlSocket, is_connected};
use hetckpt_ring::error::RingError;
use hetckpt_ring::message::{Request, Response, VirtualDevice};
use hetckpt_ring::producer::{Answer, OwnedChunk, PendingReply, Producer};
use hetckpt_ring::reply::{ModuleDescription, Reply};
use hetckpt_ring::version::PROTOCOL_VERSION;

use crate::device_output::DeviceOutput;
use crate::fork;
use crate::handles::{Handle, Registry};
use crate::host_functions::HostFunctions;
use crate::library::{Kernel, Library, VARIABLE};
use crate::log;
use crate::memory_map::MemoryMap;
use crate::objects::{Context, Event, Stream};
use crate::pinned_pool::PinnedPool;
use crate::result::{CuResult, Outcome};
use crate::server_process::{self, SpawnError, move_out_of_the_way};
use crate::storage::Storage;

/// Attributes are numbered from 1 up to this.
pub const MAX_ATTRIBUTE: u32 = 147;

static SESSION: OnceLock<Result<Session, CuResult>> = OnceLock::new();

/// All state of the library once it has been initialised.
#[derive(Debug)]
pub struct Session {
    producer: Producer,
    _ring_fd: OwnedFd,
    /// The device the program sees.
    pub device: VirtualDevice,
    attributes: Vec<i32>,
    generation: AtomicU64,
    ids: AtomicU64,
    is_lost: AtomicBool,
    memory: Mutex<MemoryMap>,
    pinned: Mutex<PinnedPool>,
    /// Contexts made by the program, and the primary one.
    pub contexts: Registry<Context>,
    /// The device's primary context.
    pub primary: Handle,
    /// How often the primary context is held.
    pub primary_count: Mutex<u32>,
    /// Streams.
    pub streams: Registry<Stream>,
    /// Events.
    pub events: Registry<Event>,
    /// Libraries and modules.
    pub libraries: Registry<Library>,
    /// Kernels.
    pub kernels: Registry<Kernel>,
    /// Values that the runtime keeps with contexts.
    pub storage: Storage,
    /// Functions of the program waiting for their turn in a stream.
    pub host_functions: HostFunctions,
    /// What kernels print.
    pub output: DeviceOutput,
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
        Session::start().map_err(|error| {
            log::failure(&describe(&error));
            CuResult::NO_DEVICE
        })
    };
    let made = match SESSION.get() {
        Some(made) => made,
        None => fork::without_forks(|| SESSION.get_or_init(start)),
    };
    made.as_ref().map(|_| ()).map_err(|result| *result)
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
    fn start() -> Result<Self, SpawnError> {
        let pid = std::process::id();
        let path = server_process::spawn(pid)?;
        let (ring_fd, memory) = Producer::create()?;
        let ring_fd = move_out_of_the_way(ring_fd);
        let connection = ControlSocket::connect(&path)?.into_stream();
        let control = move_out_of_the_way(OwnedFd::from(connection));
        let mut socket = ControlSocket::new(control.into());
        let control_fd = socket.as_stream().as_raw_fd();
        let hello = Request::Hello {
            protocol: PROTOCOL_VERSION,
            pid,
            ring_fd: ring_fd.as_raw_fd(),
            control_fd,
        };
        let answer = socket.ask(&hello, &[ring_fd.as_fd()])?;
        let Response::Welcome { protocol, device } = answer else {
            return Err(RingError::ServerGone.into());
        };
        if protocol != PROTOCOL_VERSION {
            return Err(RingError::Version {
                ours: PROTOCOL_VERSION,
                theirs: protocol,
            }
            .into());
        }
        let producer = Producer::new(memory, Box::new(move || is_connected(socket.as_stream().as_fd())));
        producer.set_identity(pid, ring_fd.as_raw_fd().cast_unsigned(), control_fd.cast_unsigned());
        fork::watch(control_fd, ring_fd.as_raw_fd());
        Ok(Self::new(producer, ring_fd, device))
    }

    fn new(producer: Producer, ring_fd: OwnedFd, device: VirtualDevice) -> Self {
        let mut attributes = vec![0; MAX_ATTRIBUTE as usize + 1];
        for &(number, value) in &device.attributes {
            if let Some(place) = attributes.get_mut(number as usize) {
                *place = if NOT_OFFERED.contains(&number) { 0 } else { value };
            }
        }
        let contexts = Registry::new(1);
        let primary = contexts.insert(Arc::new(Context {
            flags: Mutex::new(0),
            is_primary: true,
        }));
        Self {
            producer,
            _ring_fd: ring_fd,
            device,
            attributes,
            generation: AtomicU64::new(1),
            ids: AtomicU64::new(16),
            is_lost: AtomicBool::new(false),
            memory: Mutex::default(),
            pinned: Mutex::default(),
            contexts,
            primary,
            primary_count: Mutex::new(0),
            streams: Registry::new(2),
            events: Registry::new(3),
            libraries: Registry::new(4),
            kernels: Registry::new(5),
            storage: Storage::default(),
            host_functions: HostFunctions::default(),
            output: DeviceOutput::default(),
            is_launch_blocking: std::env::var("CUDA_LAUNCH_BLOCKING").is_ok_and(|value| value == "1"),
            limits: Mutex::new(DEFAULT_LIMITS),
        }
    }

    /// A device attribute; 0 for those the device does not have.
    pub fn attribute(&self, number: u32) -> i32 {
        self.attributes.get(number as usize).copied().unwrap_or(0)
    }

    /// A device attribute that cannot be negative.
    pub fn attribute_u32(&self, number: u32) -> u32 {
        u32::try_from(self.attribute(number)).unwrap_or(0)
    }

    /// Counts device resets; objects of an older generation are gone.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// A number for a new module, stream or event.
    pub fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// What lies where.
    pub fn memory(&self) -> MutexGuard<'_, MemoryMap> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pinned memory.
    pub fn pinned(&self) -> MutexGuard<'_, PinnedPool> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ring's table of pinned memory and the like.
    pub fn producer(&self) -> &Producer {
        &self.producer
    }

    /// The error that has broken the device for good, if so.
    pub fn check_fault(&self) -> Outcome {
        let fault = CuResult(self.producer.fault());
        if fault == CuResult::SUCCESS {
            return Ok(());
        }
        self.output.print(self);
        Err(self.told(fault))
    }

    /// A failed assertion ends its kernel by a trap; the program is told which it was.
    fn told(&self, result: CuResult) -> CuResult {
        if result == CuResult::LAUNCH_FAILED && self.output.has_asserted() {
            return CuResult::ASSERT;
        }
        result
    }

    /// Sends a command that is not answered.
    pub fn send(&self, command: Command) -> Outcome {
        self.producer.send(command).map_err(|error| self.broken(&error))
    }

    /// Sends a command and waits for its answer.
    pub fn call(&self, command: Command) -> Outcome<Reply> {
        let synchronises = matches!(
            command,
            Command::Synchronize | Command::StreamSynchronize { .. } | Command::EventSynchronize { .. }
        );
        let answer = self.call_raw(command)?;
        if synchronises {
            self.output.print(self);
        }
        let result = self.told(CuResult(answer.result));
        result.into_outcome().map(|()| answer.reply)
    }

    /// Sends a command and waits for its answer, whatever its result.
    pub fn call_raw(&self, command: Command) -> Outcome<Answer> {
        self.producer.call(command).map_err(|error| self.broken(&error))
    }

    /// Sends a command whose answer is waited for later.
    pub fn begin(&self, command: Command) -> Outcome<PendingReply<'_>> {
        self.producer.begin(command).map_err(|error| self.broken(&error))
    }

    /// Waits for an answer.
    pub fn finish(&self, pending: PendingReply<'_>) -> Outcome<Reply> {
        let answer = pending.wait().map_err(|error| self.broken(&error))?;
        CuResult(answer.result).into_outcome().map(|()| answer.reply)
    }

    /// Wraps bytes for a command.
    pub fn payload(&self, bytes: &[u8]) -> Outcome<Payload> {
        self.producer.payload(bytes).map_err(|error| self.broken(&error))
    }

    /// Takes a staging chunk.
    pub fn take_chunk(&self) -> Outcome<OwnedChunk<'_>> {
        self.producer.take_chunk().map_err(|error| self.broken(&error))
    }

    /// From now on every call fails: the server is gone or talks nonsense.
    pub fn broken(&self, error: &RingError) -> CuResult {
        if !self.is_lost.swap(true, Ordering::Relaxed) {
            log::failure(&format!("the device is lost: {error}"));
        }
        self.producer.set_fault(CuResult::DEVICE_UNAVAILABLE.0);
        CuResult(self.producer.fault())
    }

    /// Resets the device: everything on it is gone, libraries are loaded again when needed.
    pub fn reset(&self) -> Outcome {
        self.output.print(self);
        let result = self.call(Command::Reset);
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.memory().forget_device();
        self.output.forget_all();
        self.streams.retain(|_| false);
        self.events.retain(|_| false);
        result.map(|_| ())
    }

    /// Notes where a module's variables lie.
    pub fn note_variables(&self, description: &ModuleDescription) {
        let mut memory = self.memory();
        for global in description.globals.iter().filter(|global| global.size_bytes > 0) {
            memory.insert(global.addr, global.size_bytes, VARIABLE);
        }
        drop(memory);
        self.output.note(self, description);
    }

    /// Forgets them.
    pub fn forget_variables(&self, description: &ModuleDescription) {
        let mut memory = self.memory();
        for global in description.globals.iter().filter(|global| global.size_bytes > 0) {
            memory.remove(global.addr);
        }
        drop(memory);
        self.output.forget(self, description);
    }
}

/// `cuCtxGetLimit`: stack size, printf buffer, malloc heap, device runtime depth and launches, L2 fetch granularity.
const DEFAULT_LIMITS: [u64; 16] = [1024, 8_650_752, 8_388_608, 2, 2048, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Attributes that stand for what this library does not offer, whatever the device can do: managed and pageable memory,
/// virtual memory management and shareable handles, host pointers of registered memory, clusters, sparse arrays,
/// multicast, RDMA.
const NOT_OFFERED: &[u32] = &[
    83, 88, 89, 91, 100, 101, 102, 103, 104, 110, 112, 116, 117, 119, 120, 124, 127, 128, 132,
];

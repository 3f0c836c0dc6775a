//! The device as this process sees it: the ring to its server, its attributes, and what lies in its memory.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use hetckpt_ring::command::{Command, DeviceIndex, Payload, Rows, StreamFlags, StreamId};
use hetckpt_ring::control_socket::{ControlSocket, is_connected};
use hetckpt_ring::error::RingError;
use hetckpt_ring::layout::CHUNK_BYTES;
use hetckpt_ring::message::{Request, Response, VirtualDevice};
use hetckpt_ring::pinned_table::MANAGED_ADDRESSES;
use hetckpt_ring::producer::{Answer, OwnedChunk, PendingReply, Producer};
use hetckpt_ring::reply::Reply;
use hetckpt_ring::version::PROTOCOL_VERSION;

use crate::device_heap::place::DeviceHeap;
use crate::device_output::buffers::OutputBuffers;
use crate::fork;
use crate::log;
use crate::memory_map::MemoryMap;
use crate::pinned_pool::{Inheritance, MANAGED_AREA_ALIGNMENT, PinnedPool};
use crate::result::{CuResult, Outcome};
use crate::server_process::{self, SpawnError, move_out_of_the_way};

/// Attributes are numbered from 1 up to this.
pub const MAX_ATTRIBUTE: u32 = 147;

/// The connection to the device server, and all that is known of the device.
#[derive(Debug)]
pub struct Device {
    producer: Producer,
    _ring_fd: OwnedFd,
    /// What the server says of it.
    pub description: VirtualDevice,
    attributes: Vec<i32>,
    generation: AtomicU64,
    ids: AtomicU64,
    is_lost: AtomicBool,
    memory: Mutex<MemoryMap>,
    /// Where what kernels print gathers.
    pub output: OutputBuffers,
    /// Where kernels take memory.
    pub heap: DeviceHeap,
    managed: Mutex<PinnedPool>,
}

impl Device {
    /// Starts the server and asks it for the device.
    pub fn connect() -> Result<Self, SpawnError> {
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
        let Response::Welcome { protocol, devices } = answer else {
            return Err(RingError::ServerGone.into());
        };
        let device = devices.into_iter().next().ok_or(RingError::ServerGone)?;
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

    fn new(producer: Producer, ring_fd: OwnedFd, description: VirtualDevice) -> Self {
        let mut attributes = vec![0; MAX_ATTRIBUTE as usize + 1];
        for &(number, value) in &description.attributes {
            if let Some(place) = attributes.get_mut(number as usize) {
                *place = if NOT_OFFERED.contains(&number) { 0 } else { value };
            }
        }
        Self {
            producer,
            _ring_fd: ring_fd,
            description,
            attributes,
            generation: AtomicU64::new(1),
            ids: AtomicU64::new(StreamId::FIRST_CREATED),
            is_lost: AtomicBool::new(false),
            memory: Mutex::default(),
            output: OutputBuffers::default(),
            heap: DeviceHeap::default(),
            managed: Mutex::new(PinnedPool::new(
                MANAGED_ADDRESSES,
                MANAGED_AREA_ALIGNMENT,
                Inheritance::None,
            )),
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

    /// Managed memory: host memory that kernels reach, allocated by the program or for variables of its modules.
    pub fn managed(&self) -> MutexGuard<'_, PinnedPool> {
        self.managed.lock()
    }

    /// What lies where.
    pub fn memory(&self) -> MutexGuard<'_, MemoryMap> {
        self.memory.lock()
    }

    /// The ring's table of pinned memory and the like.
    pub fn producer(&self) -> &Producer {
        &self.producer
    }

    /// The error that has broken the device for good, or success.
    pub fn fault(&self) -> CuResult {
        self.told(CuResult(self.producer.fault()))
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

    /// What an answer comes to.
    pub fn outcome(&self, answer: Answer) -> Outcome<Reply> {
        self.told(CuResult(answer.result)).into_outcome().map(|()| answer.reply)
    }

    /// Sends a command and waits for its answer, whatever its result.
    pub fn call_raw(&self, command: Command) -> Outcome<Answer> {
        self.producer.call(command).map_err(|error| self.broken(&error))
    }

    /// A stream of our own, in which what we read waits for nothing else.
    pub fn new_stream(&self) -> Outcome<StreamId> {
        let stream = StreamId(self.next_id());
        let flags = StreamFlags {
            non_blocking: true,
            priority: 0,
        };
        self.send(Command::StreamCreate {
            stream,
            device: DeviceIndex::FIRST,
            flags,
        })?;
        Ok(stream)
    }

    /// Bytes of device memory, no more than a chunk, read in a stream's order. After a fault the server still hands out
    /// what it can; the rest is zero.
    pub fn fetch(&self, stream: StreamId, addr: u64, length: u64) -> Option<Vec<u8>> {
        let length = usize::try_from(length).ok().filter(|&n| n <= CHUNK_BYTES)?;
        let chunk = self.take_chunk().ok()?;
        let mut bytes = vec![0; length];
        chunk.fill(&bytes);
        let command = Command::CopyOut {
            stream,
            src: Rows::range(addr, length as u64),
            chunk: chunk.first(length),
        };
        self.call_raw(command).ok()?;
        chunk.read(0, &mut bytes);
        Some(bytes)
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

    /// Everything on the device is gone.
    pub fn forget_all(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.memory().forget_device();
        self.output.forget_all();
    }
}

/// Attributes that stand for what this library does not offer, whatever the device can do: pageable memory, shareable
/// handles, host pointers of registered memory, clusters, sparse arrays, multicast, RDMA.
const NOT_OFFERED: &[u32] = &[
    88, 91, 100, 101, 103, 104, 110, 112, 116, 117, 119, 120, 124, 127, 128, 132,
];

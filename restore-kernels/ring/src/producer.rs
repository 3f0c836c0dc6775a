//! The application's end of the ring: sends commands, waits for answers, fills and empties staging chunks.
//!
//! Commands of all threads go through one mutex; a record is published by one store of the tail, so the server never
//! sees half of one, also if the application is frozen in the middle. Waiting threads look after the server at
//! intervals and give up when it is gone.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::checkpoint_words::CheckpointWords;
use crate::command::{Chunk, Command, Envelope, Payload, SlotId};
use crate::error::RingError;
use crate::futex::{self, Patience};
use crate::graph_part;
use crate::launch_record;
use crate::layout::{self, record_kind, slot_state};
use crate::pinned_table::PinnedTable;
use crate::printed::PrintedFifo;
use crate::reply::Reply;
use crate::shared_memory::SharedMemory;

/// A waiting thread looks after the server first after this time, then more and more seldom: a job that waits for a
/// long kernel costs nothing.
const FIRST_LOOK_AFTER_SERVER: Duration = Duration::from_millis(100);
/// And at least this often.
const LONGEST_BETWEEN_LOOKS: Duration = Duration::from_millis(1600);

/// Tells whether the server is still there; must be cheap and must not block.
pub type Liveness = Box<dyn Fn() -> bool + Send + Sync>;

/// The application's end of the ring.
pub struct Producer {
    memory: SharedMemory,
    tail: Mutex<Tail>,
    patience: Patience,
    is_alive: Liveness,
}

/// The writing end of the command FIFO, in bytes since the start.
#[derive(Debug, Default)]
struct Tail {
    end: u64,
    /// How far the server had read when that was last looked at.
    head: u64,
    /// The record being written.
    record: Vec<u8>,
}

/// An answer: the CUresult and the body.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// CUresult, 0 = success.
    pub result: u32,
    /// Body.
    pub reply: Reply,
}

impl Producer {
    /// Makes a ring; the descriptor is for the server and must stay open (a restorer finds the memory through it).
    ///
    /// # Errors
    /// [`RingError::Os`].
    pub fn create() -> Result<(OwnedFd, SharedMemory), RingError> {
        SharedMemory::create()
    }

    /// The application's end of a fresh ring.
    #[must_use]
    pub fn new(memory: SharedMemory, is_alive: Liveness) -> Self {
        Self {
            patience: Patience::default(),
            memory,
            tail: Mutex::default(),
            is_alive,
        }
    }

    /// Notes process id and descriptor numbers for a restorer.
    pub fn set_identity(&self, pid: u32, ring_fd: u32, control_fd: u32) {
        self.memory.u32_at(layout::APP_PID).store(pid, Ordering::Relaxed);
        self.memory.u32_at(layout::RING_FD).store(ring_fd, Ordering::Relaxed);
        self.memory
            .u32_at(layout::CONTROL_FD)
            .store(control_fd, Ordering::Release);
    }

    /// The sticky CUresult, 0 = none.
    #[must_use]
    pub fn fault(&self) -> u32 {
        self.memory.u32_at(layout::FAULT).load(Ordering::Acquire)
    }

    /// True if the server asks for [`Command::ManagedFaults`].
    #[must_use]
    pub fn wants_managed_faults(&self) -> bool {
        self.memory.u32_at(layout::WANTS_MANAGED_FAULTS).load(Ordering::Acquire) == 1
    }

    /// Sleeps until the server asks for them.
    pub fn await_managed_faults_wanted(&self) {
        let word = self.memory.u32_at(layout::WANTS_MANAGED_FAULTS);
        while word.load(Ordering::Acquire) != 1 {
            futex::wait(word, 0, None);
        }
    }

    /// Makes `result` the sticky CUresult unless there is one.
    pub fn set_fault(&self, result: u32) {
        let word = self.memory.u32_at(layout::FAULT);
        let _ = word.compare_exchange(0, result, Ordering::AcqRel, Ordering::Acquire);
    }

    /// What kernels of machine code have printed.
    #[must_use]
    pub fn printed(&self) -> PrintedFifo<'_> {
        PrintedFifo::new(&self.memory)
    }

    /// What the application asks for itself.
    #[must_use]
    pub fn checkpoint_words(&self) -> CheckpointWords<'_> {
        CheckpointWords::new(&self.memory)
    }

    /// True as long as the server is there.
    #[must_use]
    pub fn is_server_alive(&self) -> bool {
        (self.is_alive)()
    }

    /// The table of pinned memory.
    #[must_use]
    pub fn pinned_table(&self) -> PinnedTable<'_> {
        PinnedTable::new(&self.memory)
    }

    /// Sends a command that is not answered.
    ///
    /// # Errors
    /// [`RingError::ServerGone`], [`RingError::TooLarge`].
    pub fn send(&self, command: Command) -> Result<(), RingError> {
        self.publish(&Envelope { reply: None, command })
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// [`RingError::ServerGone`], [`RingError::TooLarge`], [`RingError::Decode`].
    pub fn call(&self, command: Command) -> Result<Answer, RingError> {
        self.begin(command)?.wait()
    }

    /// Sends a command; its answer can be waited for later.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn begin(&self, command: Command) -> Result<PendingReply<'_>, RingError> {
        let slot = self.take_slot()?;
        match self.publish(&Envelope {
            reply: Some(slot),
            command,
        }) {
            Ok(()) => Ok(PendingReply {
                producer: self,
                slot,
                is_over: false,
            }),
            Err(error) => {
                self.release_slot(slot);
                Err(error)
            }
        }
    }

    /// Wraps `bytes` for a command: short ones inline, longer ones in a chunk, which may have to be waited for.
    ///
    /// # Errors
    /// [`RingError::ServerGone`]; [`RingError::TooLarge`] beyond [`layout::CHUNK_BYTES`].
    pub fn payload(&self, bytes: &[u8]) -> Result<Payload, RingError> {
        if bytes.len() <= layout::MAX_INLINE_BYTES {
            return Ok(Payload::Inline(bytes.to_vec()));
        }
        if bytes.len() > layout::CHUNK_BYTES {
            let (size_bytes, limit_bytes) = (bytes.len() as u64, layout::CHUNK_BYTES as u64);
            return Err(RingError::TooLarge {
                what: "payload",
                size_bytes,
                limit_bytes,
            });
        }
        let chunk = self.take_chunk()?;
        self.memory.write(chunk_offset(chunk.index), bytes);
        let length = bytes.len() as u32;
        let index = chunk.into_command();
        Ok(Payload::Staged(Chunk { index, length }))
    }

    /// Takes a chunk, waiting for one if all are in use.
    ///
    /// # Errors
    /// [`RingError::ServerGone`].
    pub fn take_chunk(&self) -> Result<OwnedChunk<'_>, RingError> {
        let (bell, wanted) = (
            self.memory.u32_at(layout::CHUNK_BELL),
            self.memory.u32_at(layout::CHUNK_WANTED),
        );
        let mut taken = None;
        self.wait_until(bell, wanted, || {
            taken = self.try_take_chunk();
            taken.is_some()
        })?;
        taken.ok_or(RingError::ServerGone)
    }

    /// Takes a chunk if one is free.
    #[must_use]
    pub fn try_take_chunk(&self) -> Option<OwnedChunk<'_>> {
        (0..layout::NUM_CHUNKS)
            .find(|&i| {
                let word = self.memory.u32_at(layout::CHUNK_STATES + i as usize * 4);
                word.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            })
            .map(|index| OwnedChunk { producer: self, index })
    }

    /// Waits for a host function that is due, at most `timeout`.
    ///
    /// # Errors
    /// [`RingError::ServerGone`].
    pub fn wait_callback(&self, timeout: Duration) -> Result<Option<u64>, RingError> {
        if let Some(id) = self.pop_callback() {
            return Ok(Some(id));
        }
        let bell = self.memory.u32_at(layout::CALLBACK_BELL);
        let seen = bell.load(Ordering::SeqCst);
        if let Some(id) = self.pop_callback() {
            return Ok(Some(id));
        }
        futex::wait(bell, seen, Some(timeout));
        if let Some(id) = self.pop_callback() {
            return Ok(Some(id));
        }
        if (self.is_alive)() {
            Ok(None)
        } else {
            Err(RingError::ServerGone)
        }
    }

    /// Takes a call-back; only one thread of the application does this.
    fn pop_callback(&self) -> Option<u64> {
        let (head_word, tail_word) = (
            self.memory.u64_at(layout::CALLBACK_HEAD),
            self.memory.u64_at(layout::CALLBACK_TAIL),
        );
        let head = head_word.load(Ordering::Relaxed);
        if head == tail_word.load(Ordering::Acquire) {
            return None;
        }
        let index = (head % layout::NUM_CALLBACKS) as usize;
        let id = self
            .memory
            .u64_at(layout::CALLBACKS + index * 8)
            .load(Ordering::Relaxed);
        head_word.store(head + 1, Ordering::Release);
        Some(id)
    }

    fn publish(&self, envelope: &Envelope) -> Result<(), RingError> {
        let body = match &envelope.command {
            Command::Launch(_) | Command::GraphPart { .. } => Vec::new(),
            _ => envelope.encode()?,
        };
        let mut tail = self.tail.lock();
        let Tail { end, head, record } = &mut *tail;
        record.clear();
        record.extend_from_slice(&[0; 8]);
        let kind = match &envelope.command {
            Command::Launch(launch) => {
                launch_record::encode(envelope.reply, launch, record);
                record_kind::LAUNCH
            }
            Command::GraphPart {
                stream,
                graph,
                part,
                steps,
            } => {
                graph_part::encode_record(*stream, (*graph, *part), steps, record);
                record_kind::GRAPH_PART
            }
            _ => {
                record.extend_from_slice(&body);
                record_kind::COMMAND
            }
        };
        let length = (record.len() - 8) as u32;
        record[..4].copy_from_slice(&length.to_le_bytes());
        record[4..8].copy_from_slice(&kind.to_le_bytes());
        record.resize(record.len().next_multiple_of(8), 0);
        if record.len() > layout::MAX_RECORD_BYTES {
            return Err(RingError::TooLarge {
                what: "command",
                size_bytes: u64::from(length),
                limit_bytes: layout::MAX_RECORD_BYTES as u64 - 8,
            });
        }
        self.wait_for_room(*end, head, record.len())?;
        self.write_wrapped(*end, record);
        *end += record.len() as u64;
        self.memory.u64_at(layout::COMMAND_TAIL).store(*end, Ordering::SeqCst);
        drop(tail);
        futex::ring(
            self.memory.u32_at(layout::SERVER_BELL),
            self.memory.u32_at(layout::SERVER_SLEEPS),
        );
        Ok(())
    }

    /// Waits until a record fits behind `end`, and much more if none does now. `known_head` is how far the server had
    /// read when that was last looked at: as long as it suffices, the word stays in the server's cache.
    fn wait_for_room(&self, end: u64, known_head: &mut u64, record_bytes: usize) -> Result<(), RingError> {
        let fits = |head: u64| end.wrapping_sub(head) + record_bytes as u64 <= layout::COMMAND_BYTES as u64;
        if fits(*known_head) {
            return Ok(());
        }
        let head = self.memory.u64_at(layout::COMMAND_HEAD);
        *known_head = head.load(Ordering::SeqCst);
        if fits(*known_head) {
            return Ok(());
        }
        let has_room = || {
            *known_head = head.load(Ordering::SeqCst);
            end.wrapping_sub(*known_head) <= layout::FILLED_AGAIN_BELOW
        };
        self.wait_until(
            self.memory.u32_at(layout::ROOM_BELL),
            self.memory.u32_at(layout::ROOM_WANTED),
            has_room,
        )
    }

    fn write_wrapped(&self, position: u64, bytes: &[u8]) {
        let start = (position % layout::COMMAND_BYTES as u64) as usize;
        let first = bytes.len().min(layout::COMMAND_BYTES - start);
        self.memory.write(layout::COMMANDS + start, &bytes[..first]);
        self.memory.write(layout::COMMANDS, &bytes[first..]);
    }

    fn take_slot(&self) -> Result<SlotId, RingError> {
        let mut slot = None;
        self.wait_until(
            self.memory.u32_at(layout::SLOT_BELL),
            self.memory.u32_at(layout::SLOT_WANTED),
            || {
                slot = (0..layout::NUM_REPLY_SLOTS).find(|&i| {
                    let state = self.memory.u32_at(slot_offset(SlotId(i)));
                    state
                        .compare_exchange(slot_state::FREE, slot_state::TAKEN, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                });
                slot.is_some()
            },
        )?;
        slot.map(SlotId).ok_or(RingError::ServerGone)
    }

    fn release_slot(&self, slot: SlotId) {
        self.memory
            .u32_at(slot_offset(slot))
            .store(slot_state::FREE, Ordering::SeqCst);
        futex::ring(
            self.memory.u32_at(layout::SLOT_BELL),
            self.memory.u32_at(layout::SLOT_WANTED),
        );
    }

    /// Waits until `done`, sleeping on `bell` and saying so in `wanted`.
    fn wait_until(
        &self,
        bell: &std::sync::atomic::AtomicU32,
        wanted: &std::sync::atomic::AtomicU32,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), RingError> {
        if done() {
            return Ok(());
        }
        let mut interval = FIRST_LOOK_AFTER_SERVER;
        loop {
            let seen = bell.load(Ordering::SeqCst);
            wanted.store(1, Ordering::SeqCst);
            std::sync::atomic::fence(Ordering::SeqCst);
            if done() {
                return Ok(());
            }
            if !(self.is_alive)() {
                return Err(RingError::ServerGone);
            }
            futex::wait(bell, seen, Some(interval));
            interval = (interval * 2).min(LONGEST_BETWEEN_LOOKS);
        }
    }
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer")
            .field("fault", &self.fault())
            .finish_non_exhaustive()
    }
}

/// An answer to come. Dropping it waits for it, as the server still writes to its slot.
#[derive(Debug)]
#[must_use = "an answer is awaited when dropped; wait for it and look at it"]
pub struct PendingReply<'a> {
    producer: &'a Producer,
    slot: SlotId,
    is_over: bool,
}

impl PendingReply<'_> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// [`RingError::ServerGone`], [`RingError::Decode`].
    pub fn wait(mut self) -> Result<Answer, RingError> {
        self.is_over = true;
        let answer = self.await_answer()?;
        self.producer.release_slot(self.slot);
        answer
    }

    /// The outer error leaves the slot taken: a server that comes back to life could still write to it.
    fn await_answer(&self) -> Result<Result<Answer, RingError>, RingError> {
        let offset = slot_offset(self.slot);
        let memory = &self.producer.memory;
        let state = memory.u32_at(offset);
        let is_done = || state.load(Ordering::Acquire) == slot_state::DONE;
        let began = Instant::now();
        if !self.producer.patience.look(is_done) {
            let (taken, awaited) = (slot_state::TAKEN, slot_state::AWAITED);
            let _ = state.compare_exchange(taken, awaited, Ordering::SeqCst, Ordering::SeqCst);
            let mut interval = FIRST_LOOK_AFTER_SERVER;
            while !is_done() {
                futex::wait(state, awaited, Some(interval));
                interval = (interval * 2).min(LONGEST_BETWEEN_LOOKS);
                if !is_done() && !(self.producer.is_alive)() && !is_done() {
                    return Err(RingError::ServerGone);
                }
            }
        }
        let longest_us = memory.u32_at(layout::LONGEST_LOOK_US).load(Ordering::Relaxed);
        self.producer.patience.waited(began.elapsed(), longest_us);
        let result = memory.u32_at(offset + 4).load(Ordering::Relaxed);
        let length = memory.u32_at(offset + 8).load(Ordering::Relaxed) as usize;
        let mut body = vec![0; length.min(layout::REPLY_PAYLOAD_BYTES)];
        memory.read(offset + 16, &mut body);
        Ok(Reply::decode(&body).map(|reply| Answer { result, reply }))
    }
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.await_answer().is_ok() {
            self.producer.release_slot(self.slot);
        }
    }
}

/// A chunk that belongs to the application; given back on drop.
#[derive(Debug)]
pub struct OwnedChunk<'a> {
    producer: &'a Producer,
    index: u32,
}

impl OwnedChunk<'_> {
    /// The chunk with its first `length` bytes, to be named in a command. `length` is cut to the chunk's size.
    #[must_use]
    pub fn first(&self, length: usize) -> Chunk {
        Chunk {
            index: self.index,
            length: length.min(layout::CHUNK_BYTES) as u32,
        }
    }

    /// Fills the chunk's start; what does not fit is left out.
    pub fn fill(&self, bytes: &[u8]) {
        self.producer
            .memory
            .write(chunk_offset(self.index), &bytes[..bytes.len().min(layout::CHUNK_BYTES)]);
    }

    /// Fills `bytes` from the chunk, beginning at `offset`; what lies beyond the chunk is left alone.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let offset = offset.min(layout::CHUNK_BYTES);
        let length = bytes.len().min(layout::CHUNK_BYTES - offset);
        self.producer
            .memory
            .read(chunk_offset(self.index) + offset, &mut bytes[..length]);
    }

    /// The chunk is the server's now: it gives it back.
    #[must_use]
    pub fn into_command(self) -> u32 {
        std::mem::ManuallyDrop::new(self).index
    }
}

impl Drop for OwnedChunk<'_> {
    fn drop(&mut self) {
        release_chunk(&self.producer.memory, self.index);
    }
}

/// Frees a chunk and wakes who waits for one.
pub(crate) fn release_chunk(memory: &SharedMemory, index: u32) {
    memory
        .u32_at(layout::CHUNK_STATES + index as usize * 4)
        .store(0, Ordering::SeqCst);
    futex::ring(memory.u32_at(layout::CHUNK_BELL), memory.u32_at(layout::CHUNK_WANTED));
}

/// Where a chunk lies.
pub(crate) fn chunk_offset(index: u32) -> usize {
    layout::CHUNKS + index as usize * layout::CHUNK_BYTES
}

/// Where a reply slot lies.
pub(crate) fn slot_offset(slot: SlotId) -> usize {
    layout::REPLY_SLOTS + slot.0 as usize * layout::REPLY_SLOT_BYTES
}

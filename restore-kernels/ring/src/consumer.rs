//! The server's reading end of the ring: takes commands out, one reader only. Every length is checked, and records are
//! copied before they are decoded, as the application can write to the memory at any time.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use crate::command::Envelope;
use crate::error::RingError;
use crate::futex;
use crate::graph_part;
use crate::launch_record;
use crate::layout::{self, record_kind};
use crate::server_side::ServerSide;
use crate::shared_memory::SharedMemory;
use crate::version::Readable;

/// The reading end.
#[derive(Debug)]
pub struct Consumer {
    memory: Arc<SharedMemory>,
    head: u64,
    /// The record being decoded.
    body: Vec<u8>,
}

impl Consumer {
    /// Maps the ring behind `fd` (from `Hello` or `Attach`) and carries on where the last server stopped reading. Its
    /// version must be `readable`.
    ///
    /// # Errors
    /// [`RingError::NotARing`], [`RingError::Version`], [`RingError::Os`].
    pub fn open(fd: BorrowedFd<'_>, readable: Readable) -> Result<(Self, ServerSide), RingError> {
        let memory = Arc::new(SharedMemory::open(fd, readable)?);
        let head = memory.u64_at(layout::COMMAND_HEAD).load(Ordering::Acquire);
        // A server that slept when its application was dumped left this set, or not: the next wait sets it anew.
        memory.u32_at(layout::SERVER_SLEEPS).store(0, Ordering::SeqCst);
        Ok((
            Self {
                memory: Arc::clone(&memory),
                head,
                body: Vec::new(),
            },
            ServerSide::new(memory),
        ))
    }

    /// The next command, if there is one; never blocks.
    ///
    /// # Errors
    /// [`RingError::BadRecord`], [`RingError::BadPositions`], [`RingError::Decode`]: the ring is spoiled, nothing more
    /// can be read from it.
    pub fn take(&mut self) -> Result<Option<Envelope>, RingError> {
        let tail = self.memory.u64_at(layout::COMMAND_TAIL).load(Ordering::Acquire);
        let available = tail.wrapping_sub(self.head);
        if available == 0 {
            return Ok(None);
        }
        if available > layout::COMMAND_BYTES as u64 || available < 8 {
            return Err(RingError::BadPositions { head: self.head, tail });
        }
        let mut header = [0_u8; 8];
        self.read_wrapped(self.head, &mut header);
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let record_bytes = (8 + u64::from(length)).next_multiple_of(8);
        if record_bytes > available || record_bytes > layout::MAX_RECORD_BYTES as u64 {
            return Err(RingError::BadRecord {
                position: self.head,
                length,
            });
        }
        let mut body = std::mem::take(&mut self.body);
        body.resize(length as usize, 0);
        self.read_wrapped(self.head + 8, &mut body);
        let kind = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let envelope = match kind {
            record_kind::COMMAND => Envelope::decode(&body),
            record_kind::LAUNCH => launch_record::decode(&body),
            record_kind::GRAPH_PART => graph_part::decode_record(&body),
            kind => Err(RingError::Decode {
                what: "record",
                reason: format!("kind {kind} is not known"),
            }),
        };
        self.body = body;
        let envelope = envelope?;
        self.head += record_bytes;
        let head = self.memory.u64_at(layout::COMMAND_HEAD);
        let left = available - record_bytes;
        if available > layout::FILLED_AGAIN_BELOW && left <= layout::FILLED_AGAIN_BELOW {
            head.store(self.head, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            futex::ring(
                self.memory.u32_at(layout::ROOM_BELL),
                self.memory.u32_at(layout::ROOM_WANTED),
            );
        } else {
            head.store(self.head, Ordering::Release);
        }
        Ok(Some(envelope))
    }

    /// The count of wake-ups so far, for [`Self::has_more`] and [`Self::sleep`].
    #[must_use]
    pub fn bell(&self) -> u32 {
        self.memory.u32_at(layout::SERVER_BELL).load(Ordering::SeqCst)
    }

    /// True if a command may be there, or [`ServerSide::wake_reader`] has been called since `bell`.
    #[must_use]
    pub fn has_more(&self, bell: u32) -> bool {
        self.memory.u64_at(layout::COMMAND_TAIL).load(Ordering::SeqCst) != self.head || self.bell() != bell
    }

    /// Sleeps until a command may be there, [`ServerSide::wake_reader`] has been called since `bell`, or `timeout` has
    /// passed.
    pub fn sleep(&self, bell: u32, timeout: Option<Duration>) {
        let sleeps = self.memory.u32_at(layout::SERVER_SLEEPS);
        sleeps.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !self.has_more(bell) {
            futex::wait(self.memory.u32_at(layout::SERVER_BELL), bell, timeout);
        }
        sleeps.store(0, Ordering::SeqCst);
    }

    fn read_wrapped(&self, position: u64, bytes: &mut [u8]) {
        let start = (position % layout::COMMAND_BYTES as u64) as usize;
        let first = bytes.len().min(layout::COMMAND_BYTES - start);
        let (before, after) = bytes.split_at_mut(first);
        self.memory.read(layout::COMMANDS + start, before);
        self.memory.read(layout::COMMANDS, after);
    }
}

//! What any thread of the server does with the ring: answers, chunks, call-backs, the fault word, pinned memory's
//! table.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::checkpoint_words::CheckpointWords;
use crate::command::{Chunk, SlotId};
use crate::error::RingError;
use crate::futex;
use crate::layout::{self, slot_state};
use crate::pinned_table::PinnedTable;
use crate::printed::{self, PrintedFifo};
use crate::producer::{chunk_offset, release_chunk, slot_offset};
use crate::reply::Reply;
use crate::shared_memory::SharedMemory;

/// The server's writing end; clones share it.
#[derive(Clone, Debug)]
pub struct ServerSide {
    memory: Arc<SharedMemory>,
    callbacks: Arc<Mutex<()>>,
}

impl ServerSide {
    pub(crate) fn new(memory: Arc<SharedMemory>) -> Self {
        Self {
            memory,
            callbacks: Arc::new(Mutex::new(())),
        }
    }

    /// Process id the application wrote into the header (as it sees itself), and its descriptor numbers of ring and
    /// control socket.
    #[must_use]
    pub fn identity(&self) -> (u32, u32, u32) {
        let word = |offset| self.memory.u32_at(offset).load(Ordering::Acquire);
        (word(layout::APP_PID), word(layout::RING_FD), word(layout::CONTROL_FD))
    }

    /// Version of the ring: that of the application's driver library.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.memory.u32_at(layout::VERSION).load(Ordering::Relaxed)
    }

    /// Says how long threads of the application look for answers, at most, before they sleep.
    pub fn set_longest_look(&self, us: u32) {
        self.memory.u32_at(layout::LONGEST_LOOK_US).store(us, Ordering::Relaxed);
    }

    /// Says whether the application is to hand over faults of its managed memory.
    pub fn want_managed_faults(&self, wants: bool) {
        let word = self.memory.u32_at(layout::WANTS_MANAGED_FAULTS);
        word.store(u32::from(wants), Ordering::Release);
        if wants {
            futex::wake(word, i32::MAX);
        }
    }

    /// Where to write what kernels have printed; `None` if the application's driver library is too old to look there.
    #[must_use]
    pub fn printed(&self) -> Option<PrintedFifo<'_>> {
        (self.version() >= printed::FIRST_VERSION).then(|| PrintedFifo::new(&self.memory))
    }

    /// Answers the command that came with `slot`. A slot nobody waits for is left alone.
    ///
    /// # Errors
    /// [`RingError::OutOfRange`] for a slot that does not exist, [`RingError::TooLarge`].
    pub fn answer(&self, slot: SlotId, result: u32, reply: &Reply) -> Result<(), RingError> {
        if slot.0 >= layout::NUM_REPLY_SLOTS {
            return Err(RingError::OutOfRange {
                what: "reply slot",
                index: slot.0,
                length: 0,
            });
        }
        let body = reply.encode()?;
        let offset = slot_offset(slot);
        let state = self.memory.u32_at(offset);
        if !matches!(state.load(Ordering::Acquire), slot_state::TAKEN | slot_state::AWAITED) {
            return Ok(());
        }
        self.memory.u32_at(offset + 4).store(result, Ordering::Relaxed);
        self.memory
            .u32_at(offset + 8)
            .store(body.len() as u32, Ordering::Relaxed);
        self.memory.write(offset + 16, &body);
        if state.swap(slot_state::DONE, Ordering::SeqCst) == slot_state::AWAITED {
            futex::wake(state, i32::MAX);
        }
        Ok(())
    }

    /// Where all chunks lie in this process: address and size in bytes. They stay there as long as any clone of this.
    #[must_use]
    pub fn chunks(&self) -> (u64, u64) {
        let all = self
            .memory
            .bytes(layout::CHUNKS, layout::NUM_CHUNKS as usize * layout::CHUNK_BYTES);
        (all.as_ptr() as u64, all.len() as u64)
    }

    /// How many chunks nobody uses at present.
    #[must_use]
    pub fn num_free_chunks(&self) -> u32 {
        let state = |i: u32| {
            self.memory
                .u32_at(layout::CHUNK_STATES + i as usize * 4)
                .load(Ordering::Relaxed)
        };
        (0..layout::NUM_CHUNKS).map(|i| u32::from(state(i) == 0)).sum()
    }

    /// What the application put into a chunk. It stays the server's until [`Self::release_chunk`].
    ///
    /// # Errors
    /// [`RingError::OutOfRange`].
    pub fn chunk_bytes(&self, chunk: Chunk) -> Result<&[u8], RingError> {
        check(chunk)?;
        Ok(self.memory.bytes(chunk_offset(chunk.index), chunk.length as usize))
    }

    /// Puts `bytes` into a chunk, from byte `offset` on.
    ///
    /// # Errors
    /// [`RingError::OutOfRange`] if they go beyond the chunk's length.
    pub fn fill_chunk(&self, chunk: Chunk, offset: usize, bytes: &[u8]) -> Result<(), RingError> {
        check(chunk)?;
        if offset
            .checked_add(bytes.len())
            .is_none_or(|end| end > chunk.length as usize)
        {
            return Err(RingError::OutOfRange {
                what: "chunk",
                index: chunk.index,
                length: bytes.len() as u64,
            });
        }
        self.memory.write(chunk_offset(chunk.index) + offset, bytes);
        Ok(())
    }

    /// Lets `fill` write straight into a chunk (a copy from the device without a copy in between).
    ///
    /// # Errors
    /// [`RingError::OutOfRange`].
    pub fn with_chunk<T>(&self, chunk: Chunk, fill: impl FnOnce(&mut [u8]) -> T) -> Result<T, RingError> {
        check(chunk)?;
        Ok(self
            .memory
            .with_bytes_mut(chunk_offset(chunk.index), chunk.length as usize, fill))
    }

    /// Gives back the chunk of a copy to the device once its data has been taken out.
    ///
    /// # Errors
    /// [`RingError::OutOfRange`].
    pub fn release_chunk(&self, chunk: Chunk) -> Result<(), RingError> {
        check(chunk)?;
        release_chunk(&self.memory, chunk.index);
        Ok(())
    }

    /// Sets the sticky CUresult that every later call of the application returns; the first one counts.
    pub fn set_fault(&self, result: u32) {
        let word = self.memory.u32_at(layout::FAULT);
        let _ = word.compare_exchange(0, result, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The sticky CUresult, 0 = none.
    #[must_use]
    pub fn fault(&self) -> u32 {
        self.memory.u32_at(layout::FAULT).load(Ordering::Acquire)
    }

    /// Clears it, on `Reset`.
    pub fn clear_fault(&self) {
        self.memory.u32_at(layout::FAULT).store(0, Ordering::Release);
    }

    /// Tells the application to run host function `id`; false if too many are outstanding: try again later.
    #[must_use]
    pub fn push_callback(&self, id: u64) -> bool {
        let _one_at_a_time = self.callbacks.lock();
        let tail_word = self.memory.u64_at(layout::CALLBACK_TAIL);
        let tail = tail_word.load(Ordering::Relaxed);
        let head = self.memory.u64_at(layout::CALLBACK_HEAD).load(Ordering::Acquire);
        if tail.wrapping_sub(head) >= layout::NUM_CALLBACKS {
            return false;
        }
        let index = (tail % layout::NUM_CALLBACKS) as usize;
        self.memory
            .u64_at(layout::CALLBACKS + index * 8)
            .store(id, Ordering::Relaxed);
        tail_word.store(tail.wrapping_add(1), Ordering::Release);
        let bell = self.memory.u32_at(layout::CALLBACK_BELL);
        bell.fetch_add(1, Ordering::SeqCst);
        futex::wake(bell, i32::MAX);
        true
    }

    /// Makes [`crate::consumer::Consumer::sleep`] return.
    pub fn wake_reader(&self) {
        let bell = self.memory.u32_at(layout::SERVER_BELL);
        bell.fetch_add(1, Ordering::SeqCst);
        futex::wake(bell, i32::MAX);
    }

    /// What the application asks for itself.
    #[must_use]
    pub fn checkpoint_words(&self) -> CheckpointWords<'_> {
        CheckpointWords::new(&self.memory)
    }

    /// The table of pinned memory.
    #[must_use]
    pub fn pinned_table(&self) -> PinnedTable<'_> {
        PinnedTable::new(&self.memory)
    }
}

fn check(chunk: Chunk) -> Result<(), RingError> {
    if chunk.index < layout::NUM_CHUNKS && chunk.length as usize <= layout::CHUNK_BYTES {
        return Ok(());
    }
    Err(RingError::OutOfRange {
        what: "chunk",
        index: chunk.index,
        length: u64::from(chunk.length),
    })
}

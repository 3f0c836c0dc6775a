//! Device memory that pausing needs: control blocks with their pause words, and scratch for what stopped threads leave.

use std::sync::Arc;

use hetckpt_abi::launch_control::{ARENA_BYTES, LAUNCH_CONTROL_BYTES, TOLD_WORD_AT};

use super::driver::{self, DriverError, Result};
use super::handles::{Context, DeviceBuffer, Pinned, Stream};
use super::transfer::Transfers;
use super::trap_word::TrapWord;
use crate::control::ControlWords;

/// Bytes of pause words at the start of an arena.
const PAUSE_BYTES: usize = TOLD_WORD_AT as usize;
/// Bytes before the first control block: the pause words, and the word that says that all have been set.
const HEAD_BYTES: usize = PAUSE_BYTES + LAUNCH_CONTROL_BYTES as usize;

/// Control blocks that one copy writes, at most.
const WRITTEN_TOGETHER: u64 = 1024;

/// Control blocks ([`hetckpt_abi::launch_control`]).
pub(super) struct Arena {
    addr: u64,
    handle: u64,
    free: Vec<u64>,
}

impl Arena {
    /// An arena whose pause words say what `request` says.
    fn new(context: &Context, stream: &Stream, request: &Pinned, trapped: &TrapWord) -> Result<Self> {
        let size = ARENA_BYTES as usize;
        // Reservations are aligned to the granularity of mappings, which is the arena's size or a multiple of it.
        let addr = driver::cuMemAddressReserve(size, 0)?;
        if addr % ARENA_BYTES != 0 {
            let _ = driver::cuMemAddressFree(addr, size);
            return Err(DriverError {
                call: "cuMemAddressReserve",
                code: driver::UNKNOWN,
            });
        }
        let handle = driver::cuMemCreate(size, context.device)?;
        driver::cuMemMap(addr, size, 0, handle, 0)?;
        driver::cuMemSetAccess(addr, size, context.device)?;
        request.send(addr, HEAD_BYTES, stream)?;
        trapped.tell(addr, stream)?;
        stream.wait()?;
        let first = addr + HEAD_BYTES as u64;
        let free = (first..addr + ARENA_BYTES)
            .step_by(LAUNCH_CONTROL_BYTES as usize)
            .collect();
        Ok(Self { addr, handle, free })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let size = ARENA_BYTES as usize;
        let _ = driver::cuMemUnmap(self.addr, size);
        let _ = driver::cuMemRelease(self.handle);
        let _ = driver::cuMemAddressFree(self.addr, size);
    }
}

/// All arenas, and how they are written to.
pub(super) struct Arenas {
    all: Vec<Arena>,
    /// Copies on it overtake all else.
    pub stream: Stream,
    words: Pinned,
    blocks: Pinned,
    trapped: Arc<TrapWord>,
}

impl Arenas {
    pub fn new(context: &Context, priority: i32, trapped: Arc<TrapWord>) -> Result<Self> {
        let mut arenas = Self {
            all: Vec::new(),
            stream: Stream::new(priority)?,
            words: Pinned::new(HEAD_BYTES)?,
            blocks: Pinned::new((WRITTEN_TOGETHER * LAUNCH_CONTROL_BYTES) as usize)?,
            trapped,
        };
        arenas.grow(context)?;
        Ok(arenas)
    }

    fn grow(&mut self, context: &Context) -> Result<()> {
        let arena = Arena::new(context, &self.stream, &self.words, &self.trapped)?;
        self.all.push(arena);
        Ok(())
    }

    /// Address of a control block that no launch uses.
    pub fn take(&mut self, context: &Context) -> Result<u64> {
        if let Some(addr) = self.all.iter_mut().find_map(|arena| arena.free.pop()) {
            return Ok(addr);
        }
        self.grow(context)?;
        let last = self.all.last_mut().and_then(|arena| arena.free.pop());
        last.ok_or(DriverError {
            call: "control block",
            code: driver::UNKNOWN,
        })
    }

    /// Gives a control block back.
    pub fn give_back(&mut self, addr: u64) {
        if let Some(arena) = self
            .all
            .iter_mut()
            .find(|arena| arena.addr == addr & !(ARENA_BYTES - 1))
        {
            arena.free.push(addr);
        }
    }

    /// Starts writing control blocks, each to its address. What is sent next on the stream arrives after them.
    ///
    /// Those in use lie close together, so most are written by one copy. What lies between them is in no use.
    pub fn write(&mut self, blocks: &[(u64, ControlWords)]) -> Result<()> {
        const SIZE: u64 = LAUNCH_CONTROL_BYTES;
        let mut sorted: Vec<&(u64, ControlWords)> = blocks.iter().collect();
        sorted.sort_unstable_by_key(|(addr, _)| *addr);
        let mut rest = &sorted[..];
        while let Some((first, _)) = rest.first() {
            let fits = |block: &&&(u64, ControlWords)| block.0 + SIZE - first <= WRITTEN_TOGETHER * SIZE;
            let is_same_arena = |block: &&&(u64, ControlWords)| block.0 / ARENA_BYTES == first / ARENA_BYTES;
            let count = rest.iter().take_while(|b| fits(b) && is_same_arena(b)).count();
            let (some, others) = rest.split_at(count);
            // The copy before may not have been made yet.
            self.stream.wait()?;
            let mut end = 0;
            for (addr, words) in some {
                let at = (addr - first) as usize;
                end = at + SIZE as usize;
                self.blocks.bytes_mut()[at..end].copy_from_slice(&words.to_bytes());
            }
            self.blocks.send(*first, end, &self.stream)?;
            rest = others;
        }
        Ok(())
    }

    /// Sets all pause words, then those that say that this has been done. Nothing runs when they are cleared.
    pub fn set_pause(&mut self, pause: bool) -> Result<()> {
        self.words.bytes_mut().fill(if pause { 0xff } else { 0 });
        for arena in &self.all {
            self.words.send(arena.addr, PAUSE_BYTES, &self.stream)?;
        }
        for arena in &self.all {
            self.words
                .send(arena.addr + TOLD_WORD_AT, size_of::<u32>(), &self.stream)?;
        }
        self.stream.wait()
    }
}

/// Zeroed device memory, handed out at a pause and taken back, zeroed again, when all of it has been read.
pub(super) struct Scratch {
    buffer: DeviceBuffer,
    size: u64,
    used: u64,
    /// What did not fit.
    extra: Vec<DeviceBuffer>,
    memory: Arc<Stream>,
}

impl Scratch {
    pub fn new(transfers: &Transfers, context: &Context, memory: &Arc<Stream>, size: u64) -> Result<Self> {
        let bytes = size as usize;
        let buffer = DeviceBuffer::new(bytes, memory)?;
        transfers.on_stream(context, |stream| {
            driver::cuMemsetD8Async(buffer.addr, 0, bytes, stream.0)
        })?;
        Ok(Self {
            buffer,
            size,
            used: 0,
            extra: Vec::new(),
            memory: memory.clone(),
        })
    }

    /// `size` bytes of zeros, aligned to 256.
    pub fn take(&mut self, transfers: &Transfers, context: &Context, size: u64) -> Result<u64> {
        let size = size.next_multiple_of(256);
        if self.used + size <= self.size {
            self.used += size;
            return Ok(self.buffer.addr + self.used - size);
        }
        let buffer = DeviceBuffer::new(size as usize, &self.memory)?;
        // A fill may need a free multiprocessor, and kernels are running.
        transfers.zero_by_copies(context, buffer.addr, size)?;
        let addr = buffer.addr;
        self.extra.push(buffer);
        Ok(addr)
    }

    /// Takes everything back; nothing is running that uses it.
    pub fn reset(&mut self, transfers: &Transfers, context: &Context) -> Result<()> {
        self.extra.clear();
        let used = std::mem::take(&mut self.used) as usize;
        if used == 0 {
            return Ok(());
        }
        transfers.on_stream(context, |stream| {
            driver::cuMemsetD8Async(self.buffer.addr, 0, used, stream.0)
        })
    }
}

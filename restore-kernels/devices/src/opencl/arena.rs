//! What backs device memory.
//!
//! It starts at [`DEVICE_BASE`] as kernels count addresses. *Shared*, it is the host's memory at that very address, so
//! that everything the host does with device memory is a plain access, and kernels reach all of it and pinned memory
//! too by any buffer at its start, since `arena + (address - base)` is the address. *Separate*, it is the device's own
//! memory, and what the host does goes through a queue of transfers, which does not wait for the queues of kernels.
//! Where a device has more memory than it allows in one buffer, it is several of one size, a power of two, each taken
//! when a program's memory first reaches into it; kernels are built for as many as there are ([`super::module`]).

use std::collections::BTreeMap;
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::failure::Result as ClResult;
use super::handles::{CommandQueue, Context, Event, Mem};
use super::host_memory::HostMemory;
use super::not_shared::NotShared;
use crate::cpu::{host, memory};
use crate::device::{DEVICE_BASE, Fill, GRANULARITY};
use crate::error::DeviceError;

type Result<T> = std::result::Result<T, DeviceError>;

/// The memory of a device.
#[derive(Debug)]
pub(super) struct Arena {
    /// Dropped before the memory that it lies over.
    first: Mem,
    /// Those behind it, the ones taken so far first.
    more: Box<[OnceLock<Mem>]>,
    /// Size of each but the last in bytes; a power of two if there are several.
    buffer_bytes: u64,
    backing: Backing,
    size: u64,
    /// What is mapped: address and size.
    ranges: Mutex<BTreeMap<u64, u64>>,
    /// Pinned memory: address and size.
    pinned: Mutex<BTreeMap<u64, u64>>,
}

#[derive(Debug)]
enum Backing {
    Shared(HostMemory),
    Separate(CommandQueue),
}

/// Most buffers: each is an argument of every kernel.
const MAX_BUFFERS: u64 = 16;

/// The most memory that a program can have of a device's `total_bytes`: all but an eighth, which is for what stops, and
/// no more than [`MAX_BUFFERS`] hold.
pub(super) fn most_bytes(total_bytes: u64, max_buffer: u64) -> u64 {
    let bytes = total_bytes / 8 * 7;
    match bytes <= max_buffer {
        true => bytes,
        false => bytes.min(buffer_size(max_buffer).saturating_mul(MAX_BUFFERS)),
    }
}

/// Size of each of several buffers.
fn buffer_size(max_buffer: u64) -> u64 {
    1 << max_buffer.max(GRANULARITY).ilog2()
}

/// Where an address lies that is not shared.
#[derive(Clone, Copy)]
enum Place {
    Arena(usize),
    Pinned,
}

impl Arena {
    /// Reserves host memory at the addresses that programs see, the first of it as a buffer of at most `max_buffer`
    /// bytes.
    pub fn shared(context: &Context, size: u64, max_buffer: u64) -> std::result::Result<Self, NotShared> {
        let len = usize::try_from(size).map_err(|_| NotShared::TooLarge { size_bytes: size })?;
        let memory = HostMemory::reserve(DEVICE_BASE, len).map_err(|source| NotShared::NotReserved {
            size_bytes: size,
            addr: DEVICE_BASE,
            source,
        })?;
        #[allow(unsafe_code, reason = "lends host memory to the driver")]
        // SAFETY: the reservation is dropped after the buffer; the device lets go of both once no kernel runs.
        let mem = unsafe { context.buffer_over(memory.at(), len.min(max_buffer as usize)) }?;
        Ok(Self::new(mem, Backing::Shared(memory), size, size))
    }

    /// Memory of the device: `size` bytes, in buffers of at most `max_buffer`. The first is taken now; if it cannot be
    /// had, a half, a quarter, … of it is all there is.
    pub fn separate(context: &Context, size: u64, max_buffer: u64) -> ClResult<Self> {
        let buffer_bytes = match size <= max_buffer {
            true => size,
            false => buffer_size(max_buffer),
        };
        let transfers = context.queue()?;
        let mut first_bytes = buffer_bytes;
        let first = loop {
            match take(context, &transfers, first_bytes) {
                Ok(mem) => break mem,
                Err(error) if !error.is_lack_of_memory() || first_bytes / 2 < GRANULARITY => return Err(error),
                Err(_) => first_bytes = first_bytes / 2 / GRANULARITY * GRANULARITY,
            }
        };
        let backing = Backing::Separate(transfers);
        if first_bytes < buffer_bytes {
            return Ok(Self::new(first, backing, first_bytes, first_bytes));
        }
        Ok(Self::new(
            first,
            backing,
            size.min(buffer_bytes * MAX_BUFFERS),
            buffer_bytes,
        ))
    }

    fn new(first: Mem, backing: Backing, size: u64, buffer_bytes: u64) -> Self {
        Self {
            first,
            more: (1..size.div_ceil(buffer_bytes)).map(|_| OnceLock::new()).collect(),
            buffer_bytes,
            backing,
            size,
            ranges: Mutex::default(),
            pinned: Mutex::default(),
        }
    }

    /// The buffers taken so far, in order.
    pub fn buffers(&self) -> impl Iterator<Item = &Mem> {
        std::iter::once(&self.first).chain(self.more.iter().map_while(OnceLock::get))
    }

    /// Number of [`Arena::buffers`].
    pub fn num_buffers(&self) -> u32 {
        self.buffers().count() as u32
    }

    /// Where there are several: bits of an address's distance from [`DEVICE_BASE`] within its buffer.
    pub fn buffer_shift(&self) -> u32 {
        self.buffer_bytes.ilog2()
    }

    /// Takes the buffers up to the distance `end` that have not been taken yet.
    fn reach(&self, context: &Context, transfers: &CommandQueue, end: u64) -> ClResult<()> {
        for (i, buffer) in (1..end.div_ceil(self.buffer_bytes)).zip(&self.more) {
            if buffer.get().is_none() {
                let size = self.buffer_bytes.min(self.size - i * self.buffer_bytes);
                let taken = take(context, transfers, size)?;
                // One at a time: the caller has the list of ranges.
                let _ = buffer.set(taken);
            }
        }
        Ok(())
    }

    /// Buffer, offset in it and length of each piece of a range of memory that is not shared.
    fn pieces(&self, at: usize, size: usize) -> Result<Vec<(&Mem, usize, usize)>> {
        let buffer_bytes = self.buffer_bytes as usize;
        let mut pieces = vec![];
        let mut done = 0;
        while done < size {
            let (which, offset) = ((at + done) / buffer_bytes, (at + done) % buffer_bytes);
            let len = (size - done).min(buffer_bytes - offset);
            let buffer = self.buffers().nth(which).ok_or_else(|| DeviceError::Driver {
                call: "a transfer",
                reason: format!("nothing is mapped at {:#x}", DEVICE_BASE + (at + done) as u64),
            })?;
            pieces.push((buffer, offset, len));
            done += len;
        }
        Ok(pieces)
    }

    /// True if kernels and host see the same memory at the same addresses.
    pub fn is_shared(&self) -> bool {
        matches!(self.backing, Backing::Shared(_))
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size
    }

    /// What is not mapped, as far as the host has it too if it is the host's.
    pub fn free_bytes(&self) -> u64 {
        let free = self.size - self.ranges.lock().values().sum::<u64>();
        if self.is_shared() {
            free.min(host::memory().free_bytes)
        } else {
            free
        }
    }

    /// Makes a range usable and zero.
    pub fn map(&self, context: &Context, addr: u64, size_bytes: u64) -> Result<()> {
        let failed = |reason: String| DeviceError::Map {
            addr,
            size_bytes,
            reason,
        };
        let free_bytes = self.free_bytes();
        let end = addr.checked_sub(DEVICE_BASE).and_then(|at| at.checked_add(size_bytes));
        let Some(end) = end.filter(|_| size_bytes > 0) else {
            return Err(failed("it is no device address".into()));
        };
        if end > self.size || size_bytes > free_bytes {
            return Err(DeviceError::OutOfMemory {
                requested_bytes: size_bytes,
                free_bytes,
            });
        }
        let mut ranges = self.ranges.lock();
        let before = ranges.range(..addr + size_bytes).next_back();
        if before.is_some_and(|(&first, &size)| first + size > addr) {
            return Err(failed("part of it is mapped".into()));
        }
        let (offset, size) = ((addr - DEVICE_BASE) as usize, size_bytes as usize);
        match &self.backing {
            Backing::Shared(memory) => memory.open(offset, size).map_err(|e| failed(e.to_string()))?,
            Backing::Separate(transfers) => {
                self.reach(context, transfers, end)
                    .map_err(|error| match error.is_lack_of_memory() {
                        true => DeviceError::OutOfMemory {
                            requested_bytes: size_bytes,
                            free_bytes,
                        },
                        false => error.into(),
                    })?;
                for (mem, offset, len) in self.pieces(offset, size)? {
                    transfers.fill(mem, &[0; 4], offset, len)?.wait()?;
                }
            }
        }
        ranges.insert(addr, size_bytes);
        Ok(())
    }

    /// Undoes [`Arena::map`].
    pub fn unmap(&self, addr: u64, size_bytes: u64) -> Result<()> {
        let failed = |reason: String| DeviceError::Map {
            addr,
            size_bytes,
            reason,
        };
        let mut ranges = self.ranges.lock();
        if ranges.get(&addr) != Some(&size_bytes) {
            return Err(failed("it was not mapped as one range".into()));
        }
        if let Backing::Shared(memory) = &self.backing {
            let closed = memory.close((addr - DEVICE_BASE) as usize, size_bytes as usize);
            closed.map_err(|e| failed(e.to_string()))?;
        }
        ranges.remove(&addr);
        Ok(())
    }

    /// Notes pinned memory of this process, so that copies find it.
    pub fn register_host(&self, addr: u64, size_bytes: u64) {
        self.pinned.lock().insert(addr, size_bytes);
    }

    /// Undoes [`Arena::register_host`].
    pub fn unregister_host(&self, addr: u64) -> Result<()> {
        let known = self.pinned.lock().remove(&addr);
        known.map(drop).ok_or(DeviceError::Map {
            addr,
            size_bytes: 0,
            reason: "it is not registered".into(),
        })
    }

    /// Host to device.
    pub fn write(&self, dst: u64, src: &[u8]) -> Result<()> {
        match self.transfers_to(dst, src.len() as u64)? {
            Some((transfers, Place::Arena(at))) => {
                let mut rest = src;
                for (mem, offset, len) in self.pieces(at, src.len())? {
                    let (piece, behind) = rest.split_at(len);
                    transfers.write(mem, offset, piece)?;
                    rest = behind;
                }
                Ok(())
            }
            _ => {
                memory::write(dst, src);
                Ok(())
            }
        }
    }

    /// Device to host.
    pub fn read(&self, src: u64, dst: &mut [u8]) -> Result<()> {
        match self.transfers_to(src, dst.len() as u64)? {
            Some((transfers, Place::Arena(at))) => {
                let mut rest = dst;
                for (mem, offset, len) in self.pieces(at, rest.len())? {
                    let (piece, behind) = rest.split_at_mut(len);
                    transfers.read(mem, offset, piece)?;
                    rest = behind;
                }
                Ok(())
            }
            _ => {
                memory::read(src, dst);
                Ok(())
            }
        }
    }

    /// Device to device; either side may be pinned memory.
    pub fn copy(&self, dst: u64, src: u64, size_bytes: u64) -> Result<()> {
        let (to, from) = (self.transfers_to(dst, size_bytes)?, self.transfers_to(src, size_bytes)?);
        let size = size_bytes as usize;
        match (to, from) {
            _ if size == 0 => {}
            (Some((transfers, Place::Arena(to))), Some((_, Place::Arena(from)))) => {
                self.copy_within(transfers, from, to, size)?;
            }
            (Some((_, Place::Arena(_))), _) => {
                let mut bytes = vec![0; size];
                memory::read(src, &mut bytes);
                self.write(dst, &bytes)?;
            }
            (_, Some((_, Place::Arena(_)))) => {
                let mut bytes = vec![0; size];
                self.read(src, &mut bytes)?;
                memory::write(dst, &bytes);
            }
            _ => memory::copy(dst, src, size_bytes),
        }
        Ok(())
    }

    /// Copies within memory that is not shared; piece by piece where either side goes on in another buffer.
    fn copy_within(&self, transfers: &CommandQueue, mut from: usize, mut to: usize, mut size: usize) -> Result<()> {
        let buffer_bytes = self.buffer_bytes as usize;
        while size > 0 {
            let len = size
                .min(buffer_bytes - from % buffer_bytes)
                .min(buffer_bytes - to % buffer_bytes);
            let (sources, targets) = (self.pieces(from, len)?, self.pieces(to, len)?);
            for (&(source, at, _), &(target, to_at, _)) in sources.iter().zip(&targets) {
                transfers.copy((source, at), (target, to_at), len)?.wait()?;
            }
            (from, to, size) = (from + len, to + len, size - len);
        }
        Ok(())
    }

    /// Fills rows.
    pub fn fill(&self, dst: u64, pitch_bytes: u64, value: Fill, width: u64, rows: u64) -> Result<()> {
        if width == 0 || rows == 0 {
            return Ok(());
        }
        let (pattern, len) = match value {
            Fill::U8(v) => ([v, 0, 0, 0], 1),
            Fill::U16(v) => {
                let [a, b] = v.to_le_bytes();
                ([a, b, 0, 0], 2)
            }
            Fill::U32(v) => (v.to_le_bytes(), 4),
        };
        let row_bytes = width.saturating_mul(len as u64);
        let extent = (rows - 1).saturating_mul(pitch_bytes).saturating_add(row_bytes);
        let Some((transfers, Place::Arena(at))) = self.transfers_to(dst, extent)? else {
            memory::fill(dst, pitch_bytes, value, width, rows);
            return Ok(());
        };
        let (rows, row_bytes) = if row_bytes == pitch_bytes {
            (1, extent)
        } else {
            (rows, row_bytes)
        };
        let mut last: Option<Event> = None;
        for row in 0..rows {
            // A pattern lies in one buffer: its size is a power of two, and it is aligned.
            for (mem, offset, size) in self.pieces(at + (row * pitch_bytes) as usize, row_bytes as usize)? {
                last = Some(transfers.fill(mem, &pattern[..len], offset, size)?);
            }
        }
        Ok(last.map_or(Ok(()), |event| event.wait())?)
    }

    /// The queue of transfers and the place of a range for it; `None` if the host reaches the range itself, which the
    /// server has compared with its allocations.
    fn transfers_to(&self, addr: u64, size_bytes: u64) -> Result<Option<(&CommandQueue, Place)>> {
        let Backing::Separate(transfers) = &self.backing else {
            return Ok(None);
        };
        let within = |first: u64, len: u64| {
            addr.checked_sub(first)
                .filter(|at| at.checked_add(size_bytes).is_some_and(|end| end <= len))
        };
        if let Some(at) = within(DEVICE_BASE, self.size) {
            return Ok(Some((transfers, Place::Arena(at as usize))));
        }
        let is_pinned = self
            .pinned
            .lock()
            .range(..=addr)
            .next_back()
            .is_some_and(|(&first, &len)| within(first, len).is_some());
        if is_pinned {
            return Ok(Some((transfers, Place::Pinned)));
        }
        Err(DeviceError::Driver {
            call: "a transfer",
            reason: format!("{addr:#x}+{size_bytes:#x} is neither device memory nor pinned"),
        })
    }
}

/// Memory of the device that is there: many drivers take it only when it is used.
fn take(context: &Context, transfers: &CommandQueue, size: u64) -> ClResult<Mem> {
    let mem = context.buffer(size as usize)?;
    transfers.fill(&mem, &[0], 0, 1)?.wait()?;
    transfers.fill(&mem, &[0], (size - 1) as usize, 1)?.wait()?;
    Ok(mem)
}

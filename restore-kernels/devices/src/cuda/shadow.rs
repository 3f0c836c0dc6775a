//! Device memory as it was at one moment: a copy of it in memory of the device that is free.

use std::sync::Arc;

use super::CudaInner;
use super::driver::{self, Result};
use crate::device::{MemoryView, PlannedView};
use crate::error::DeviceError;

/// What part of the device's memory is left to the program, which may allocate meanwhile, and to others.
const LEFT: u64 = 8;

/// Copies begin at multiples of this: what the device copies fastest.
const ALIGNMENT: u64 = 512;

/// Memory for a copy. The driver takes several milliseconds for a few GiB, so it is asked for while kernels still run.
pub(super) struct PlannedShadow(Room);

impl PlannedShadow {
    /// Room for the copy of `size_bytes`. None if too little memory is free.
    pub fn new(device: &Arc<CudaInner>, size_bytes: u64) -> Result<Option<Self>> {
        device.context.enter()?;
        let room = Room::new(device, size_bytes)?;
        if room.is_some() {
            device.apart.open(&device.context);
        }
        Ok(room.map(Self))
    }

    fn copy(self, ranges: &[(u64, u64)]) -> Result<Option<Shadow>> {
        let Self(mut room) = self;
        let device = Arc::clone(&room.device);
        device.context.enter()?;
        let mut copies = vec![];
        let mut needed = 0u64;
        for &(addr, size_bytes) in ranges {
            copies.push(Copied {
                addr,
                size_bytes,
                offset: needed,
            });
            needed = needed.saturating_add(size_bytes).next_multiple_of(ALIGNMENT);
        }
        if needed > room.size_bytes {
            // The program has allocated more meanwhile.
            drop(room);
            match Room::new(&device, needed)? {
                Some(larger) => room = larger,
                None => return Ok(None),
            }
        }
        copies.sort_unstable_by_key(|copy| copy.addr);
        device.transfers.on_stream(&device.context, |stream| {
            copies.iter().try_for_each(|copy| {
                let to = room.addr + copy.offset;
                driver::cuMemcpyDtoDAsync(to, copy.addr, copy.size_bytes as usize, stream.0)
            })
        })?;
        Ok(Some(Shadow { room, copies }))
    }
}

impl PlannedView for PlannedShadow {
    fn make(self: Box<Self>, ranges: &[(u64, u64)]) -> std::result::Result<Option<Box<dyn MemoryView>>, DeviceError> {
        let shadow = self.copy(ranges)?;
        Ok(shadow.map(|shadow| Box::new(shadow) as Box<dyn MemoryView>))
    }
}

/// Device memory.
struct Room {
    addr: u64,
    size_bytes: u64,
    device: Arc<CudaInner>,
}

impl Room {
    /// None if too little is free.
    fn new(device: &Arc<CudaInner>, size_bytes: u64) -> Result<Option<Self>> {
        let (free, total) = driver::cuMemGetInfo()?;
        if size_bytes.saturating_add(total / LEFT) > free {
            return Ok(None);
        }
        match driver::cuMemAllocAsync(size_bytes.max(1) as usize, device.memory_stream.0) {
            Ok(addr) => {
                let device = Arc::clone(device);
                let room = Self {
                    addr,
                    size_bytes,
                    device,
                };
                room.device.memory_stream.wait()?;
                Ok(Some(room))
            }
            Err(error) if error.code == driver::OUT_OF_MEMORY => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let stream = self.device.memory_stream.0;
        let _ = self.device.context.enter();
        let _ = driver::cuMemFreeAsync(self.addr, stream);
        // When the driver is told to wait, it gives what is free back to the device; not when it is only asked.
        let _ = driver::cuStreamSynchronize(stream);
    }
}

/// The copy.
pub(super) struct Shadow {
    room: Room,
    /// By address.
    copies: Vec<Copied>,
}

/// Where the copy of a range lies in the room.
struct Copied {
    addr: u64,
    size_bytes: u64,
    offset: u64,
}

impl MemoryView for Shadow {
    fn read(&self, src: u64, dst: &mut [u8]) -> std::result::Result<(), DeviceError> {
        let after = self.copies.partition_point(|copy| copy.addr <= src);
        let found = after.checked_sub(1).and_then(|at| self.copies.get(at));
        let holds = |copy: &&Copied| dst.len() as u64 <= copy.size_bytes.saturating_sub(src - copy.addr);
        let copy = found.filter(holds).ok_or_else(|| DeviceError::Driver {
            call: "cuMemcpyDtoHAsync",
            reason: format!("nothing was kept of {src:#x}"),
        })?;
        let device = &self.room.device;
        let from = self.room.addr + copy.offset + (src - copy.addr);
        let apart = device.apart.read(from, dst);
        Ok(apart.unwrap_or_else(|| device.transfers.read(&device.context, from, dst))?)
    }
}

//! Device memory as it was at one moment: a copy of it in memory of the device that is free.

use std::sync::Arc;

use super::CudaInner;
use super::driver::{self, Result};
use super::handles::DeviceBuffer;
use crate::device::MemoryView;
use crate::error::DeviceError;

/// What part of the device's memory is left to the program, which may allocate meanwhile, and to others.
const LEFT: u64 = 8;

/// The copy.
pub(super) struct Shadow {
    device: Arc<CudaInner>,
    /// By address.
    ranges: Vec<Range>,
}

struct Range {
    addr: u64,
    size_bytes: u64,
    copy: DeviceBuffer,
}

impl Shadow {
    /// Copies `ranges` (address, bytes). None if too little memory is free.
    pub fn copy(device: &Arc<CudaInner>, ranges: &[(u64, u64)]) -> Result<Option<Self>> {
        device.context.enter()?;
        let needed = ranges.iter().fold(0u64, |sum, &(_, size)| sum.saturating_add(size));
        let (free, total) = driver::cuMemGetInfo()?;
        if needed.saturating_add(total / LEFT) > free {
            return Ok(None);
        }
        let mut copied = vec![];
        for &(addr, size_bytes) in ranges {
            let copy = match DeviceBuffer::new(size_bytes as usize, &device.memory_stream) {
                Ok(copy) => copy,
                Err(error) if error.code == driver::OUT_OF_MEMORY => return Ok(None),
                Err(error) => return Err(error),
            };
            copied.push(Range { addr, size_bytes, copy });
        }
        copied.sort_unstable_by_key(|range| range.addr);
        device.transfers.on_stream(&device.context, |stream| {
            copied.iter().try_for_each(|range| {
                driver::cuMemcpyDtoDAsync(range.copy.addr, range.addr, range.size_bytes as usize, stream.0)
            })
        })?;
        Ok(Some(Self {
            device: Arc::clone(device),
            ranges: copied,
        }))
    }
}

impl MemoryView for Shadow {
    fn read(&self, src: u64, dst: &mut [u8]) -> std::result::Result<(), DeviceError> {
        let after = self.ranges.partition_point(|range| range.addr <= src);
        let found = after.checked_sub(1).and_then(|at| self.ranges.get(at));
        let holds = |range: &&Range| dst.len() as u64 <= range.size_bytes.saturating_sub(src - range.addr);
        let range = found.filter(holds).ok_or_else(|| DeviceError::Driver {
            call: "cuMemcpyDtoHAsync",
            reason: format!("nothing was kept of {src:#x}"),
        })?;
        let device = &self.device;
        let from = range.copy.addr + (src - range.addr);
        let apart = device.apart.read(&device.context, from, dst);
        Ok(apart.unwrap_or_else(|| device.transfers.read(&device.context, from, dst))?)
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        let _ = self.device.context.enter();
        self.ranges.clear();
        // Then the memory is the device's again.
        let _ = self.device.memory_stream.wait();
    }
}

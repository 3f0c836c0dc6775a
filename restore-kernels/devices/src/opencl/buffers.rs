//! Device memory beside the arena: lists, counts and places for what stops.

use super::failure::{ClFailure, Result};
use super::handles::{CommandQueue, Context, Mem};
use super::host_memory::HostMemory;

/// `CL_OUT_OF_HOST_MEMORY`
const OUT_OF_HOST_MEMORY: i32 = -6;

/// A buffer; on a device that shares the host's memory, the host's.
#[derive(Debug)]
pub(super) struct DeviceBuffer {
    /// Dropped before the memory that it lies over.
    pub mem: Mem,
    host: Option<HostMemory>,
    size: usize,
}

impl DeviceBuffer {
    /// A buffer of at least one byte that is zero for the commands given to `queue` from now on.
    pub fn zeroed(context: &Context, is_shared: bool, size: usize, queue: &CommandQueue) -> Result<Self> {
        let buffer = Self::new(context, is_shared, size)?;
        if buffer.host.is_none() {
            // The queue keeps the order.
            queue.fill(&buffer.mem, &[0; 4], 0, buffer.size)?;
        }
        Ok(buffer)
    }

    /// A buffer with given content.
    pub fn filled(context: &Context, is_shared: bool, content: &[u8], transfers: &CommandQueue) -> Result<Self> {
        let buffer = Self::new(context, is_shared, content.len())?;
        match &buffer.host {
            Some(host) => {
                host.write(0, content);
            }
            None => transfers.write(&buffer.mem, 0, content)?,
        }
        Ok(buffer)
    }

    fn new(context: &Context, is_shared: bool, size: usize) -> Result<Self> {
        let size = size.max(1).next_multiple_of(16);
        if !is_shared {
            return Ok(Self {
                mem: context.buffer(size)?,
                host: None,
                size,
            });
        }
        let host = HostMemory::zeroed(size).map_err(|_| ClFailure {
            call: "mmap",
            code: OUT_OF_HOST_MEMORY,
        })?;
        #[allow(unsafe_code, reason = "lends host memory to the driver")]
        // SAFETY: the mapping is dropped after the buffer, and the buffer is kept until the launches with it have
        // ended.
        let mem = unsafe { context.buffer_over(host.at(), size) }?;
        Ok(Self {
            mem,
            host: Some(host),
            size,
        })
    }

    /// The host's side of it, where there is one.
    pub fn host(&self) -> Option<&HostMemory> {
        self.host.as_ref()
    }

    /// Size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Copies out what the kernels that have ended have left.
    pub fn read(&self, transfers: &CommandQueue, to: &mut [u8]) -> Result<()> {
        if let Some(host) = &self.host {
            host.read(0, to);
            return Ok(());
        }
        transfers.read(&self.mem, 0, to)
    }
}

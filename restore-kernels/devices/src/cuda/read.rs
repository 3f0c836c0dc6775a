//! Reads of device memory behind launches, into pinned memory that is used again.

use std::sync::Arc;

use parking_lot::Mutex;

use super::CudaInner;
use super::handles::Pinned;
use super::progress::Progress;
use crate::device::PendingRead;
use crate::error::DeviceError;

/// A read under way.
pub(super) struct CudaRead {
    pub device: Arc<CudaInner>,
    pub progress: Arc<Progress>,
    pub number: u64,
    pub size_bytes: u64,
    /// There while it is under way, and at least of that size; `None` for nothing.
    pub buffer: Mutex<Option<Pinned>>,
}

impl PendingRead for CudaRead {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_done(&self) -> bool {
        self.device.context.enter().is_err() || self.progress.is_done(self.number)
    }

    fn wait(&self, take: &mut dyn FnMut(&[u8])) -> std::result::Result<(), DeviceError> {
        self.device.context.enter()?;
        self.progress.wait(self.number)?;
        if let Some(buffer) = &*self.buffer.lock() {
            take(&buffer.bytes()[..self.size_bytes as usize]);
        }
        Ok(())
    }
}

impl Drop for CudaRead {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.get_mut().take() else {
            return;
        };
        // The device may still write to it.
        match self
            .device
            .context
            .enter()
            .and_then(|()| self.progress.wait(self.number))
        {
            Ok(()) => self.device.buffers.give_back(buffer),
            Err(_) => std::mem::forget(buffer),
        }
    }
}

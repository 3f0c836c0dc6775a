//! Writes of a few bytes behind launches, out of pinned memory that is used again.

use std::sync::Arc;

use super::CudaInner;
use super::driver;
use super::handles::Pinned;
use super::progress::Progress;
use super::unstoppable;
use crate::device::{MAX_QUEUED_BYTES, Outcome, RunningLaunch};
use crate::error::DeviceError;

/// A write under way.
struct CudaWrite {
    running: Arc<dyn RunningLaunch>,
    /// There while it is under way.
    buffer: Option<Pinned>,
    device: Arc<CudaInner>,
}

impl RunningLaunch for CudaWrite {
    fn is_done(&self) -> bool {
        self.running.is_done()
    }

    fn wait(&self) -> Outcome {
        self.running.wait()
    }

    fn wait_stopped(&self) {
        self.running.wait_stopped();
    }
}

impl Drop for CudaWrite {
    fn drop(&mut self) {
        // The device may still read it.
        self.running.wait_stopped();
        if let Some(buffer) = self.buffer.take() {
            self.device.buffers.give_back(buffer);
        }
    }
}

/// Writes `bytes` to `dst`; while the device is paused, nothing of it is started.
pub(super) fn give(
    device: &Arc<CudaInner>,
    progress: &Arc<Progress>,
    dst: u64,
    bytes: &[u8],
) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
    if bytes.len() as u64 > MAX_QUEUED_BYTES {
        return Err(DeviceError::Driver {
            call: "write",
            reason: format!("{} bytes are more than {MAX_QUEUED_BYTES}", bytes.len()),
        });
    }
    device.context.enter()?;
    let mut buffer = device.buffers.take()?;
    buffer.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    let src = buffer.bytes().as_ptr() as u64;
    let running = unstoppable::give(device, progress, "a copy", 1, |progress| {
        progress.give(|stream| driver::cuMemcpyAsync(dst, src, bytes.len(), stream.0))
    })?;
    Ok(Arc::new(CudaWrite {
        running,
        buffer: Some(buffer),
        device: Arc::clone(device),
    }))
}

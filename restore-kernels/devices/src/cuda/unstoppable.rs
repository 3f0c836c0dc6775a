//! What a pause does not reach: machine code, copies and fills. They are given to a stream as they are, and waited for.

use std::sync::Arc;

use hetckpt_abi::paused_block::PausedGrid;

use super::CudaInner;
use super::driver::Result;
use super::flight::Held;
use super::progress::Progress;
use crate::device::{Outcome, RunningLaunch};
use crate::error::DeviceError;

/// Something under way that ends by itself.
struct Unstoppable {
    device: Arc<CudaInner>,
    name: String,
    progress: Arc<Progress>,
    number: u64,
}

impl Unstoppable {
    fn wait_for_end(&self) -> Result<()> {
        self.device.context.enter()?;
        self.progress.wait(self.number)
    }
}

impl RunningLaunch for Unstoppable {
    fn is_done(&self) -> bool {
        self.device.context.enter().is_err() || self.progress.is_done(self.number)
    }

    fn wait(&self) -> Outcome {
        match self.wait_for_end() {
            Ok(()) => match self.progress.take_refusal(self.number) {
                None => Outcome::Finished,
                Some(error) => Outcome::Failed(DeviceError::Launch {
                    kernel: self.name.clone(),
                    reason: error.to_string(),
                }),
            },
            Err(error) => Outcome::Failed(DeviceError::Fault {
                kernel: self.name.clone(),
                reason: error.to_string(),
                cuda_result: error.code,
            }),
        }
    }

    fn wait_stopped(&self) {
        // A failure is told by `wait`.
        let _ = self.wait_for_end();
    }
}

/// Has `start` give something to the stream and return its number, unless the device is paused: then nothing of its
/// `num_blocks` blocks has begun. `name` is for messages.
pub(super) fn give(
    device: &Arc<CudaInner>,
    progress: &Arc<Progress>,
    name: &str,
    num_blocks: u64,
    start: impl FnOnce(&Arc<Progress>) -> Result<u64>,
) -> std::result::Result<Arc<dyn RunningLaunch>, DeviceError> {
    let refused = |reason: String| DeviceError::Launch {
        kernel: name.to_owned(),
        reason,
    };
    device.context.enter().map_err(|e| refused(e.to_string()))?;
    // Held until it is on its way, so that a pause comes before or after it.
    let pausing = device.pausing.lock();
    if pausing.is_paused {
        let left = PausedGrid {
            paused: vec![],
            not_started: vec![(0, num_blocks)],
        };
        return Ok(Held::paused(left));
    }
    let number = start(progress).map_err(|e| refused(e.to_string()))?;
    Ok(Arc::new(Unstoppable {
        device: Arc::clone(device),
        name: name.to_owned(),
        progress: Arc::clone(progress),
        number,
    }))
}

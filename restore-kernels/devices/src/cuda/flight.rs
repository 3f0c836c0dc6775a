//! A launch under way, from the call to its outcome.

use std::sync::Arc;

use parking_lot::Mutex;

use hetckpt_abi::paused_block::PausedGrid;

use super::CudaInner;
use super::driver::DriverError;
use super::handles::DeviceBuffer;
use super::module::CudaKernel;
use super::progress::Progress;
use crate::control::{BlockShape, ControlWords, Remains};
use crate::device::{Outcome, RunningLaunch};
use crate::error::DeviceError;

/// `CUDA_ERROR_LAUNCH_FAILED`
const LAUNCH_FAILED: u32 = 719;

/// What a pause has laid out for a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prepared {
    /// The word of each block that names its slot, then the entry bits of each block.
    pub lists: u64,
    pub slots: u64,
    pub slot_stride: u64,
}

/// A launch that was given to a queue.
pub(super) struct Flight {
    pub device: Arc<CudaInner>,
    pub kernel: Arc<CudaKernel>,
    pub shape: BlockShape,
    /// Blocks launched.
    pub num_blocks: u64,
    /// Blocks of it that can be on the device at once.
    pub max_resident: u64,
    /// What it goes on with, if it does.
    pub given: Option<Arc<PausedGrid>>,
    /// Address of its control block, and what it says before a pause.
    pub control: u64,
    pub words: ControlWords,
    pub progress: Arc<Progress>,
    pub number: u64,
    pub prepared: Mutex<Option<Prepared>>,
    pub is_taken: Mutex<bool>,
    /// List of blocks and slots of a continuation.
    pub _memory: Option<DeviceBuffer>,
}

impl RunningLaunch for Flight {
    fn is_done(&self) -> bool {
        self.device.context.enter().is_err() || self.progress.is_done(self.number)
    }

    fn wait(&self) -> Outcome {
        let mut is_taken = self.is_taken.lock();
        if std::mem::replace(&mut *is_taken, true) {
            return Outcome::Finished;
        }
        let stopped = self.wait_for_end();
        if let Some(error) = self.progress.take_refusal(self.number) {
            return Outcome::Failed(DeviceError::Launch {
                kernel: self.kernel.request.name.clone(),
                reason: error.to_string(),
            });
        }
        if stopped.is_ok() && self.device.trapped.take(self.control) {
            return Outcome::Failed(DeviceError::Fault {
                kernel: self.kernel.request.name.clone(),
                reason: "a thread trapped".to_owned(),
                cuda_result: LAUNCH_FAILED,
            });
        }
        let left = stopped.and_then(|()| self.capture());
        match left {
            Ok(left) if left.is_finished() => Outcome::Finished,
            Ok(left) => Outcome::Paused(left),
            Err(error) => Outcome::Failed(self.fault(error)),
        }
    }

    fn wait_stopped(&self) {
        // A failure is told by `wait`.
        let _ = self.wait_for_end();
    }
}

impl Flight {
    /// True if it is known to be over, without asking the driver.
    pub fn is_known_done(&self) -> bool {
        self.progress.is_known_done(self.number)
    }

    pub fn wait_for_end(&self) -> Result<(), DriverError> {
        self.device.context.enter()?;
        self.progress.wait(self.number)
    }

    fn fault(&self, error: DriverError) -> DeviceError {
        DeviceError::Fault {
            kernel: self.kernel.request.name.clone(),
            reason: error.to_string(),
            cuda_result: error.code,
        }
    }

    /// Reads what a pause has left of the launch.
    fn capture(&self) -> Result<PausedGrid, DriverError> {
        let Some(prepared) = *self.prepared.lock() else {
            return Ok(PausedGrid::default());
        };
        let num_blocks = self.num_blocks as usize;
        let lists = self.read_words(prepared.lists, num_blocks * (1 + self.shape.entry_words() as usize))?;
        let (block_slot, entry_bits) = lists.split_at(num_blocks);
        let taken = block_slot.iter().filter_map(|word| word.checked_sub(2));
        let (first_slot, num_slots) = match (taken.clone().min(), taken.max()) {
            (Some(first), Some(last)) => (first, u64::from(last - first) + 1),
            _ => (0, 0),
        };
        let size = (num_slots * prepared.slot_stride) as usize;
        let mut slots = vec![0; size];
        let from = prepared.slots + u64::from(first_slot) * prepared.slot_stride;
        self.device.transfers.read(&self.device.context, from, &mut slots)?;
        let remains = Remains {
            shape: self.shape,
            columns: &self.kernel.columns,
            block_slot,
            entry_bits,
            slots: &slots,
            first_slot,
            slot_stride: prepared.slot_stride as usize,
            given: self.given.as_deref(),
        };
        Ok(remains.collect())
    }

    fn read_words(&self, addr: u64, count: usize) -> Result<Vec<u32>, DriverError> {
        let mut bytes = vec![0; count * 4];
        self.device.transfers.read(&self.device.context, addr, &mut bytes)?;
        Ok(bytes
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // The kernel may still run and look at its control block and lists.
        let _ = self.wait_for_end();
        self.device.returned_controls.lock().push(self.control);
    }
}

/// A launch given while the device is paused: all of it is left.
pub(super) struct Held(pub Mutex<Option<PausedGrid>>);

impl RunningLaunch for Held {
    fn is_done(&self) -> bool {
        true
    }

    fn wait(&self) -> Outcome {
        match self.0.lock().take() {
            Some(left) if !left.is_finished() => Outcome::Paused(left),
            _ => Outcome::Finished,
        }
    }

    fn wait_stopped(&self) {}
}

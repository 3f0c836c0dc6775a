//! Launches under way that can stop, from the call to their outcome.

use std::sync::Arc;

use parking_lot::Mutex;

use hetckpt_abi::paused_block::PausedGrid;

use super::CudaInner;
use super::driver::DriverError;
use super::graph_copy::GraphCopy;
use super::handles::DeviceBuffer;
use super::launch::Launched;
use super::progress::Progress;
use crate::control::Remains;
use crate::device::{Outcome, RunningLaunch};
use crate::error::DeviceError;

/// `CUDA_ERROR_LAUNCH_FAILED`
const LAUNCH_FAILED: u32 = 719;

/// What a pause has laid out for launches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prepared {
    /// For one launch after another: the word of each block that names its slot, then the entry bits of each block.
    pub lists: u64,
    pub slots: u64,
    pub slot_stride: u64,
}

/// What was given at once.
pub(super) enum Launches {
    One(Launched),
    /// Those of a graph, one after another.
    Graph(Arc<GraphCopy>),
}

impl Launches {
    pub fn as_slice(&self) -> &[Launched] {
        match self {
            Self::One(launched) => std::slice::from_ref(launched),
            Self::Graph(copy) => &copy.launches,
        }
    }

    /// For messages.
    fn name(&self) -> String {
        let launches = self.as_slice();
        let first = launches
            .first()
            .map_or("", |first| first.plan.kernel.request.name.as_str());
        match launches.len() {
            0 | 1 => first.to_owned(),
            others => format!("{first} and {} launches behind it in a graph", others - 1),
        }
    }
}

/// What was given to a queue at once.
pub(super) struct Flight {
    device: Arc<CudaInner>,
    pub launches: Launches,
    progress: Arc<Progress>,
    number: u64,
    pub prepared: Mutex<Option<Prepared>>,
    is_taken: Mutex<bool>,
    /// List of blocks and slots of a continuation.
    _memory: Option<DeviceBuffer>,
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
                kernel: self.launches.name(),
                reason: error.to_string(),
            });
        }
        let mut launches = self.launches.as_slice().iter();
        if stopped.is_ok()
            && let Some(trapped) = launches.find(|l| self.device.trapped.take(l.control))
        {
            return Outcome::Failed(DeviceError::Fault {
                kernel: trapped.plan.kernel.request.name.clone(),
                reason: "a thread trapped".to_owned(),
                cuda_result: LAUNCH_FAILED,
            });
        }
        let mut left = match stopped.and_then(|()| self.capture()) {
            Ok(left) => left,
            Err(error) => return Outcome::Failed(self.fault(error)),
        };
        if left.iter().all(PausedGrid::is_finished) {
            return Outcome::Finished;
        }
        match self.launches {
            Launches::One(_) => left.pop().map_or(Outcome::Finished, Outcome::Paused),
            Launches::Graph(_) => Outcome::PausedSteps(left),
        }
    }

    fn wait_stopped(&self) {
        // A failure is told by `wait`.
        let _ = self.wait_for_end();
    }
}

impl Flight {
    pub fn new(
        device: &Arc<CudaInner>,
        launches: Launches,
        progress: &Arc<Progress>,
        number: u64,
        memory: Option<DeviceBuffer>,
    ) -> Arc<Self> {
        Arc::new(Self {
            device: Arc::clone(device),
            launches,
            progress: Arc::clone(progress),
            number,
            prepared: Mutex::new(None),
            is_taken: Mutex::new(false),
            _memory: memory,
        })
    }

    /// True if it is known to be over, without asking the driver.
    pub fn is_known_done(&self) -> bool {
        self.progress.is_known_done(self.number)
    }

    pub fn wait_for_end(&self) -> Result<(), DriverError> {
        self.device.context.enter()?;
        self.progress.wait(self.number)
    }

    /// Words that [`Prepared::lists`] has.
    pub fn num_list_words(&self) -> u64 {
        let launches = self.launches.as_slice().iter();
        launches.map(|launched| launched.plan.num_list_words()).sum()
    }

    fn fault(&self, error: DriverError) -> DeviceError {
        DeviceError::Fault {
            kernel: self.launches.name(),
            reason: error.to_string(),
            cuda_result: error.code,
        }
    }

    /// Reads what a pause has left of each launch; nothing if there was none.
    fn capture(&self) -> Result<Vec<PausedGrid>, DriverError> {
        let Some(prepared) = *self.prepared.lock() else {
            return Ok(Vec::new());
        };
        let lists = self.read_words(prepared.lists, self.num_list_words() as usize)?;
        let mut rest = &lists[..];
        let launches = self.launches.as_slice().iter();
        let left = launches.map(|launched| {
            let (own, others) = rest.split_at(launched.plan.num_list_words() as usize);
            rest = others;
            self.left_of(launched, own, prepared)
        });
        left.collect()
    }

    fn left_of(&self, launched: &Launched, lists: &[u32], prepared: Prepared) -> Result<PausedGrid, DriverError> {
        let plan = &launched.plan;
        let (block_slot, entry_bits) = lists.split_at(plan.num_blocks as usize);
        let taken = block_slot.iter().filter_map(|word| word.checked_sub(2));
        let (first_slot, num_slots) = match (taken.clone().min(), taken.max()) {
            (Some(first), Some(last)) => (first, u64::from(last - first) + 1),
            _ => (0, 0),
        };
        let size = (num_slots * prepared.slot_stride) as usize;
        let mut slots = vec![0; size];
        if size > 0 {
            let from = prepared.slots + u64::from(first_slot) * prepared.slot_stride;
            self.device.transfers.read(&self.device.context, from, &mut slots)?;
        }
        let remains = Remains {
            shape: plan.shape,
            columns: &plan.kernel.columns,
            block_slot,
            entry_bits,
            slots: &slots,
            first_slot,
            slot_stride: prepared.slot_stride as usize,
            given: plan.given.as_deref(),
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
        // Kernels may still run and look at their control blocks and lists.
        let _ = self.wait_for_end();
        match &self.launches {
            Launches::One(launched) => self.device.returned_controls.lock().push(launched.control),
            Launches::Graph(copy) => copy.give_back(),
        }
    }
}

/// What was given while the device is paused, or had nothing to do: it has this outcome.
pub(super) struct Held(Mutex<Option<Outcome>>);

impl Held {
    pub fn new(outcome: Outcome) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(outcome))))
    }

    /// All of it is left.
    pub fn paused(left: PausedGrid) -> Arc<Self> {
        Self::new(if left.is_finished() {
            Outcome::Finished
        } else {
            Outcome::Paused(left)
        })
    }
}

impl RunningLaunch for Held {
    fn is_done(&self) -> bool {
        true
    }

    fn wait(&self) -> Outcome {
        self.0.lock().take().unwrap_or(Outcome::Finished)
    }

    fn wait_stopped(&self) {}
}

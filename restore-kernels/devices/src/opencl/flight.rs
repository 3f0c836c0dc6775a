//! A launch under way, from the call to its outcome.

use std::sync::Arc;

use parking_lot::Mutex;

use hetckpt_abi::opencl_program::count;
use hetckpt_abi::paused_block::PausedGrid;

use super::OpenClInner;
use super::buffers::DeviceBuffer;
use super::capture::{Remains, RemainsError};
use super::failure::{ClFailure, name_of};
use super::handles::{CommandQueue, Event};
use super::module::OpenClKernel;
use super::plan::Plan;
use super::pool::LaunchWords;
use crate::device::{Outcome, RunningLaunch};
use crate::error::DeviceError;

/// `CUDA_ERROR_LAUNCH_FAILED`
const LAUNCH_FAILED: u32 = 719;

/// Why a launch has failed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum FlightError {
    /// The kernel itself (the program's fault, or the device's).
    #[error("{}", name_of(*code))]
    Kernel { code: i32 },
    /// A thread came to a `trap` (the program's wish).
    #[error("a thread trapped")]
    Trapped,
    /// What it has left cannot be read (the driver's fault).
    #[error(transparent)]
    Call(#[from] ClFailure),
    /// More blocks than there were say that they did not start (a bug in us).
    #[error("{away} of {blocks} blocks were turned away")]
    TooManyAway { away: u32, blocks: u64 },
    /// What it has left cannot be.
    #[error(transparent)]
    Remains(#[from] RemainsError),
}

/// A launch that was given to a queue.
pub(super) struct Flight {
    pub device: Arc<OpenClInner>,
    pub commands: Arc<CommandQueue>,
    pub kernel: Arc<OpenClKernel>,
    pub plan: Plan,
    /// The kernel's own end, for its error.
    pub event: Arc<Event>,
    /// The end of all that was given for the launch.
    pub end: Arc<Event>,
    pub words: Mutex<Option<LaunchWords>>,
    pub stopped: Option<Arc<DeviceBuffer>>,
    /// Slots or records for which there is room.
    pub num_places: u32,
    pub continuation: Mutex<Option<Continuation>>,
    pub is_taken: Mutex<bool>,
}

/// List and slots of a continuation.
pub(super) struct Continuation {
    pub list: DeviceBuffer,
    pub slots: Option<DeviceBuffer>,
}

/// What a dropped launch leaves to its kernel, which may still run.
pub(super) struct DroppedLaunch {
    pub end: Arc<Event>,
    pub words: Option<LaunchWords>,
    _stopped: Option<Arc<DeviceBuffer>>,
    _continuation: Option<Continuation>,
    _commands: Arc<CommandQueue>,
    _kernel: Arc<OpenClKernel>,
}

impl RunningLaunch for Flight {
    fn is_done(&self) -> bool {
        // A device that does not answer will not go on.
        self.end.status().is_err() || self.end.is_over()
    }

    fn wait(&self) -> Outcome {
        let mut is_taken = self.is_taken.lock();
        if std::mem::replace(&mut *is_taken, true) {
            return Outcome::Finished;
        }
        match self.outcome() {
            Ok(left) if left.is_finished() => Outcome::Finished,
            Ok(left) => Outcome::Paused(left),
            Err(error) => Outcome::Failed(DeviceError::Fault {
                kernel: self.kernel.request.name.clone(),
                reason: error.to_string(),
                cuda_result: LAUNCH_FAILED,
            }),
        }
    }

    fn wait_stopped(&self) {
        // A failure is told by `wait`.
        let _ = self.end.wait();
    }
}

impl Flight {
    /// Waits and reads what is left.
    fn outcome(&self) -> Result<PausedGrid, FlightError> {
        let ended = self.end.wait();
        if let Some(code) = self.event.status().ok().filter(|&code| code < 0) {
            return Err(FlightError::Kernel { code });
        }
        ended?;
        let words = self.words.lock();
        let Some(words) = words.as_ref() else {
            return Ok(PausedGrid::default());
        };
        let counts = words.counts();
        if counts[count::TRAPPED] != 0 {
            return Err(FlightError::Trapped);
        }
        let (away, stopped) = (counts[count::TURNED_AWAY], counts[count::STOPPED]);
        if away == 0 && stopped == 0 {
            return Ok(PausedGrid::default());
        }
        self.device.pausing.note_stop();
        if u64::from(away) > self.plan.num_groups {
            return Err(FlightError::TooManyAway {
                away,
                blocks: self.plan.num_groups,
            });
        }
        let mut list = vec![0; away as usize * 4];
        let transfers = &self.device.transfers;
        words.turned_away.read(transfers, &mut list)?;
        let turned_away: Vec<u32> = list
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        // Those that found no place counted themselves too, and went on.
        let num_stopped = u64::from(stopped.min(self.num_places));
        let (_, place_bytes) = self.plan.places(&self.kernel, &self.device.limits);
        let mut places = vec![0; (num_stopped * place_bytes) as usize];
        if let Some(buffer) = &self.stopped {
            buffer.read(transfers, &mut places)?;
        }
        let remains = Remains {
            shape: self.plan.shape,
            stops: self.kernel.program.stops,
            live_columns: &self.kernel.live_columns,
            num_blocks: self.plan.all_blocks,
            given: self.plan.given.as_deref(),
            turned_away: &turned_away,
            stopped: &places,
        };
        Ok(remains.collect()?)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.device.take_dropped(DroppedLaunch {
            end: self.end.clone(),
            words: self.words.lock().take(),
            _stopped: self.stopped.take(),
            _continuation: self.continuation.lock().take(),
            _commands: self.commands.clone(),
            _kernel: self.kernel.clone(),
        });
    }
}

/// A launch given while the device is paused: all of it is left.
pub(super) struct Held(Mutex<Option<PausedGrid>>);

impl Held {
    pub fn new(left: Option<PausedGrid>) -> Self {
        Self(Mutex::new(left))
    }
}

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

//! Launches that can stop, several of them made into one of the driver's graphs.
//!
//! A pause tells each launch by its control block where to leave its state, and a graph's launches have the control
//! blocks with which it was made. So there are several copies of a graph, of which each is on the device once at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::CudaInner;
use super::driver::Result;
use super::executable::Executable;
use super::flight::{Flight, Held, Launched, Launches};
use super::handles::Stream;
use super::launch::Plan;
use super::pausing::Pausing;
use super::queue::CudaQueue;
use crate::device::{Launch, Outcome, RunningLaunch};
use crate::error::DeviceError;

/// More copies would take more memory than they are worth: with none free, launches are given one by one.
const MAX_COPIES: usize = 4;

/// A graph.
pub(super) struct StoppableGraph {
    launches: Vec<Launch>,
    copies: Vec<Arc<GraphCopy>>,
}

/// Launches, each with a control block.
pub(super) struct GraphCopy {
    pub launches: Vec<Launched>,
    /// `None`: they are given one by one, once.
    executable: Option<Executable>,
    is_on_device: AtomicBool,
    device: Arc<CudaInner>,
}

impl StoppableGraph {
    /// Makes a graph of launches that is to be on the device up to `at_a_time` times at once.
    pub fn new(
        device: &Arc<CudaInner>,
        launches: Vec<Launch>,
        at_a_time: usize,
    ) -> std::result::Result<Self, DeviceError> {
        let num_copies = at_a_time.clamp(1, MAX_COPIES);
        let copy = || {
            let mut copy = GraphCopy::new(device, &mut device.pausing.lock(), &launches)?;
            copy.make_executable()?;
            Ok(Arc::new(copy))
        };
        let copies = std::iter::repeat_with(copy).take(num_copies);
        Ok(Self {
            copies: copies.collect::<std::result::Result<_, DeviceError>>()?,
            launches,
        })
    }

    /// Launches on a queue; while the device is paused, nothing of it is started.
    pub fn launch(
        &self,
        queue: &CudaQueue,
        is_watched: bool,
    ) -> std::result::Result<Arc<dyn RunningLaunch>, DeviceError> {
        let (device, progress) = (&queue.device, &queue.progress);
        device.context.enter()?;
        // Held until it is on its way, so that a pause comes before or after it.
        let mut pausing = device.pausing.lock();
        if pausing.is_paused {
            let launches = self.copies.iter().take(1).flat_map(|copy| &copy.launches);
            let left = launches.map(|launched| launched.plan.left()).collect();
            return Ok(Held::new(Outcome::PausedSteps(left)));
        }
        // Copies come back with them.
        pausing.forget_known_done(queue.id);
        let copy = match self.copies.iter().find(|copy| copy.take()) {
            Some(copy) => Arc::clone(copy),
            None => Arc::new(GraphCopy::new(device, &mut pausing, &self.launches)?),
        };
        let mut refused = None;
        let given = progress.give_watched(is_watched, |stream| {
            copy.start(stream).or_else(|error| match copy.executable {
                Some(_) => Err(error),
                // Some of them may have been given.
                None => {
                    refused = Some(error);
                    Ok(())
                }
            })
        });
        let number = given.inspect_err(|_| copy.give_back())?;
        if let Some(error) = refused {
            progress.refuse(number, error);
        }
        let flight = Flight::new(device, Launches::Graph(copy), progress, number, None);
        pausing.add(queue.id, Arc::clone(&flight));
        Ok(flight)
    }
}

impl GraphCopy {
    /// Launches that are on the device one by one.
    fn new(
        device: &Arc<CudaInner>,
        pausing: &mut Pausing,
        launches: &[Launch],
    ) -> std::result::Result<Self, DeviceError> {
        let mut copy = Self {
            launches: Vec::with_capacity(launches.len()),
            executable: None,
            is_on_device: AtomicBool::new(true),
            device: Arc::clone(device),
        };
        for launch in launches {
            let plan = Plan::new(device, launch)?;
            let control = pausing.take_control(device)?;
            let words = plan.words(0);
            copy.launches.push(Launched { plan, control, words });
        }
        Ok(copy)
    }

    /// From now on the device has them as one.
    fn make_executable(&mut self) -> Result<()> {
        let give = |stream: &Stream| self.launches.iter().try_for_each(|launched| launched.start(stream));
        self.executable = Some(Executable::new(&self.device.context, give)?);
        self.is_on_device = AtomicBool::new(false);
        Ok(())
    }

    fn start(&self, stream: &Stream) -> Result<()> {
        match &self.executable {
            Some(executable) => executable.launch(stream),
            None => self.launches.iter().try_for_each(|launched| launched.start(stream)),
        }
    }

    /// True if it was not on the device; now it is to be.
    fn take(&self) -> bool {
        !self.is_on_device.swap(true, Ordering::Acquire)
    }

    /// It is not on the device any more.
    pub fn give_back(&self) {
        self.is_on_device.store(false, Ordering::Release);
    }
}

impl Drop for GraphCopy {
    fn drop(&mut self) {
        // Without a context the driver has freed it.
        let _ = self.device.context.enter();
        self.executable = None;
        let controls = self.launches.iter().map(|launched| launched.control);
        self.device.returned_controls.lock().extend(controls);
    }
}

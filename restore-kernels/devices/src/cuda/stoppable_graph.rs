//! Launches that can stop, several of them made into one of the driver's graphs.
//!
//! A pause tells each launch by its control block where to leave its state, and a graph's launches have the control
//! blocks with which it was made. So there are several copies of a graph, each on the device once at a time.

use std::sync::Arc;

use super::CudaInner;
use super::flight::{Flight, Held, Launches};
use super::graph_copy::GraphCopy;
use super::launch::Plan;
use super::pausing::Pausing;
use super::progress::Progress;
use crate::device::{Launch, Outcome, RunningLaunch};
use crate::error::DeviceError;

/// More copies would take more memory than they are worth: with none free, launches are given one by one.
const MAX_COPIES: usize = 4;

/// A graph.
pub(super) struct StoppableGraph {
    launches: Vec<Launch>,
    copies: Vec<Arc<GraphCopy>>,
}

impl StoppableGraph {
    /// Makes a graph of launches that is to be on the device up to `at_a_time` times at once.
    pub fn new(device: &Arc<CudaInner>, launches: Vec<Launch>, at_a_time: usize) -> Result<Self, DeviceError> {
        let num_copies = at_a_time.clamp(1, MAX_COPIES);
        let copy = || {
            let mut copy = one_by_one(device, &mut device.pausing.lock(), &launches)?;
            copy.make_executable()?;
            Ok(Arc::new(copy))
        };
        let copies = std::iter::repeat_with(copy).take(num_copies);
        Ok(Self {
            copies: copies.collect::<Result<_, DeviceError>>()?,
            launches,
        })
    }

    /// Launches on the queue of this number; while the device is paused, nothing of it is started.
    pub fn launch(
        &self,
        device: &Arc<CudaInner>,
        (queue, progress): (u64, &Arc<Progress>),
        is_watched: bool,
    ) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        device.context.enter()?;
        // Held until it is on its way, so that a pause comes before or after it.
        let mut pausing = device.pausing.lock();
        if pausing.is_paused {
            let launches = self.copies.iter().take(1).flat_map(|copy| &copy.launches);
            let left = launches.map(|launched| launched.plan.left()).collect();
            return Ok(Held::new(Outcome::PausedSteps(left)));
        }
        // Copies come back with them.
        pausing.forget_known_done(queue);
        let copy = match self.copies.iter().find(|copy| copy.take()) {
            Some(copy) => Arc::clone(copy),
            None => Arc::new(one_by_one(device, &mut pausing, &self.launches)?),
        };
        let mut refused = None;
        let given = progress.give_watched(is_watched, |stream| {
            copy.start(stream).or_else(|error| {
                if !copy.is_one_by_one() {
                    return Err(error);
                }
                // Some of them may have been given.
                refused = Some(error);
                Ok(())
            })
        });
        let number = given.inspect_err(|_| copy.give_back())?;
        if let Some(error) = refused {
            progress.refuse(number, error);
        }
        let flight = Flight::new(device, Launches::Graph(copy), progress, number, None);
        pausing.add(queue, Arc::clone(&flight));
        Ok(flight)
    }
}

fn one_by_one(device: &Arc<CudaInner>, pausing: &mut Pausing, launches: &[Launch]) -> Result<GraphCopy, DeviceError> {
    let plans = launches.iter().map(|launch| Plan::new(device, launch));
    let plans = plans.collect::<Result<Vec<_>, DeviceError>>()?;
    Ok(GraphCopy::new(device, plans, || pausing.take_control(device))?)
}

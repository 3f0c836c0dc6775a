//! Graphs of the device of a few lines: launches given one after another.

use std::sync::Arc;

use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_devices::device::{DeviceGraph, InPause, Launch, Outcome, RunningLaunch};

pub struct FakeGraph {
    pub launches: Vec<Launch>,
    pub in_pause: InPause,
}

impl DeviceGraph for FakeGraph {
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

pub struct RunningSteps(pub Vec<Arc<dyn RunningLaunch>>);

impl RunningLaunch for RunningSteps {
    fn is_done(&self) -> bool {
        self.0.iter().all(|step| step.is_done())
    }
    fn wait(&self) -> Outcome {
        let mut left = Vec::new();
        for step in &self.0 {
            match step.wait() {
                Outcome::Finished => left.push(PausedGrid::default()),
                Outcome::Paused(grid) => left.push(grid),
                other => return other,
            }
        }
        if left.iter().all(PausedGrid::is_finished) {
            return Outcome::Finished;
        }
        Outcome::PausedSteps(left)
    }
    fn wait_stopped(&self) {
        self.0.iter().for_each(|step| step.wait_stopped());
    }
}

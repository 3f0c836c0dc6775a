//! Steps in a row made into one of the driver's graphs: the device goes from one to the next by itself, in less time
//! than from one launch to another.

use std::sync::Arc;

use super::CudaInner;
use super::executable::Executable;
use super::graph_copy::StoppableGraph;
use super::opaque::{self, OpaqueCuda};
use super::queue::CudaQueue;
use super::unstoppable;
use crate::device::{DeviceGraph, GraphStep, Launch, LoadedKernel, RunningLaunch};
use crate::error::DeviceError;

/// A graph that can be launched.
enum CudaGraph {
    /// Nothing stops its steps.
    Unstoppable(UnstoppableGraph),
    /// A pause stops each.
    Stoppable(StoppableGraph),
}

struct UnstoppableGraph {
    /// Dropped in the device's context.
    executable: Option<Executable>,
    num_steps: usize,
    /// What it runs stays loaded.
    _kernels: Vec<Arc<dyn LoadedKernel>>,
    device: Arc<CudaInner>,
}

impl DeviceGraph for CudaGraph {
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Drop for UnstoppableGraph {
    fn drop(&mut self) {
        // Without a context the driver has freed it.
        let _ = self.device.context.enter();
        self.executable = None;
    }
}

/// Makes a graph of `steps`, one after another, of which either all can stop or none. If they can, it is to be on the
/// device up to `at_a_time` times at once.
pub(super) fn make(
    device: &Arc<CudaInner>,
    steps: &[GraphStep],
    at_a_time: usize,
) -> Result<Arc<dyn DeviceGraph>, DeviceError> {
    let stoppable: Option<Vec<&Launch>> = steps.iter().map(stoppable).collect();
    if let Some(launches) = stoppable {
        let graph = StoppableGraph::new(device, &launches, at_a_time)?;
        return Ok(Arc::new(CudaGraph::Stoppable(graph)));
    }
    let kernels = steps.iter().filter_map(|step| match step {
        GraphStep::Launch(launch) => Some(Arc::clone(&launch.kernel)),
        GraphStep::Transfer(_) => None,
    });
    let executable = Executable::new(&device.context, |stream| {
        steps.iter().try_for_each(|step| match step {
            // Refuses one that can stop.
            GraphStep::Launch(launch) => opaque::start(stream, launch),
            GraphStep::Transfer(transfer) => stream.transfer(transfer),
        })
    })?;
    Ok(Arc::new(CudaGraph::Unstoppable(UnstoppableGraph {
        executable: Some(executable),
        num_steps: steps.len(),
        _kernels: kernels.collect(),
        device: Arc::clone(device),
    })))
}

fn stoppable(step: &GraphStep) -> Option<&Launch> {
    match step {
        GraphStep::Launch(launch) if !launch.kernel.as_any().is::<OpaqueCuda>() => Some(launch),
        GraphStep::Launch(_) | GraphStep::Transfer(_) => None,
    }
}

/// Launches on a queue; while the device is paused, nothing of it is started.
pub(super) fn launch(
    queue: &CudaQueue,
    graph: &Arc<dyn DeviceGraph>,
    is_watched: bool,
) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
    let elsewhere = || DeviceError::NotBuilt("the graph is another device's".to_owned());
    match graph.as_any().downcast_ref::<CudaGraph>().ok_or_else(elsewhere)? {
        CudaGraph::Stoppable(graph) => graph.launch(queue, is_watched),
        CudaGraph::Unstoppable(graph) => {
            let name = format!("{} steps of a graph", graph.num_steps);
            unstoppable::give(&queue.device, &queue.progress, &name, 1, |progress| {
                progress.give_watched(is_watched, |stream| {
                    graph.executable.as_ref().map_or(Ok(()), |graph| graph.launch(stream))
                })
            })
        }
    }
}

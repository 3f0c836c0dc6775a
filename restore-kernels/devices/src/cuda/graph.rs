//! Steps made into one of the driver's graphs: the device goes from one to the next by itself, in less time than from
//! one launch to another, and does side by side what need not follow one another.

use std::sync::Arc;

use super::CudaInner;
use super::driver;
use super::executable::Executable;
use super::handles::Stream;
use super::launch::{NO_CONTROL, Plan};
use super::opaque::{self, OpaqueCuda};
use super::progress::Progress;
use super::stoppable_graph::StoppableGraph;
use super::unstoppable;
use crate::device::{DeviceGraph, GraphNode, GraphStep, InPause, Launch, LoadedKernel, RunningLaunch, Transfer};
use crate::error::DeviceError;

/// The first driver with the calls by which branches are captured: CUDA 12.3.
const FIRST_WITH_EDGE_DATA: i32 = 12_030;

/// A graph that can be launched.
enum CudaGraph {
    /// A pause waits for it.
    Unstoppable(UnstoppableGraph),
    /// A pause stops each of its launches.
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

/// Makes a graph of `nodes`.
pub(super) fn make(
    device: &Arc<CudaInner>,
    nodes: &[GraphNode],
    in_pause: InPause,
) -> Result<Arc<dyn DeviceGraph>, DeviceError> {
    device.context.enter()?;
    let launches = || {
        nodes.iter().filter_map(|node| match &node.step {
            GraphStep::Launch(launch) => Some(launch),
            GraphStep::Transfer(_) => None,
        })
    };
    if let InPause::Stops { at_a_time } = in_pause {
        let launches: Vec<Launch> = launches().cloned().collect();
        if launches.len() < nodes.len() {
            return Err(DeviceError::NotBuilt("nothing stops a copy".to_owned()));
        }
        let graph = StoppableGraph::new(device, launches, at_a_time)?;
        return Ok(Arc::new(CudaGraph::Stoppable(graph)));
    }
    let starts = nodes.iter().map(|node| Start::new(device, &node.step));
    let starts = starts.collect::<Result<Vec<_>, DeviceError>>()?;
    let has_branches = nodes.iter().zip(0..).any(|(node, place)| !node.is_next(place));
    let executable = if has_branches && driver::cuDriverGetVersion()? >= FIRST_WITH_EDGE_DATA {
        let gives = starts.into_iter().map(|start| |stream: &Stream| start.give(stream));
        let after = nodes.iter().map(|node| node.after.clone());
        Executable::with_branches(&device.context, gives.zip(after))?
    } else {
        Executable::new(&device.context, |stream| {
            starts.into_iter().try_for_each(|start| start.give(stream))
        })?
    };
    Ok(Arc::new(CudaGraph::Unstoppable(UnstoppableGraph {
        executable: Some(executable),
        num_steps: nodes.len(),
        _kernels: launches().map(|launch| Arc::clone(&launch.kernel)).collect(),
        device: Arc::clone(device),
    })))
}

/// What gives a step to a stream.
enum Start<'a> {
    Opaque(&'a Launch),
    ToEnd(Plan),
    Transfer(&'a Transfer),
}

impl<'a> Start<'a> {
    fn new(device: &CudaInner, step: &'a GraphStep) -> Result<Self, DeviceError> {
        Ok(match step {
            GraphStep::Launch(launch) if launch.kernel.as_any().is::<OpaqueCuda>() => Self::Opaque(launch),
            GraphStep::Launch(launch) => Self::ToEnd(Plan::to_end(device, launch)?),
            GraphStep::Transfer(transfer) => Self::Transfer(transfer),
        })
    }

    fn give(self, stream: &Stream) -> driver::Result<()> {
        match self {
            Self::Opaque(launch) => opaque::start(stream, launch),
            Self::ToEnd(plan) => plan.starter(NO_CONTROL)(stream),
            Self::Transfer(transfer) => stream.transfer(transfer),
        }
    }
}

/// Launches on the queue of this number; while the device is paused, nothing of it is started.
pub(super) fn launch(
    device: &Arc<CudaInner>,
    (queue, progress): (u64, &Arc<Progress>),
    graph: &Arc<dyn DeviceGraph>,
    is_watched: bool,
) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
    let elsewhere = || DeviceError::NotBuilt("the graph is another device's".to_owned());
    match graph.as_any().downcast_ref::<CudaGraph>().ok_or_else(elsewhere)? {
        CudaGraph::Stoppable(graph) => graph.launch(device, (queue, progress), is_watched),
        CudaGraph::Unstoppable(graph) => {
            let name = format!("{} steps of a graph", graph.num_steps);
            unstoppable::give(device, progress, &name, 1, |progress| {
                progress.give_watched(is_watched, |stream| {
                    graph.executable.as_ref().map_or(Ok(()), |graph| graph.launch(stream))
                })
            })
        }
    }
}

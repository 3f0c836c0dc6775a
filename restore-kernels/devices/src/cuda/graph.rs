//! What nothing stops, several of it made into one of the driver's graphs: the device goes from one to the next by
//! itself, in less time than from one launch to another.
#![allow(unsafe_code, reason = "driver FFI")]

use std::sync::Arc;

use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUstreamCaptureMode};

use super::CudaInner;
use super::driver::{Result, check};
use super::handles::{Context, Stream};
use super::opaque;
use super::progress::Progress;
use super::unstoppable;
use crate::device::{DeviceGraph, GraphStep, LoadedKernel, RunningLaunch};
use crate::error::DeviceError;

/// A graph that can be launched.
struct CudaGraph {
    executable: CUgraphExec,
    num_steps: usize,
    /// What it runs stays loaded.
    _kernels: Vec<Arc<dyn LoadedKernel>>,
    device: Arc<CudaInner>,
}

// SAFETY: graphs may be used from any thread, and this one is never changed.
unsafe impl Send for CudaGraph {}
// SAFETY: as above; the driver locks, and lets launches of one graph run one after another.
unsafe impl Sync for CudaGraph {}

impl DeviceGraph for CudaGraph {
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if self.device.context.enter().is_ok() {
            // SAFETY: it is not used any more; the driver keeps it for launches under way.
            let _ = unsafe { sys::cuGraphExecDestroy(self.executable) };
        }
    }
}

/// Captured steps.
struct Captured(CUgraph);

impl Drop for Captured {
    fn drop(&mut self) {
        // SAFETY: it is not used any more.
        let _ = unsafe { sys::cuGraphDestroy(self.0) };
    }
}

/// Makes a graph of `steps`, one after another. Each kernel must have been launched before, as the driver may have to
/// wait for all that runs when it loads one.
pub(super) fn make(
    device: &Arc<CudaInner>,
    steps: &[GraphStep],
) -> std::result::Result<Arc<dyn DeviceGraph>, DeviceError> {
    let kernels = steps.iter().filter_map(|step| match step {
        GraphStep::Launch(launch) => Some(Arc::clone(&launch.kernel)),
        GraphStep::Transfer(_) => None,
    });
    Ok(Arc::new(CudaGraph {
        executable: instantiate(&device.context, steps)?,
        num_steps: steps.len(),
        _kernels: kernels.collect(),
        device: Arc::clone(device),
    }))
}

fn instantiate(context: &Context, steps: &[GraphStep]) -> Result<CUgraphExec> {
    context.enter()?;
    let stream = Stream::new(0)?;
    let captured = capture(&stream, steps)?;
    let mut executable = std::ptr::null_mut();
    // SAFETY: a place for a handle, and a graph that lives.
    check("cuGraphInstantiateWithFlags", unsafe {
        sys::cuGraphInstantiateWithFlags(&raw mut executable, captured.0, 0)
    })?;
    // SAFETY: both live. The first launch would do it; that it fails says nothing of launches.
    let _ = unsafe { sys::cuGraphUpload(executable, stream.0) };
    Ok(executable)
}

fn capture(stream: &Stream, steps: &[GraphStep]) -> Result<Captured> {
    // Other threads call the driver meanwhile, and this one may set attributes of kernels.
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream lives, and is this function's own.
    check("cuStreamBeginCapture", unsafe {
        sys::cuStreamBeginCapture_v2(stream.0, mode)
    })?;
    let given = steps.iter().try_for_each(|step| match step {
        GraphStep::Launch(launch) => opaque::start(stream, launch),
        GraphStep::Transfer(transfer) => stream.transfer(transfer),
    });
    let mut graph = std::ptr::null_mut();
    // SAFETY: a place for a handle, and a stream that lives.
    check("cuStreamEndCapture", unsafe {
        sys::cuStreamEndCapture(stream.0, &raw mut graph)
    })?;
    let captured = Captured(graph);
    given.map(|()| captured)
}

/// Launches on a stream of `device`; while the device is paused, nothing of it is started.
pub(super) fn launch(
    device: &Arc<CudaInner>,
    progress: &Arc<Progress>,
    graph: &Arc<dyn DeviceGraph>,
    is_watched: bool,
) -> std::result::Result<Arc<dyn RunningLaunch>, DeviceError> {
    let Some(own) = graph.as_any().downcast_ref::<CudaGraph>() else {
        return Err(DeviceError::NotBuilt("the graph is another device's".to_owned()));
    };
    let name = format!("{} steps of a graph", own.num_steps);
    unstoppable::give(device, progress, &name, 1, |progress| {
        progress.give_watched(is_watched, |stream| {
            // SAFETY: both live.
            check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(own.executable, stream.0) })
        })
    })
}

//! The driver's graphs.
#![allow(unsafe_code, reason = "driver FFI")]

use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUstreamCaptureMode};

use super::driver::{Result, check};
use super::handles::{Context, Stream};

/// A graph that can be launched.
pub(super) struct Executable(CUgraphExec);

// SAFETY: graphs may be used from any thread, and this one is never changed.
unsafe impl Send for Executable {}
// SAFETY: as above; the driver locks, and lets launches of one graph run one after another.
unsafe impl Sync for Executable {}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: it is not used any more; the driver keeps it for launches under way.
        let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
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

impl Executable {
    /// Makes a graph of what `give` gives to a stream. Each kernel must have been launched before, as the driver may
    /// have to wait for all that runs when it loads one.
    pub fn new(context: &Context, give: impl FnOnce(&Stream) -> Result<()>) -> Result<Self> {
        context.enter()?;
        let stream = Stream::new(0)?;
        let captured = capture(&stream, give)?;
        let mut executable = std::ptr::null_mut();
        // SAFETY: a place for a handle, and a graph that lives.
        check("cuGraphInstantiateWithFlags", unsafe {
            sys::cuGraphInstantiateWithFlags(&raw mut executable, captured.0, 0)
        })?;
        // SAFETY: both live. The first launch would do it; that it fails says nothing of launches.
        let _ = unsafe { sys::cuGraphUpload(executable, stream.0) };
        Ok(Self(executable))
    }

    /// Gives it to a stream.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both live.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.0, stream.0) })
    }
}

fn capture(stream: &Stream, give: impl FnOnce(&Stream) -> Result<()>) -> Result<Captured> {
    // Other threads call the driver meanwhile, and this one may set attributes of kernels.
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream lives, and is this function's own.
    check("cuStreamBeginCapture", unsafe {
        sys::cuStreamBeginCapture_v2(stream.0, mode)
    })?;
    let given = give(stream);
    let mut graph = std::ptr::null_mut();
    // SAFETY: a place for a handle, and a stream that lives.
    check("cuStreamEndCapture", unsafe {
        sys::cuStreamEndCapture(stream.0, &raw mut graph)
    })?;
    let captured = Captured(graph);
    given.map(|()| captured)
}

//! The driver's graphs.
#![allow(unsafe_code, reason = "driver FFI")]

use std::ptr::{null, null_mut};

use cudarc::driver::sys::{
    self, CUgraph, CUgraphExec, CUgraphNode, CUstreamCaptureMode, CUstreamCaptureStatus,
    CUstreamUpdateCaptureDependencies_flags,
};

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
    /// Makes a graph of steps, given to a stream by `give`, which come behind these of the earlier ones. As
    /// [`Self::new`].
    pub fn with_branches<G: FnOnce(&Stream) -> Result<()>>(
        context: &Context,
        steps: impl ExactSizeIterator<Item = (G, Vec<usize>)>,
    ) -> Result<Self> {
        Self::new(context, |stream| {
            let mut is_last = vec![true; steps.len()];
            let mut branches = Branches {
                stream,
                ends: Vec::new(),
            };
            for (give, after) in steps {
                branches.add(&after, give)?;
                after.iter().for_each(|&before| is_last[before] = false);
            }
            // The graph's end is that of all its branches.
            let last = is_last
                .iter()
                .enumerate()
                .filter_map(|(place, &is)| is.then_some(place));
            branches.come_behind(&last.collect::<Vec<_>>())
        })
    }

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

/// Steps that are captured in an order of their own.
struct Branches<'a> {
    stream: &'a Stream,
    /// The last nodes that each step has become: what comes after it stands behind these.
    ends: Vec<Vec<CUgraphNode>>,
}

impl Branches<'_> {
    /// Captures what `give` gives to the stream, behind these of the earlier steps.
    fn add(&mut self, after: &[usize], give: impl FnOnce(&Stream) -> Result<()>) -> Result<()> {
        self.come_behind(after)?;
        give(self.stream)?;
        self.ends.push(self.latest()?);
        Ok(())
    }

    /// The stream goes on behind these steps.
    fn come_behind(&self, steps: &[usize]) -> Result<()> {
        let ends = steps.iter().filter_map(|&place| self.ends.get(place));
        let mut nodes: Vec<CUgraphNode> = ends.flatten().copied().collect();
        nodes.sort_unstable();
        nodes.dedup();
        let (instead, plain) = (
            CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES as u32,
            null(),
        );
        // SAFETY: nodes of the graph that this stream captures, as many as said; edges without data.
        check("cuStreamUpdateCaptureDependencies", unsafe {
            sys::cuStreamUpdateCaptureDependencies_v2(self.stream.0, nodes.as_mut_ptr(), plain, nodes.len(), instead)
        })
    }

    /// What the stream's next step would come behind.
    fn latest(&self) -> Result<Vec<CUgraphNode>> {
        let (mut status, mut id, mut graph) = (CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, 0, null_mut());
        let (mut nodes, mut count) = (null(), 0);
        // SAFETY: places for what is asked, and a stream that lives.
        check("cuStreamGetCaptureInfo", unsafe {
            sys::cuStreamGetCaptureInfo_v3(
                self.stream.0,
                &raw mut status,
                &raw mut id,
                &raw mut graph,
                &raw mut nodes,
                null_mut(),
                &raw mut count,
            )
        })?;
        if nodes.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: the driver keeps so many there until the stream is used again.
        Ok(unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec())
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

//! Stream capture, and graphs made by it.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::result::{INVALID_VALUE, SUCCESS, put};

/// Something to be done, as often as the graph is launched.
type Step = Box<dyn Fn() -> u32 + Send>;
pub type Graph = Vec<Step>;

/// A stream that is captured.
#[derive(Default)]
struct Capture {
    steps: Graph,
    /// Nodes that the next step comes behind. A node is the number of steps up to it.
    latest: Vec<usize>,
}

/// All streams that are captured.
static CAPTURED: LazyLock<Mutex<HashMap<u64, Capture>>> = LazyLock::new(Mutex::default);

/// Does `step`, or keeps it for the graph that the stream's work becomes.
pub fn give(stream: u64, step: impl Fn() -> u32 + Send + 'static) -> u32 {
    let mut captured = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner);
    match captured.get_mut(&stream) {
        Some(capture) => {
            capture.steps.push(Box::new(step));
            capture.latest = vec![capture.steps.len()];
            SUCCESS
        }
        None => step(),
    }
}

driver_api! {
    fn cuStreamBeginCapture_v2(stream: u64, _mode: u32) {
        let mut captured = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner);
        captured.insert(stream, Capture::default());
        SUCCESS
    }
    fn cuStreamEndCapture(stream: u64, graph: Option<&mut *mut Graph>) {
        let ended = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner).remove(&stream);
        ended.map_or(INVALID_VALUE, |capture| put(graph, Box::into_raw(Box::new(capture.steps))))
    }
    fn cuStreamGetCaptureInfo_v3(
        stream: u64, status: Option<&mut u32>, _id: *mut u64, _graph: *mut u64, nodes: Option<&mut *const usize>,
        _edges: *mut u64, count: Option<&mut usize>
    ) {
        const ACTIVE: u32 = 1;
        let captured = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(capture) = captured.get(&stream) else { return INVALID_VALUE };
        put(count, capture.latest.len());
        put(nodes, capture.latest.as_ptr());
        put(status, ACTIVE)
    }
    // Steps are done in the order in which they are given: each node must have been.
    fn cuStreamUpdateCaptureDependencies_v2(
        stream: u64, nodes: *const usize, _edges: *const u64, count: usize, _flags: u32
    ) {
        let mut captured = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(capture) = captured.get_mut(&stream) else { return INVALID_VALUE };
        let nodes = match count {
            0 => &[],
            // SAFETY: the caller's nodes, as many as it says.
            _ => unsafe { std::slice::from_raw_parts(nodes, count) },
        };
        if nodes.iter().any(|&node| node == 0 || node > capture.steps.len()) {
            return INVALID_VALUE;
        }
        capture.latest = nodes.to_vec();
        SUCCESS
    }
    // The steps go over to what can be launched: nobody launches two of one graph.
    fn cuGraphInstantiateWithFlags(executable: Option<&mut *mut Graph>, graph: Option<&mut Graph>, _flags: u64) {
        let Some(graph) = graph else { return INVALID_VALUE };
        put(executable, Box::into_raw(Box::new(std::mem::take(graph))))
    }
    fn cuGraphUpload(_executable: Option<&Graph>, _stream: u64) {
        SUCCESS
    }
    fn cuGraphLaunch(executable: Option<&Graph>, _stream: u64) {
        let results = executable.into_iter().flatten().map(|step| step());
        results.max().unwrap_or(SUCCESS)
    }
    fn cuGraphDestroy(graph: *mut Graph) {
        // SAFETY: the caller's graph, which it uses no more.
        drop(unsafe { Box::from_raw(graph) });
        SUCCESS
    }
    fn cuGraphExecDestroy(executable: *mut Graph) {
        // SAFETY: the caller's, which it uses no more.
        drop(unsafe { Box::from_raw(executable) });
        SUCCESS
    }
}

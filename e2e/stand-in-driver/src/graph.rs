//! Stream capture, and graphs made by it.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::result::{INVALID_VALUE, SUCCESS, put};

/// Something to be done, as often as the graph is launched.
type Step = Box<dyn Fn() -> u32 + Send>;
pub type Graph = Vec<Step>;

/// What has been given to streams that are captured.
static CAPTURED: LazyLock<Mutex<HashMap<u64, Graph>>> = LazyLock::new(Mutex::default);

/// Does `step`, or keeps it for the graph that the stream's work becomes.
pub fn give(stream: u64, step: impl Fn() -> u32 + Send + 'static) -> u32 {
    let mut captured = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner);
    match captured.get_mut(&stream) {
        Some(graph) => {
            graph.push(Box::new(step));
            SUCCESS
        }
        None => step(),
    }
}

driver_api! {
    fn cuStreamBeginCapture_v2(stream: u64, _mode: u32) {
        let mut captured = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner);
        captured.insert(stream, Graph::new());
        SUCCESS
    }
    fn cuStreamEndCapture(stream: u64, graph: Option<&mut *mut Graph>) {
        let ended = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner).remove(&stream);
        ended.map_or(INVALID_VALUE, |steps| put(graph, Box::into_raw(Box::new(steps))))
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

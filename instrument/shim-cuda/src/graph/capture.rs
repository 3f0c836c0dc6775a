//! Capture: what streams are given becomes nodes of a graph. Streams that wait for a captured one by an event come into
//! it.
//!
//! # Source
//! CUDA driver API, `cuStreamBeginCapture`, `cuThreadExchangeStreamCaptureMode` and the results 900 to 908. Of the
//! modes, only which thread may end a capture is heeded: calls that others may not make meanwhile are harmless here.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use hetckpt_ring::command::{EventId, StreamId};

use crate::handles::Handle;
use crate::result::{CuResult, Outcome};

use super::node::Graphs;
use super::operation::Operation;

/// `CUstreamCaptureMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `CU_STREAM_CAPTURE_MODE_GLOBAL`.
    Global,
    /// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
    ThreadLocal,
    /// `CU_STREAM_CAPTURE_MODE_RELAXED`: any thread may end it.
    Relaxed,
}

impl Mode {
    /// By number.
    pub fn from_number(number: u32) -> Outcome<Self> {
        match number {
            0 => Ok(Self::Global),
            1 => Ok(Self::ThreadLocal),
            2 => Ok(Self::Relaxed),
            _ => Err(CuResult::INVALID_VALUE),
        }
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self as u32
    }
}

/// A stream as the program names it.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Number in the ring.
    pub id: StreamId,
    /// It joins with the legacy default stream.
    pub is_blocking: bool,
}

/// What a program is told of a capture.
#[derive(Clone, Debug)]
pub struct Told {
    /// False: it has been spoiled.
    pub is_valid: bool,
    /// Its number.
    pub id: u64,
    /// Its graph.
    pub graph: Handle,
    /// What comes before the next node of the stream: address of an array of handles that stays as it is until the
    /// stream is given something, and its length.
    pub after: (u64, usize),
}

/// All captures.
#[derive(Debug, Default)]
pub struct Captures {
    /// How many there are: mostly none.
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    captures: Vec<Capture>,
    last_id: u64,
}

#[derive(Debug)]
struct Capture {
    id: u64,
    graph: Handle,
    /// It makes nodes in a graph that the program had before.
    is_given_graph: bool,
    origin: StreamId,
    mode: Mode,
    thread: ThreadId,
    is_valid: bool,
    streams: FxHashMap<StreamId, Captured>,
    /// Events recorded in it: behind which nodes.
    events: FxHashMap<EventId, Vec<Handle>>,
}

#[derive(Debug)]
struct Captured {
    is_blocking: bool,
    /// Nodes that the next one comes behind.
    after: Vec<Handle>,
}

impl Captures {
    fn is_idle(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Begins one in `stream`: in a graph of its own, or in `graph` behind some of its nodes.
    pub fn begin(&self, graphs: &Graphs, stream: Named, mode: Mode, graph: Option<(Handle, Vec<Handle>)>) -> Outcome {
        if stream.id == StreamId::LEGACY_DEFAULT {
            return Err(CuResult::STREAM_CAPTURE_UNSUPPORTED);
        }
        let mut state = self.state.lock();
        if state.of_stream(stream.id).is_some() {
            return Err(CuResult::ILLEGAL_STATE);
        }
        let is_given_graph = graph.is_some();
        let (graph, after) = match graph {
            Some((graph, after)) => {
                graphs.find(graph)?.lock().check_nodes(&after)?;
                (graph, after)
            }
            None => (graphs.create(), Vec::new()),
        };
        state.last_id += 1;
        let captured = Captured {
            is_blocking: stream.is_blocking,
            after,
        };
        let capture = Capture {
            id: state.last_id,
            graph,
            is_given_graph,
            origin: stream.id,
            mode,
            thread: std::thread::current().id(),
            is_valid: true,
            streams: FxHashMap::from_iter([(stream.id, captured)]),
            events: FxHashMap::default(),
        };
        state.captures.push(capture);
        self.count.store(state.captures.len(), Ordering::Release);
        Ok(())
    }

    /// Ends the one that began in `stream`; gives its graph.
    pub fn end(&self, graphs: &Graphs, stream: StreamId) -> Outcome<Handle> {
        let mut state = self.state.lock();
        let at = state.captures.iter().position(|c| c.streams.contains_key(&stream));
        let at = at.ok_or(CuResult::ILLEGAL_STATE)?;
        let found = &state.captures[at];
        if found.origin != stream {
            return Err(CuResult::STREAM_CAPTURE_UNMATCHED);
        }
        if found.mode != Mode::Relaxed && found.thread != std::thread::current().id() {
            return Err(CuResult::STREAM_CAPTURE_WRONG_THREAD);
        }
        let capture = state.captures.swap_remove(at);
        self.count.store(state.captures.len(), Ordering::Release);
        drop(state);
        let result = match (capture.is_valid, capture.is_joined(graphs)) {
            (false, _) => Err(CuResult::STREAM_CAPTURE_INVALIDATED),
            (true, false) => Err(CuResult::STREAM_CAPTURE_UNJOINED),
            (true, true) => Ok(capture.graph),
        };
        if result.is_err() && !capture.is_given_graph {
            graphs.destroy(capture.graph)?;
        }
        result
    }

    /// If `stream` is captured: what `make` makes becomes a node, and what that comes to. `None`: it is to be done.
    pub fn record(
        &self,
        graphs: &Graphs,
        stream: StreamId,
        make: impl FnOnce() -> Outcome<Operation>,
    ) -> Option<Outcome> {
        if self.is_idle() {
            return None;
        }
        let mut state = self.state.lock();
        if let Err(implicit) = state.check_legacy(stream) {
            return Some(Err(implicit));
        }
        let capture = state.of_stream(stream)?;
        if !capture.is_valid {
            return Some(Err(CuResult::STREAM_CAPTURE_INVALIDATED));
        }
        let graph = capture.graph;
        let captured = capture.streams.get_mut(&stream)?;
        let after = captured.after.clone();
        let made = make().and_then(|operation| graphs.add(graph, operation, after));
        Some(made.map(|node| captured.after = vec![node]))
    }

    /// The same for what cannot be captured: it spoils the capture.
    pub fn refuse(&self, stream: StreamId) -> Outcome {
        if self.is_idle() {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.check_legacy(stream)?;
        match state.of_stream(stream) {
            None => Ok(()),
            Some(capture) => {
                capture.is_valid = false;
                Err(CuResult::STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// The same for what concerns all streams: it spoils the captures of this thread.
    pub fn refuse_all(&self) -> Outcome {
        if self.is_idle() {
            return Ok(());
        }
        let mut state = self.state.lock();
        let mine = std::thread::current().id();
        let mut result = Ok(());
        for capture in state.captures.iter_mut().filter(|capture| capture.thread == mine) {
            capture.is_valid = false;
            result = Err(CuResult::STREAM_CAPTURE_UNSUPPORTED);
        }
        result
    }

    /// An event is recorded in `stream`. True if that is captured; else it is to be done.
    pub fn record_event(&self, event: EventId, stream: StreamId) -> Outcome<bool> {
        if self.is_idle() {
            return Ok(false);
        }
        let mut state = self.state.lock();
        state.check_legacy(stream)?;
        for capture in &mut state.captures {
            capture.events.remove(&event);
        }
        let Some(capture) = state.of_stream(stream) else {
            return Ok(false);
        };
        let captured = capture.streams.get(&stream);
        let after = captured.map(|captured| captured.after.clone()).unwrap_or_default();
        capture.events.insert(event, after);
        Ok(true)
    }

    /// `stream` is to wait for an event. True if that is captured; else it is to be done.
    pub fn wait_event(&self, stream: Named, event: EventId) -> Outcome<bool> {
        if self.is_idle() {
            return Ok(false);
        }
        let mut state = self.state.lock();
        let mine = state.captures.iter().position(|c| c.streams.contains_key(&stream.id));
        let its = state.captures.iter().position(|c| c.events.contains_key(&event));
        let (at, result) = match (mine, its) {
            (None, None) => {
                state.check_legacy(stream.id)?;
                return Ok(false);
            }
            (Some(mine), None) => (mine, CuResult::STREAM_CAPTURE_ISOLATION),
            (Some(mine), Some(its)) if mine != its => {
                state.captures[its].is_valid = false;
                (mine, CuResult::STREAM_CAPTURE_MERGE)
            }
            (_, Some(its)) if stream.id == StreamId::LEGACY_DEFAULT => (its, CuResult::STREAM_CAPTURE_IMPLICIT),
            (_, Some(its)) => {
                state.captures[its].join(stream, event);
                return Ok(true);
            }
        };
        state.captures[at].is_valid = false;
        Err(result)
    }

    /// That an event is none of a capture's: those cannot be asked about.
    pub fn check_event(&self, event: EventId) -> Outcome {
        if self.is_idle() {
            return Ok(());
        }
        let mut state = self.state.lock();
        match state.captures.iter_mut().find(|c| c.events.contains_key(&event)) {
            None => Ok(()),
            Some(capture) => {
                capture.is_valid = false;
                Err(CuResult::CAPTURED_EVENT)
            }
        }
    }

    /// What there is to tell of the capture of `stream`.
    pub fn tell(&self, stream: StreamId) -> Outcome<Option<Told>> {
        if self.is_idle() {
            return Ok(None);
        }
        let mut state = self.state.lock();
        state.check_legacy(stream)?;
        let Some(capture) = state.of_stream(stream) else {
            return Ok(None);
        };
        let after = capture.streams.get(&stream).map_or(&[][..], |captured| &captured.after);
        Ok(Some(Told {
            is_valid: capture.is_valid,
            id: capture.id,
            graph: capture.graph,
            after: (after.as_ptr().expose_provenance() as u64, after.len()),
        }))
    }

    /// Changes what the next node of `stream` comes behind: these too, or these alone.
    pub fn set_after(&self, graphs: &Graphs, stream: StreamId, nodes: &[Handle], alone: bool) -> Outcome {
        let mut state = self.state.lock();
        let capture = state.of_stream(stream).ok_or(CuResult::ILLEGAL_STATE)?;
        graphs.find(capture.graph)?.lock().check_nodes(nodes)?;
        let captured = capture.streams.get_mut(&stream).ok_or(CuResult::ILLEGAL_STATE)?;
        if alone {
            captured.after.clear();
        }
        captured.come_behind(nodes);
        Ok(())
    }
}

impl State {
    fn of_stream(&mut self, stream: StreamId) -> Option<&mut Capture> {
        self.captures.iter_mut().find(|c| c.streams.contains_key(&stream))
    }

    /// What the legacy default stream is given would come behind captured streams that join with it.
    fn check_legacy(&mut self, stream: StreamId) -> Outcome {
        if stream != StreamId::LEGACY_DEFAULT {
            return Ok(());
        }
        let mut result = Ok(());
        for capture in &mut self.captures {
            if capture.streams.values().any(|captured| captured.is_blocking) {
                capture.is_valid = false;
                result = Err(CuResult::STREAM_CAPTURE_IMPLICIT);
            }
        }
        result
    }
}

impl Capture {
    fn join(&mut self, stream: Named, event: EventId) {
        let behind = self.events.get(&event).cloned().unwrap_or_default();
        let new = || Captured {
            is_blocking: stream.is_blocking,
            after: Vec::new(),
        };
        self.streams.entry(stream.id).or_insert_with(new).come_behind(&behind);
    }

    /// True if the stream that it began in comes behind all that the others have been given.
    fn is_joined(&self, graphs: &Graphs) -> bool {
        let Ok(graph) = graphs.find(self.graph) else {
            return false;
        };
        let before = self
            .streams
            .get(&self.origin)
            .map_or(&[][..], |captured| &captured.after);
        let before = graph.lock().up_to(before);
        let mut ends = self.streams.values().flat_map(|captured| &captured.after);
        ends.all(|node| before.contains(&node.0))
    }
}

impl Captured {
    fn come_behind(&mut self, nodes: &[Handle]) {
        for node in nodes {
            if !self.after.contains(node) {
                self.after.push(*node);
            }
        }
    }
}

//! Events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hetckpt_ring::command::{Command, DeviceIndex, EventId};
use hetckpt_ring::reply::Reply;

use crate::graph::operation::Operation;
use crate::guard::Current;
use crate::handles::Handle;
use crate::objects::Event;
use crate::pointers::Out;
use crate::result::{CuResult, Outcome};
use crate::session::Session;

entry_points! {
    context cuEventCreate "cuEventCreate" 2000 (event: Out<Handle>, flags: u32) => create;
    context cuEventDestroy_v2 "cuEventDestroy" 4000 (event: Handle) => destroy;
    context cuEventRecord "cuEventRecord" 2000 (event: Handle, stream: Handle) => record, cuEventRecord_ptsz 7000;
    context cuEventRecordWithFlags "cuEventRecordWithFlags" 11010
        (event: Handle, stream: Handle, flags: u32) => record_with_flags, cuEventRecordWithFlags_ptsz 11010;
    context cuEventQuery "cuEventQuery" 2000 (event: Handle) => query;
    context cuEventSynchronize "cuEventSynchronize" 2000 (event: Handle) => synchronize;
    context cuEventElapsedTime "cuEventElapsedTime" 2000 (ms: Out<f32>, start: Handle, end: Handle) => elapsed;
    context cuEventElapsedTime_v2 "cuEventElapsedTime" 12080 (ms: Out<f32>, start: Handle, end: Handle) => elapsed;
}

const FLAG_BLOCKING_SYNC: u32 = 1;
const FLAG_DISABLE_TIMING: u32 = 2;

/// An event by handle.
pub fn find(session: &Session, event: Handle) -> Outcome<Arc<Event>> {
    let found = session
        .events
        .get(event)
        .filter(|event| event.generation == session.device.generation());
    found.ok_or(CuResult::INVALID_HANDLE)
}

fn create(current: Current, event: Out<Handle>, flags: u32) -> Outcome {
    if event.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    if flags & !(FLAG_BLOCKING_SYNC | FLAG_DISABLE_TIMING) != 0 {
        // The remaining flag is for events shared between processes.
        return Err(CuResult::NOT_SUPPORTED);
    }
    let session = current.session;
    let id = EventId(session.device.next_id());
    let timing = flags & FLAG_DISABLE_TIMING == 0;
    session.device.send(Command::EventCreate {
        event: id,
        device: DeviceIndex::FIRST,
        timing,
    })?;
    let made = Event {
        id,
        timing,
        is_recorded: AtomicBool::new(false),
        generation: session.device.generation(),
    };
    event.set(session.events.insert(Arc::new(made)))
}

fn destroy(current: Current, event: Handle) -> Outcome {
    let gone = current.session.events.remove(event).ok_or(CuResult::INVALID_HANDLE)?;
    current.session.device.send(Command::EventDestroy { event: gone.id })
}

fn record(current: Current, event: Handle, stream: Handle) -> Outcome {
    record_with_flags(current, event, stream, 0)
}

/// External: a node of the graph, if the stream is captured.
fn record_with_flags(current: Current, event: Handle, stream: Handle, flags: u32) -> Outcome {
    const EXTERNAL: u32 = 1;
    let session = current.session;
    let stream = current.stream(stream)?;
    let handle = event;
    let event = find(session, event)?;
    let id = event.id;
    if flags & EXTERNAL != 0 {
        let node = || Ok(Operation::RecordEvent { event: handle, id });
        if let Some(captured) = session.captures.record(&session.graphs, stream, node) {
            event.is_recorded.store(true, Ordering::Relaxed);
            return captured;
        }
    } else if session.captures.record_event(id, stream)? {
        return Ok(());
    }
    event.is_recorded.store(true, Ordering::Relaxed);
    current.session.device.send(Command::EventRecord {
        event: event.id,
        stream,
    })
}

fn query(current: Current, event: Handle) -> Outcome {
    let event = find(current.session, event)?;
    current.session.captures.check_event(event.id)?;
    if !event.is_recorded.load(Ordering::Relaxed) {
        return Ok(());
    }
    current
        .session
        .call(Command::EventQuery { event: event.id })
        .map(|_| ())
}

fn synchronize(current: Current, event: Handle) -> Outcome {
    let event = find(current.session, event)?;
    current.session.captures.check_event(event.id)?;
    if !event.is_recorded.load(Ordering::Relaxed) {
        return Ok(());
    }
    current
        .session
        .call(Command::EventSynchronize { event: event.id })
        .map(|_| ())
}

fn elapsed(current: Current, ms: Out<f32>, start: Handle, end: Handle) -> Outcome {
    let (start, end) = (find(current.session, start)?, find(current.session, end)?);
    let is_usable = |event: &Event| event.timing && event.is_recorded.load(Ordering::Relaxed);
    if !is_usable(&start) || !is_usable(&end) {
        return Err(CuResult::INVALID_HANDLE);
    }
    match current.session.call(Command::EventElapsed {
        start: start.id,
        end: end.id,
    })? {
        Reply::Milliseconds(elapsed) => ms.set(elapsed),
        _ => Err(CuResult::UNKNOWN),
    }
}

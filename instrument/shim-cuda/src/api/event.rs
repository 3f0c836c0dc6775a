//! Events.

use std::sync::Arc;

use hetckpt_ring::command::{Command, DeviceIndex, EventId};
use hetckpt_ring::reply::Reply;

use crate::event::{Event, Records};
use crate::graph::operation::Operation;
use crate::guard::Current;
use crate::handles::Handle;
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
    let made = Event::new(id, timing, session.device.generation());
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
            event.recordings.by_graph();
            return captured;
        }
    } else if session.captures.record_event(id, stream)? {
        return Ok(());
    }
    current.session.device.send(Command::EventRecord {
        event: event.id,
        stream,
    })?;
    event.recordings.add();
    Ok(())
}

fn query(current: Current, event: Handle) -> Outcome {
    let event = find(current.session, event)?;
    current.session.captures.check_event(event.id)?;
    if !event.recordings.is_any() {
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
    if !event.recordings.is_any() {
        return Ok(());
    }
    let start = event.time.start_to_ask_for();
    let Some((start, records)) = start.and_then(|start| Records::latest(&start, &event).map(|at| (start, at))) else {
        let wait = Command::EventSynchronize { event: event.id };
        return current.session.call(wait).map(|_| ());
    };
    let answer = current.session.call(Command::EventSynchronizeElapsed {
        start: start.id,
        end: event.id,
    })?;
    if let Reply::Milliseconds(ms) = answer {
        event.time.tell(&start, records, ms);
    }
    Ok(())
}

fn elapsed(current: Current, ms: Out<f32>, start: Handle, end: Handle) -> Outcome {
    let (start, end) = (find(current.session, start)?, find(current.session, end)?);
    let is_usable = |event: &Event| event.timing && event.recordings.is_any();
    if !is_usable(&start) || !is_usable(&end) {
        return Err(CuResult::INVALID_HANDLE);
    }
    if let Some(known) = end.time.take(&start, Records::latest(&start, &end)) {
        return ms.set(known);
    }
    match current.session.call(Command::EventElapsed {
        start: start.id,
        end: end.id,
    })? {
        Reply::Milliseconds(elapsed) => ms.set(elapsed),
        _ => Err(CuResult::UNKNOWN),
    }
}

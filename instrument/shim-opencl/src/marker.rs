//! Markers and barriers.

use crate::handles::{self, Handle};
use crate::pointers::{In, Out};
use crate::queue::{Queue, Waits, enqueue};
use crate::status::{Outcome, Status};
use crate::worker::Work;

entry_points! {
    status clEnqueueMarkerWithWaitList
        (queue: Handle, num_waits: u32, waits: In<Handle>, event: Out<Handle>) => marker;
    status clEnqueueBarrierWithWaitList
        (queue: Handle, num_waits: u32, waits: In<Handle>, event: Out<Handle>) => barrier;
    status clEnqueueMarker(queue: Handle, event: Out<Handle>) => plain_marker;
    status clEnqueueBarrier(queue: Handle) => plain_barrier;
    status clEnqueueWaitForEvents(queue: Handle, num_waits: u32, waits: In<Handle>) => wait_for_events;
}

const COMMAND_MARKER: u32 = 0x11FE;
const COMMAND_BARRIER: u32 = 0x1205;

fn point(queue: Handle, (count, events): (u32, In<Handle>), event: Out<Handle>, work: Work) -> Outcome {
    let queue = handles::get::<Queue>(queue)?;
    let command_type = if matches!(work, Work::Barrier) {
        COMMAND_BARRIER
    } else {
        COMMAND_MARKER
    };
    let waits = Waits {
        count,
        events,
        event,
        is_blocking: false,
    };
    enqueue(&queue, waits, command_type, work)
}

fn marker(queue: Handle, num_waits: u32, events: In<Handle>, event: Out<Handle>) -> Outcome {
    point(queue, (num_waits, events), event, Work::Marker)
}

fn barrier(queue: Handle, num_waits: u32, events: In<Handle>, event: Out<Handle>) -> Outcome {
    point(queue, (num_waits, events), event, Work::Barrier)
}

/// Of OpenCL 1.1, as the two below.
fn plain_marker(queue: Handle, event: Out<Handle>) -> Outcome {
    if event.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    point(queue, (0, In::none()), event, Work::Marker)
}

fn plain_barrier(queue: Handle) -> Outcome {
    point(queue, (0, In::none()), Out::none(), Work::Barrier)
}

fn wait_for_events(queue: Handle, num_waits: u32, events: In<Handle>) -> Outcome {
    if num_waits == 0 || events.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    let invalid = |status| match status {
        Status::INVALID_EVENT_WAIT_LIST => Status::INVALID_EVENT,
        other => other,
    };
    point(queue, (num_waits, events), Out::none(), Work::Barrier).map_err(invalid)
}

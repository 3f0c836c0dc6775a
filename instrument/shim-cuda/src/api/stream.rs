//! Streams.

use std::sync::Arc;

use hetckpt_ring::command::{Command, DeviceIndex, StreamFlags, StreamId};

use crate::graph::capture::Named;
use crate::graph::operation::Operation;
use crate::guard::Current;
use crate::handles::Handle;
use crate::host_functions::{HostFunction, StreamCallback};
use crate::objects::Stream;
use crate::pointers::Out;
use crate::result::{CuResult, Outcome};

use super::context::GREATEST_PRIORITY;

entry_points! {
    context cuStreamCreate "cuStreamCreate" 2000 (stream: Out<Handle>, flags: u32) => create;
    context cuStreamCreateWithPriority "cuStreamCreateWithPriority" 5050
        (stream: Out<Handle>, flags: u32, priority: i32) => create_with_priority;
    context cuStreamDestroy_v2 "cuStreamDestroy" 4000 (stream: Handle) => destroy;
    context cuStreamSynchronize "cuStreamSynchronize" 2000 (stream: Handle) => synchronize, cuStreamSynchronize_ptsz 7000;
    context cuStreamQuery "cuStreamQuery" 2000 (stream: Handle) => query, cuStreamQuery_ptsz 7000;
    context cuStreamWaitEvent "cuStreamWaitEvent" 3020
        (stream: Handle, event: Handle, flags: u32) => wait_event, cuStreamWaitEvent_ptsz 7000;
    context cuStreamAddCallback "cuStreamAddCallback" 5000
        (stream: Handle, callback: Option<StreamCallback>, argument: u64, flags: u32) => add_callback, cuStreamAddCallback_ptsz 7000;
    context cuStreamGetPriority "cuStreamGetPriority" 5050
        (stream: Handle, priority: Out<i32>) => get_priority, cuStreamGetPriority_ptsz 7000;
    context cuStreamGetFlags "cuStreamGetFlags" 5050
        (stream: Handle, flags: Out<u32>) => get_flags, cuStreamGetFlags_ptsz 7000;
    context cuStreamGetCtx "cuStreamGetCtx" 9020
        (stream: Handle, context: Out<Handle>) => get_context, cuStreamGetCtx_ptsz 9020;
    context cuStreamGetCtx_v2 "cuStreamGetCtx" 12050
        (stream: Handle, context: Out<Handle>, green: Out<Handle>) => get_contexts, cuStreamGetCtx_v2_ptsz 12050;
    context cuStreamGetDevice "cuStreamGetDevice" 12080
        (stream: Handle, device: Out<i32>) => get_device, cuStreamGetDevice_ptsz 12080;
    context cuStreamGetGreenCtx "cuStreamGetGreenCtx" 12040 (stream: Handle, context: Out<Handle>) => get_green_context;
    context cuStreamGetId "cuStreamGetId" 12000 (stream: Handle, id: Out<u64>) => get_id, cuStreamGetId_ptsz 12000;
}

const FLAG_NON_BLOCKING: u32 = 1;

/// There are no green contexts here, so no stream is of one.
fn get_green_context(current: Current, stream: Handle, context: Out<Handle>) -> Outcome {
    current.stream(stream)?;
    context.set(Handle::NULL)
}

fn create(current: Current, stream: Out<Handle>, flags: u32) -> Outcome {
    create_with_priority(current, stream, flags, 0)
}

fn create_with_priority(current: Current, stream: Out<Handle>, flags: u32, priority: i32) -> Outcome {
    if flags & !FLAG_NON_BLOCKING != 0 || stream.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    let session = current.session;
    let priority = priority.clamp(GREATEST_PRIORITY, 0);
    let id = StreamId(session.device.next_id());
    let ring_flags = StreamFlags {
        non_blocking: flags & FLAG_NON_BLOCKING != 0,
        priority,
    };
    session.device.send(Command::StreamCreate {
        device: DeviceIndex::FIRST,
        stream: id,
        flags: ring_flags,
    })?;
    let made = Stream {
        id,
        flags,
        priority,
        context: current.context,
        generation: session.device.generation(),
    };
    stream.set(session.streams.insert(Arc::new(made)))
}

/// What is queued still runs to its end.
fn destroy(current: Current, stream: Handle) -> Outcome {
    let gone = current.session.streams.remove(stream).ok_or(CuResult::INVALID_HANDLE)?;
    current.session.stream_attributes.lock().remove(&gone.id);
    current.session.device.send(Command::StreamDestroy { stream: gone.id })
}

fn synchronize(current: Current, stream: Handle) -> Outcome {
    let stream = current.stream(stream)?;
    current.session.captures.refuse(stream)?;
    current.session.call(Command::StreamSynchronize { stream }).map(|_| ())
}

fn query(current: Current, stream: Handle) -> Outcome {
    let stream = current.stream(stream)?;
    current.session.captures.refuse(stream)?;
    current.session.call(Command::StreamQuery { stream }).map(|_| ())
}

/// External: a node of the graph, if the stream is captured.
fn wait_event(current: Current, stream: Handle, event: Handle, flags: u32) -> Outcome {
    const EXTERNAL: u32 = 1;
    let session = current.session;
    let named = named(&current, stream)?;
    let id = super::event::find(session, event)?.id;
    if flags & EXTERNAL != 0 {
        let node = || Ok(Operation::WaitEvent { event, id });
        if let Some(captured) = session.captures.record(&session.graphs, named.id, node) {
            return captured;
        }
    } else if session.captures.wait_event(named, id)? {
        return Ok(());
    }
    session.device.send(Command::StreamWaitEvent {
        stream: named.id,
        event: id,
    })
}

/// A stream as captures know it.
pub fn named(current: &Current, stream: Handle) -> Outcome<Named> {
    let is_blocking = object(current, stream)?.is_none_or(|stream| stream.flags & FLAG_NON_BLOCKING == 0);
    let id = current.stream(stream)?;
    Ok(Named { id, is_blocking })
}

fn add_callback(
    current: Current,
    stream: Handle,
    callback: Option<StreamCallback>,
    argument: u64,
    flags: u32,
) -> Outcome {
    let id = current.stream(stream)?;
    let callback = callback.filter(|_| flags == 0).ok_or(CuResult::INVALID_VALUE)?;
    current.session.captures.refuse(id)?;
    current.session.host_functions.enqueue(
        &current.session.device,
        id,
        HostFunction::Callback(callback, stream, argument as usize),
    )
}

/// The object of a stream that the program made; `None` for a default stream.
fn object(current: &Current, stream: Handle) -> Outcome<Option<Arc<Stream>>> {
    current.stream(stream)?;
    Ok(current.session.streams.get(stream))
}

fn get_priority(current: Current, stream: Handle, priority: Out<i32>) -> Outcome {
    priority.set(priority_of(&current, stream)?)
}

/// Its priority, 0 for a default stream.
pub fn priority_of(current: &Current, stream: Handle) -> Outcome<i32> {
    Ok(object(current, stream)?.map_or(0, |stream| stream.priority))
}

fn get_flags(current: Current, stream: Handle, flags: Out<u32>) -> Outcome {
    flags.set(object(&current, stream)?.map_or(0, |stream| stream.flags))
}

fn get_context(current: Current, stream: Handle, context: Out<Handle>) -> Outcome {
    context.set(object(&current, stream)?.map_or(current.context, |stream| stream.context))
}

/// Its context, and that there is no green one.
fn get_contexts(current: Current, stream: Handle, context: Out<Handle>, green: Out<Handle>) -> Outcome {
    get_context(current, stream, context)?;
    green.set_if_wanted(Handle::NULL);
    Ok(())
}

fn get_device(current: Current, stream: Handle, device: Out<i32>) -> Outcome {
    current.stream(stream)?;
    device.set(0)
}

fn get_id(current: Current, stream: Handle, id: Out<u64>) -> Outcome {
    id.set(current.stream(stream)?.0)
}

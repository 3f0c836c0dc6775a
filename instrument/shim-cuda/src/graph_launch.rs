//! Giving graphs to streams.

use std::sync::Arc;

use hetckpt_ring::command::{Command, DeviceIndex, EventId, StreamId};
use hetckpt_ring::graph_part;

use crate::copy_params::{Copy3D, Transfer};
use crate::graph::executable::{Executable, Given, Step};
use crate::graph::operation::Operation;
use crate::guard::Current;
use crate::result::Outcome;
use crate::session::Session;
use crate::transfer::{self, Mode};

/// Launches an executable graph.
pub fn launch(current: &Current, executable: &mut Executable, stream: StreamId) -> Outcome {
    // No other graph comes between the steps of this one.
    let _launching = current.session.graph_launch.lock();
    if let Some(latest) = executable.begin_launch(stream) {
        come_behind(current.session, latest, stream)?;
    }
    let graph = executable.id;
    let given = executable.given(|steps| divide(current.session, steps))?;
    for (given, part) in given.iter().zip(0..) {
        match given {
            Given::Operation(operation) => give_operation(current, stream, operation)?,
            Given::Part(steps) => current.session.device.send(Command::GraphPart {
                stream,
                graph,
                part,
                steps: Arc::clone(steps),
            })?,
        }
    }
    Ok(())
}

/// Has `stream` wait for all that is in `latest` now.
fn come_behind(session: &Session, latest: StreamId, stream: StreamId) -> Outcome {
    let device = DeviceIndex::FIRST;
    let mut is_there = latest == StreamId::LEGACY_DEFAULT;
    session.streams.for_each(|known| is_there |= known.id == latest);
    if !is_there {
        // It runs on without a name by which it could be waited for, or is a thread's own.
        return session.call(Command::Synchronize { device }).map(|_| ());
    }
    let event = EventId(session.device.next_id());
    session.device.send(Command::EventCreate {
        event,
        device,
        timing: false,
    })?;
    session.device.send(Command::EventRecord { event, stream: latest })?;
    session.device.send(Command::StreamWaitEvent { stream, event })?;
    session.device.send(Command::EventDestroy { event })
}

/// Divides steps into parts, as long as there can be, and what can be in none.
fn divide(session: &Session, steps: &[Step]) -> Outcome<Vec<Given>> {
    let mut given = Vec::new();
    let mut commands = Vec::new();
    collect(session, steps, &mut commands, &mut given)?;
    end_parts(session, &mut commands, &mut given)?;
    Ok(given)
}

fn collect(session: &Session, steps: &[Step], commands: &mut Vec<Command>, given: &mut Vec<Given>) -> Outcome {
    for step in steps.iter().filter(|step| step.is_enabled) {
        match &step.operation {
            // What another graph does stands behind it.
            Operation::Empty | Operation::Graph(_) => collect(session, &step.inner, commands, given)?,
            operation => match commands_of(session, operation)? {
                Some(more) => commands.extend(more),
                None => {
                    end_parts(session, commands, given)?;
                    given.push(Given::Operation(operation.clone()));
                }
            },
        }
    }
    Ok(())
}

/// What the server is to do for an operation, in the stream's order; `None` if the application has a part in it.
fn commands_of(session: &Session, operation: &Operation) -> Outcome<Option<Vec<Command>>> {
    // Where they are launched is not known yet.
    let stream = StreamId::LEGACY_DEFAULT;
    match operation {
        Operation::Launch(launch) => Ok(Some(vec![launch.clone().into_command(stream)])),
        &Operation::Fill { dst, value } => Ok(Some(vec![Command::Fill { stream, dst, value }])),
        Operation::Copy(copy) => {
            let transfers = copy.transfers().collect::<Outcome<Vec<Transfer>>>()?;
            let copies = transfers.iter().filter(|transfer| !transfer.is_empty());
            copies.map(|copy| transfer::queued(session, copy, stream)).collect()
        }
        _ => Ok(None),
    }
}

fn end_parts(session: &Session, commands: &mut Vec<Command>, given: &mut Vec<Given>) -> Outcome {
    let parts = graph_part::encode(commands.drain(..)).map_err(|error| session.device.broken(&error))?;
    given.extend(parts.into_iter().map(Given::Part));
    Ok(())
}

fn give_operation(current: &Current, stream: StreamId, operation: &Operation) -> Outcome {
    let session = current.session;
    match operation {
        Operation::Empty | Operation::Graph(_) => Ok(()),
        // The memory is always there; what changes is whether the program still has it when the graph is gone.
        &Operation::Allocate { addr, .. } => mark(session, addr, true),
        &Operation::Free { addr } => mark(session, addr, false),
        Operation::Launch(launch) => session.device.send(launch.clone().into_command(stream)),
        Operation::Copy(copy) => give_copy(current, copy, stream),
        &Operation::Fill { dst, value } => session.device.send(Command::Fill { stream, dst, value }),
        &Operation::HostFunction(function) => session.host_functions.enqueue(&session.device, stream, function),
        &Operation::RecordEvent { id: event, .. } => session.device.send(Command::EventRecord { event, stream }),
        &Operation::WaitEvent { id: event, .. } => session.device.send(Command::StreamWaitEvent { stream, event }),
    }
}

fn mark(session: &Session, addr: u64, is_allocated: bool) -> Outcome {
    session.device.memory().mark_graph(addr, is_allocated);
    Ok(())
}

/// The program's own memory, which the device does not reach, is copied from or to in this call. What comes before in
/// the graph may be what fills or reads it.
fn give_copy(current: &Current, copy: &Copy3D, stream: StreamId) -> Outcome {
    for transfer in copy.transfers() {
        let transfer = transfer?;
        let mode = if transfer.is_empty() || transfer::queued(current.session, &transfer, stream)?.is_some() {
            Mode::Async
        } else {
            current.session.call(Command::StreamSynchronize { stream })?;
            Mode::Sync
        };
        transfer::run(current, transfer, stream, mode)?;
    }
    Ok(())
}

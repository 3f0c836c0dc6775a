//! Giving graphs to streams.

use hetckpt_ring::command::{Command, DeviceIndex, EventId, StreamId};

use crate::copy_params::Copy3D;
use crate::graph::executable::{Executable, Step};
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
    give(current, stream, &executable.steps)
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

fn give(current: &Current, stream: StreamId, steps: &[Step]) -> Outcome {
    for step in steps.iter().filter(|step| step.is_enabled) {
        give_operation(current, stream, &step.operation)?;
        give(current, stream, &step.inner)?;
    }
    Ok(())
}

fn give_operation(current: &Current, stream: StreamId, operation: &Operation) -> Outcome {
    let session = current.session;
    match operation {
        // What another graph does stands behind it.
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
        let mode = if transfer::is_queued(current.session, &transfer)? {
            Mode::Async
        } else {
            current.session.call(Command::StreamSynchronize { stream })?;
            Mode::Sync
        };
        transfer::run(current, transfer, stream, mode)?;
    }
    Ok(())
}

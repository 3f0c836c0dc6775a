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
    let mut divider = Divider {
        session,
        given: Vec::new(),
        part: Vec::new(),
        first: 0,
    };
    divider.add(steps, &[])?;
    divider.end_part()?;
    Ok(divider.given)
}

/// More edges than this are not told of: a step then follows all before it.
const MOST_EDGES: usize = 64;

struct Divider<'a> {
    session: &'a Session,
    given: Vec<Given>,
    /// What has not become parts yet. Places of steps are counted from the graph's beginning.
    part: Vec<graph_part::Step>,
    first: u32,
}

impl Divider<'_> {
    /// Adds steps that begin when those at the places `before` have ended. Returns the places of those with which all
    /// of them end.
    fn add(&mut self, steps: &[Step], before: &[u32]) -> Outcome<Vec<u32>> {
        let mut ends: Vec<Vec<u32>> = Vec::with_capacity(steps.len());
        let mut is_last = vec![true; steps.len()];
        for step in steps {
            let after = if step.after.is_empty() {
                before.to_vec()
            } else {
                joined(step.after.iter().map(|&at| &ends[at]))
            };
            step.after.iter().for_each(|&at| is_last[at] = false);
            ends.push(if step.is_enabled {
                self.add_step(step, after)?
            } else {
                after
            });
        }
        let last = ends
            .iter()
            .zip(is_last)
            .filter_map(|(ends, is_last)| is_last.then_some(ends));
        Ok(if steps.is_empty() {
            before.to_vec()
        } else {
            joined(last)
        })
    }

    fn add_step(&mut self, step: &Step, after: Vec<u32>) -> Outcome<Vec<u32>> {
        match &step.operation {
            Operation::Empty => return Ok(after),
            Operation::Graph(_) => return self.add(&step.inner, &after),
            _ => {}
        }
        let Some(commands) = commands_of(self.session, &step.operation)? else {
            self.end_part()?;
            self.given.push(Given::Operation(step.operation.clone()));
            return Ok(Vec::new());
        };
        if after.len() > MOST_EDGES {
            self.end_part()?;
        }
        let mut after = after;
        for command in commands {
            let next = self.first + self.part.len() as u32;
            let in_part = after.iter().filter_map(|place| place.checked_sub(self.first));
            let after_in_part = in_part.collect();
            self.part.push(graph_part::Step {
                command,
                after: after_in_part,
            });
            after = vec![next];
        }
        Ok(after)
    }

    fn end_part(&mut self) -> Outcome {
        self.first += self.part.len() as u32;
        let parts = graph_part::encode(self.part.drain(..)).map_err(|error| self.session.device.broken(&error))?;
        self.given.extend(parts.into_iter().map(Given::Part));
        Ok(())
    }
}

/// All places that the lists have, in order.
fn joined<'a>(lists: impl IntoIterator<Item = &'a Vec<u32>>) -> Vec<u32> {
    let mut all: Vec<u32> = lists.into_iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    all
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

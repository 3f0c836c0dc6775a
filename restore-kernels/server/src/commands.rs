//! Commands of the ring: done at once, put into a stream, or kept until streams have got far enough.

use std::sync::Arc;

use hetckpt_ring::command::{Chunk, Command, Envelope, LaunchCommand, Payload, SlotId};
use hetckpt_ring::pinned_table::PinnedArea;
use hetckpt_ring::reply::{BuiltKernel, Reply};
use hetckpt_state::allocation::Owner;
use hetckpt_state::kernel_run::is_launch_shape;
use hetckpt_state::queue::Place;

use crate::cuda_result as cu;
use crate::deferred_commands::carry_out;
use crate::error::ServerError;
use crate::launch::room_of;
use crate::modules::LoadedModule;
use crate::queues::{Event, LaunchSpec, Pending, Queues, Stream, Work};
use crate::session::Session;
use crate::worker::kick;

/// Takes in one command.
pub fn handle(session: &Arc<Session>, envelope: Envelope) {
    let reply = envelope.reply;
    match envelope.command {
        Command::Ping => session.answer(reply, cu::SUCCESS, &Reply::Nothing),
        Command::ModuleData { module, part, data } => module_data(session, module.0, part, &data),
        Command::ModuleLoad { module } => module_load(session, reply, module.0),
        Command::ModuleDescribe { module, offset, chunk } => module_describe(session, reply, module.0, offset, chunk),
        Command::KernelAttributes { kernel } => kernel_attributes(session, reply, kernel.module.0, kernel.index),
        Command::Malloc { size_bytes } => malloc(session, reply, size_bytes),
        Command::RegisterHost { addr, size_bytes, fd } => {
            register_host(session, reply, PinnedArea { addr, size_bytes, fd });
        }
        Command::MemoryInfo => {
            let memory = session.memory.lock();
            let (free_bytes, total_bytes) = (memory.free_bytes(), memory.total_bytes());
            drop(memory);
            session.answer(
                reply,
                cu::SUCCESS,
                &Reply::Memory {
                    free_bytes,
                    total_bytes,
                },
            );
        }
        Command::StreamCreate { stream, flags } => {
            let new = Stream::new(flags.non_blocking, flags.priority);
            session.queues.lock().streams.entry(stream.0).or_insert(new);
        }
        Command::StreamDestroy { stream } => {
            if let Some(s) = session
                .queues
                .lock()
                .streams
                .get_mut(&stream.0)
                .filter(|_| stream.0 != 0)
            {
                s.is_destroyed = true;
            }
            kick(session, stream.0);
        }
        Command::EventCreate { event, timing } => {
            session.queues.lock().events.insert(
                event.0,
                Event {
                    timing,
                    latest: None,
                    time: None,
                },
            );
        }
        Command::EventDestroy { event } => {
            session.queues.lock().events.remove(&event.0);
        }
        Command::StreamQuery { stream } => query(session, reply, |q| Some(q.end_of_stream(stream.0))),
        Command::EventQuery { event } => {
            query(session, reply, |q| {
                q.events.get(&event.0).map(|e| e.latest.into_iter().collect())
            });
        }
        Command::EventElapsed { start, end } => {
            let (result, body) = elapsed(&session.queues.lock(), start.0, end.0);
            session.answer(reply, result, &body);
        }
        Command::HostFunctionDone { id } => {
            session.queues.lock().host_functions_done.insert(id);
            session.changed.notify_all();
        }
        command @ (Command::StreamSynchronize { .. }
        | Command::EventSynchronize { .. }
        | Command::Synchronize
        | Command::Exit
        | Command::Free { .. }
        | Command::UnregisterHost { .. }
        | Command::ModuleUnload { .. }
        | Command::Reset) => wait_for_places(session, Envelope { reply, command }),
        command => enqueue(session, reply, command, None, Vec::new()),
    }
}

/// Where a command of a stream goes.
#[must_use]
pub fn stream_of(command: &Command) -> Option<u64> {
    match command {
        Command::CopyIn { stream, .. }
        | Command::CopyOut { stream, .. }
        | Command::Copy { stream, .. }
        | Command::Fill { stream, .. }
        | Command::FreeAsync { stream, .. }
        | Command::EventRecord { stream, .. }
        | Command::StreamWaitEvent { stream, .. }
        | Command::HostFunction { stream, .. } => Some(stream.0),
        Command::Launch(launch) => Some(launch.stream.0),
        _ => None,
    }
}

/// The work that a command of a stream is.
///
/// # Errors
/// The CUresult if it names a kernel that is not there or cannot be run.
pub fn work_of(session: &Session, command: Command, data: Option<Vec<u8>>) -> Result<Work, u32> {
    let Command::Launch(launch) = command else {
        return Ok(Work::Command { command, data });
    };
    let LaunchCommand {
        kernel: id,
        grid,
        block,
        dynamic_shared_bytes,
        cooperative,
        ref params,
        ..
    } = launch;
    let kernel = session
        .modules
        .lock()
        .kernel(id.module.0, id.index)
        .ok_or(cu::INVALID_HANDLE)?;
    let param_bytes = kernel.param_bytes().map_err(|reason| {
        tracing::error!(kernel = %kernel.name, %reason, "launch of a kernel that is not supported");
        cu::NOT_SUPPORTED
    })?;
    if (params.len() as u64) < u64::from(param_bytes) || !is_launch_shape(grid, block) {
        return Err(cu::INVALID_VALUE);
    }
    let build_before = if session.device.loads_while_running() || kernel.is_built() {
        Vec::new()
    } else {
        session.modules.lock().unbuilt(id.module.0)
    };
    let params = Arc::from(params.as_slice());
    let room = room_of(&*session.device, grid, block, cooperative);
    let command = Some(Command::Launch(launch));
    let kernel = Some(kernel);
    Ok(Work::Start(Arc::new(LaunchSpec {
        kernel,
        build_before,
        grid,
        block,
        dynamic_shared_bytes,
        cooperative,
        room,
        params,
        command,
    })))
}

fn enqueue(session: &Arc<Session>, reply: Option<SlotId>, command: Command, data: Option<Vec<u8>>, after: Vec<Place>) {
    let Some(stream) = stream_of(&command) else {
        return session.answer_or_fault(reply, cu::INVALID_VALUE);
    };
    let (command, data) = take_data_out(session, stream, reply, command, data);
    let recorded = match command {
        Command::EventRecord { event, .. } => Some(event.0),
        _ => None,
    };
    let waited_for = match command {
        Command::StreamWaitEvent { event, .. } => Some(event.0),
        _ => None,
    };
    let work = match work_of(session, command, data) {
        Ok(work) => work,
        Err(result) => return session.answer_or_fault(reply, result),
    };
    let mut queues = session.queues.lock();
    let mut after = after;
    after.extend(waited_for.and_then(|id| queues.events.get(&id)?.latest));
    let is_known = queues.submit(stream, work, reply, after);
    if let (Some(event), true) = (recorded, is_known) {
        let place = queues.latest_place(stream);
        if let Some(event) = queues.events.get_mut(&event) {
            event.latest = place;
        }
    }
    drop(queues);
    if is_known {
        kick(session, stream);
    } else {
        session.answer_or_fault(reply, cu::INVALID_HANDLE);
    }
}

/// Takes the data of a copy out of its chunk if the copy has to wait: the application has few chunks.
fn take_data_out(
    session: &Session,
    stream: u64,
    reply: Option<SlotId>,
    command: Command,
    data: Option<Vec<u8>>,
) -> (Command, Option<Vec<u8>>) {
    let Command::CopyIn {
        data: Payload::Staged(chunk),
        ..
    } = &command
    else {
        return (command, data);
    };
    let may_run = {
        let queues = session.queues.lock();
        !queues.is_paused
            && queues.streams.get(&stream).is_some_and(|s| s.is_idle())
            && (stream != 0 || queues.ends().is_empty())
    };
    if data.is_some() || reply.is_some() || may_run {
        return (command, data);
    }
    let Some(side) = session.side.get() else {
        return (command, data);
    };
    match side
        .chunk_bytes(*chunk)
        .map(<[u8]>::to_vec)
        .and_then(|bytes| side.release_chunk(*chunk).map(|()| bytes))
    {
        Ok(bytes) => (command, Some(bytes)),
        Err(error) => {
            tracing::error!(%error, "a staging chunk cannot be read");
            (command, None)
        }
    }
}

fn query(session: &Session, reply: Option<SlotId>, places: impl Fn(&Queues) -> Option<Vec<Place>>) {
    let queues = session.queues.lock();
    let result = match places(&queues) {
        _ if queues.fault != 0 => queues.fault,
        None => cu::INVALID_HANDLE,
        Some(places) if places.iter().all(|&p| queues.is_reached(p)) => cu::SUCCESS,
        Some(_) => cu::NOT_READY,
    };
    drop(queues);
    session.answer(reply, result, &Reply::Nothing);
}

fn elapsed(queues: &Queues, start: u64, end: u64) -> (u32, Reply) {
    let (Some(start), Some(end)) = (queues.events.get(&start), queues.events.get(&end)) else {
        return (cu::INVALID_HANDLE, Reply::Nothing);
    };
    let (Some(from), Some(to)) = (start.latest, end.latest) else {
        return (cu::INVALID_HANDLE, Reply::Nothing);
    };
    if !start.timing || !end.timing {
        return (cu::INVALID_HANDLE, Reply::Nothing);
    }
    match (start.time, end.time) {
        _ if queues.fault != 0 => (queues.fault, Reply::Nothing),
        (Some(a), Some(b)) if queues.is_reached(from) && queues.is_reached(to) => {
            #[allow(clippy::cast_possible_truncation, reason = "CUDA gives 32-bit milliseconds")]
            let ms = ((b.as_secs_f64() - a.as_secs_f64()) * 1e3) as f32;
            (cu::SUCCESS, Reply::Milliseconds(ms))
        }
        _ => (cu::NOT_READY, Reply::Nothing),
    }
}

/// Carries the command out now, or once the streams have got as far as they are filled at present.
fn wait_for_places(session: &Arc<Session>, envelope: Envelope) {
    let mut queues = session.queues.lock();
    let after = match &envelope.command {
        Command::StreamSynchronize { stream } => queues.end_of_stream(stream.0),
        Command::EventSynchronize { event } => queues.events.get(&event.0).and_then(|e| e.latest).into_iter().collect(),
        _ => queues.ends(),
    };
    queues.pending.push(Pending { envelope, after });
    let ready = queues.take_ready();
    drop(queues);
    for pending in ready {
        carry_out(session, pending.envelope);
    }
}

fn malloc(session: &Session, reply: Option<SlotId>, size_bytes: u64) {
    let (result, body) = if size_bytes == 0 {
        (cu::INVALID_VALUE, Reply::Nothing)
    } else {
        match session.memory.lock().allocate(size_bytes, Owner::Program) {
            Ok(addr) => (cu::SUCCESS, Reply::Address(addr)),
            Err(error) => {
                tracing::warn!(%error, "allocation failed");
                (cu::of_device_error(&error), Reply::Nothing)
            }
        }
    };
    session.answer(reply, result, &body);
}

fn register_host(session: &Session, reply: Option<SlotId>, facts: PinnedArea) {
    let result = match session.pinned.register_from_app(session.app_pid, facts) {
        Ok(()) => cu::SUCCESS,
        Err(error) => {
            tracing::error!(%error, addr = facts.addr, "pinned memory cannot be registered");
            match error {
                ServerError::Device(error) => cu::of_device_error(&error),
                _ => cu::OUT_OF_MEMORY,
            }
        }
    };
    session.answer_or_fault(reply, result);
}

fn module_data(session: &Session, module: u64, part: u32, data: &Payload) {
    let mut modules = session.modules.lock();
    match data {
        Payload::Inline(bytes) => modules.add_data(module, part, bytes),
        Payload::Staged(chunk) => {
            let Some(side) = session.side.get() else { return };
            match side.chunk_bytes(*chunk) {
                Ok(bytes) => modules.add_data(module, part, bytes),
                Err(error) => tracing::error!(%error, "a piece of a module cannot be read"),
            }
            if let Err(error) = side.release_chunk(*chunk) {
                tracing::error!(%error, "a staging chunk cannot be given back");
            }
        }
    }
}

fn module_load(session: &Session, reply: Option<SlotId>, module: u64) {
    let mut modules = session.modules.lock();
    let parts = modules.take_parts(module);
    let mut memory = session.memory.lock();
    let loaded = LoadedModule::from_parts(module, &parts, session.capability(), &session.builder, &mut memory);
    drop(memory);
    let (result, description_bytes, log) = match loaded {
        Ok(loaded) => {
            let length = loaded.description.len() as u64;
            modules.insert(module, loaded);
            (cu::SUCCESS, length, String::new())
        }
        Err(failure) => {
            modules.tell(&failure);
            (failure.result, 0, failure.log)
        }
    };
    drop(modules);
    session.answer(reply, result, &Reply::ModuleLoaded { description_bytes, log });
}

fn module_describe(session: &Session, reply: Option<SlotId>, module: u64, offset: u64, chunk: Chunk) {
    let modules = session.modules.lock();
    let length = usize::try_from(chunk.length).unwrap_or(0);
    let bytes = modules.get(module).and_then(|m| {
        let start = usize::try_from(offset).ok()?;
        m.description.get(start..start.checked_add(length)?)
    });
    let result = match (bytes, session.side.get()) {
        (Some(bytes), Some(side)) if side.fill_chunk(chunk, 0, bytes).is_ok() => cu::SUCCESS,
        _ => cu::INVALID_VALUE,
    };
    drop(modules);
    session.answer(reply, result, &Reply::Nothing);
}

fn kernel_attributes(session: &Session, reply: Option<SlotId>, module: u64, index: u32) {
    let kernel = session.modules.lock().kernel(module, index);
    let is_running = || session.queues.lock().streams.values().any(|s| !s.in_flight.is_empty());
    let may_load = session.device.loads_while_running() || !is_running();
    let (result, body) = match kernel.map(|k| k.attributes(may_load)) {
        None => (cu::INVALID_HANDLE, Reply::Nothing),
        Some(Err(_)) => (cu::NOT_SUPPORTED, Reply::Nothing),
        Some(Ok(a)) => {
            let body = BuiltKernel {
                max_threads_per_block: a.max_threads_per_block,
                num_registers: a.num_registers,
                static_shared_bytes: a.static_shared_bytes,
                local_bytes: a.local_bytes,
                const_bytes: 0,
            };
            (cu::SUCCESS, Reply::KernelAttributes(body))
        }
    };
    session.answer(reply, result, &body);
}

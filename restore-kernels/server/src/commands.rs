//! Commands of the ring: done at once, put into a stream, or kept until streams have got far enough.

use std::sync::Arc;
use std::time::Instant;

use hetckpt_abi::array::ArrayShape;
use hetckpt_abi::cluster_query::ClusterQuery;
use hetckpt_abi::image_object::ImageObject;
use hetckpt_devices::error::DeviceError;
use hetckpt_order::order::Phase;
use hetckpt_ring::command::{Chunk, Command, DeviceIndex, Envelope, LaunchCommand, Payload, SlotId, StreamId};
use hetckpt_ring::error::RingError;
use hetckpt_ring::graph_part::{self, Step};
use hetckpt_ring::pinned_table::{MANAGED_ADDRESSES, PinnedArea};
use hetckpt_ring::reply::{BuiltKernel, Reply};
use hetckpt_state::allocation::Owner;
use hetckpt_state::queue::Place;

use crate::aside;
use crate::counters::Activity;
use crate::cuda_result as cu;
use crate::deferred_commands::carry_out;
use crate::error::ServerError;
use crate::event_times::elapsed;
use crate::graph_builder::{self, NotYet};
use crate::graph_parts::{GraphRun, PartKey, Piece, Way};
use crate::kernels::{BuildError, KernelCode};
use crate::launch::room_of;
use crate::launch_spec::LaunchSpec;
use crate::load_failure::{LoadFailure, NotLoaded};
use crate::loaded_module::LoadedModule;
use crate::managed_faults;
use crate::pause;
use crate::queues::{Awaiting, Event, Queues, What, Work};
use crate::session::Session;

/// Which streams can have something new to do after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// None.
    Nothing,
    /// One.
    Stream(u64),
    /// Any.
    All,
}

/// Takes in one command. What it has given streams to do, they do when they are kicked ([`crate::worker`]).
pub fn handle(session: &Arc<Session>, envelope: Envelope) -> Touched {
    let reply = envelope.reply;
    if envelope
        .command
        .device()
        .is_some_and(|device| device != DeviceIndex::FIRST)
    {
        session.answer_or_fault(reply, cu::INVALID_DEVICE);
        return Touched::Nothing;
    }
    match envelope.command {
        Command::StreamDestroy { stream } => {
            session.queues.lock().order.destroy(stream.0);
            return Touched::Stream(stream.0);
        }
        Command::HostFunctionDone { id } => {
            session.queues.lock().order.host_function_returned(id);
            return Touched::All;
        }
        Command::GraphPart {
            stream,
            graph,
            part,
            steps,
        } => return graph_part(session, stream, (graph, part), &steps),
        ref command if stream_of(command).is_some() => {
            return enqueue(session, reply, envelope.command, None, Vec::new());
        }
        Command::ModuleData { module, part, data } => module_data(session, module.0, part, &data),
        Command::ModuleLoad { module, .. } => module_load(session, reply, module.0, WhoPlaces::Nobody),
        Command::ModuleLoadPlaced { module, .. } => module_load(session, reply, module.0, WhoPlaces::Application),
        Command::ModulePlace { module, name, addr } => session.modules.lock().place(module.0, name, addr),
        Command::ModuleDescribe { module, offset, chunk } => module_describe(session, reply, module.0, offset, chunk),
        Command::KernelAttributes { kernel } => kernel_attributes(session, reply, kernel.module.0, kernel.index),
        Command::ManagedFaults { fd } => managed_faults(session, reply, fd),
        Command::QueryClusters { kernel, query } => {
            query_clusters(session, reply, (kernel.module.0, kernel.index), query);
        }
        Command::GraphForget { graph } => {
            let gone = session.graph_parts.lock().forget(graph);
            drop(gone);
        }
        Command::EncodeTensorMap(map) => match session.device.encode_tensor_map(&map) {
            Ok(encoded) => session.answer(reply, cu::SUCCESS, &Reply::TensorMap(Box::new(encoded))),
            Err(error) => session.answer(reply, cu::of_device_error(&error), &Reply::Nothing),
        },
        Command::ArrayCreate { array, shape, .. } => array_create(session, reply, array.0, shape),
        Command::ImageCreate { object, .. } => image_create(session, reply, object),
        Command::Malloc { size_bytes, .. } => malloc(session, reply, size_bytes),
        Command::MallocAt { addr, size_bytes, .. } => malloc_at(session, reply, addr, size_bytes),
        Command::RegisterHost { addr, size_bytes, fd } => {
            register_host(session, reply, PinnedArea { addr, size_bytes, fd });
        }
        Command::MemoryInfo { .. } => {
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
        Command::StreamCreate { stream, flags, .. } => {
            let (non_blocking, priority) = (flags.non_blocking, flags.priority);
            session.queues.lock().order.create(stream.0, non_blocking, priority);
        }
        Command::EventCreate { event, timing, .. } => {
            session.queues.lock().events.insert(
                event.0,
                Event {
                    timing,
                    ..Event::default()
                },
            );
        }
        Command::EventDestroy { event } => {
            session.queues.lock().events.remove(&event.0);
        }
        Command::StreamQuery { stream } => query(session, reply, |q| Some(q.order.end_of_stream(stream.0))),
        Command::EventQuery { event } => {
            query(session, reply, |q| {
                q.events.get(&event.0).map(|e| e.latest.into_iter().collect())
            });
        }
        Command::EventElapsed { start, end } => {
            let (result, body) = elapsed(&session.queues.lock(), start.0, end.0);
            session.answer(reply, result, &body);
        }
        command => wait_for_places(session, Envelope { reply, command }),
    }
    Touched::Nothing
}

/// Where a command of a stream goes.
#[must_use]
pub fn stream_of(command: &Command) -> Option<u64> {
    match command {
        Command::CopyIn { stream, .. }
        | Command::CopyOut { stream, .. }
        | Command::Copy { stream, .. }
        | Command::Fill { stream, .. }
        | Command::CopyBox { stream, .. }
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
pub fn work_of(session: &Session, command: Command, data: Option<Vec<u8>>) -> Result<What, u32> {
    let Command::Launch(launch) = command else {
        return Ok(Work::command(&*session.device, command, data));
    };
    let LaunchCommand {
        kernel: id,
        shape,
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
    if (params.len() as u64) < u64::from(param_bytes) || !shape.is_possible() {
        return Err(cu::INVALID_VALUE);
    }
    let build_before = if session.loads_eagerly && !kernel.is_built() {
        session.modules.lock().unbuilt(id.module.0)
    } else {
        Vec::new()
    };
    let params = kernel.complete_params(session.moved.read().in_params(params), &shape);
    let room = room_of(&*session.device, &shape);
    let command = Some(Command::Launch(launch));
    let kernel = Some(kernel);
    Ok(What::Start(Arc::new(LaunchSpec {
        kernel,
        build_before,
        shape,
        room,
        params,
        command,
    })))
}

fn enqueue(
    session: &Arc<Session>,
    reply: Option<SlotId>,
    command: Command,
    data: Option<Vec<u8>>,
    after: Vec<Place>,
) -> Touched {
    let Some(stream) = stream_of(&command) else {
        session.answer_or_fault(reply, cu::INVALID_VALUE);
        return Touched::Nothing;
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
    let what = match work_of(session, command, data) {
        Ok(what) => what,
        Err(result) => {
            session.answer_or_fault(reply, result);
            return Touched::Nothing;
        }
    };
    let mut queues = session.queues.lock();
    let mut after = after;
    after.extend(waited_for.and_then(|id| queues.events.get(&id)?.latest));
    let is_known = queues.order.submit(stream, Work { what, reply }, after);
    if let (Some(event), true) = (recorded, is_known) {
        let place = queues.order.latest_place(stream);
        if let Some(event) = queues.events.get_mut(&event) {
            event.latest = place;
        }
    }
    drop(queues);
    if is_known {
        return Touched::Stream(stream);
    }
    session.answer_or_fault(reply, cu::INVALID_HANDLE);
    Touched::Nothing
}

/// Puts a part of a graph into a stream.
fn graph_part(session: &Arc<Session>, stream: StreamId, key: PartKey, bytes: &Arc<[u8]>) -> Touched {
    let way = if session.device.has_graphs() {
        session.graph_parts.lock().launch(key, bytes)
    } else {
        Way::OneByOne
    };
    // What has been put into the stream before something that cannot be stays there.
    let touched = Touched::Stream(stream.0);
    if let Way::Pieces(pieces) = &way {
        for piece in &**pieces {
            let is_there = match piece {
                Piece::Run(run) => submit_run(session, stream, Arc::clone(run)),
                Piece::Step(step) => submit_step(session, graph_part::in_stream(step.clone(), stream)),
            };
            if !is_there {
                break;
            }
        }
        return touched;
    }
    let steps = match graph_part::decode(bytes, stream) {
        Ok(steps) => steps,
        Err(error) => {
            tracing::error!(%error, "a graph that cannot be launched");
            session.answer_or_fault(None, cu::INVALID_VALUE);
            return Touched::Nothing;
        }
    };
    let are_there = steps.iter().all(|step| submit_step(session, step.command.clone()));
    if let (true, Way::OneByOneThenRuns { most }) = (are_there, way) {
        let bytes = Arc::clone(bytes);
        aside::start(session, move |session| {
            let work = |step: Step| Ok((work_of(session, step.command.clone(), None)?, step));
            let steps = steps.into_iter().map(work).collect::<Result<Vec<_>, u32>>();
            let pieces = graph_builder::pieces(session, key, most, steps.unwrap_or_default());
            let mut parts = session.graph_parts.lock();
            match pieces {
                Ok(pieces) => parts.made(key, &bytes, pieces),
                Err(NotYet) => parts.not_yet(key, &bytes),
            }
        });
    }
    touched
}

fn submit_step(session: &Arc<Session>, step: Command) -> bool {
    enqueue(session, None, step, None, Vec::new()) != Touched::Nothing
}

fn submit_run(session: &Session, stream: StreamId, run: Arc<GraphRun>) -> bool {
    let work = Work {
        what: What::Graph(run),
        reply: None,
    };
    let is_known = session.queues.lock().order.submit(stream.0, work, Vec::new());
    if !is_known {
        session.answer_or_fault(None, cu::INVALID_HANDLE);
    }
    is_known
}

/// With fewer free chunks than these, copies that have to wait for a kernel leave theirs.
const FEW_CHUNKS: u32 = 24;

/// Takes the data of a copy out of its chunk if the copy has to wait and the application has few others.
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
    let Some(side) = session.side.get() else {
        return (command, data);
    };
    let is_behind_something = {
        let queues = session.queues.lock();
        let ends = queues.order.end_of_stream(stream);
        let copies = |work: &Work| work.is_copy_in();
        let waits = |place: &Place| {
            let stream = queues.order.stream(place.stream);
            stream.is_some_and(|s| !s.is_at_work() && !s.flights().next().is_some_and(|flight| copies(&flight.work)))
        };
        queues.order.phase() == Phase::Paused || ends.iter().any(waits)
    };
    let may_stay = !is_behind_something || side.num_free_chunks() >= FEW_CHUNKS;
    if data.is_some() || reply.is_some() || may_stay {
        return (command, data);
    }
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
        _ if queues.order.fault() != 0 => queues.order.fault(),
        None => cu::INVALID_HANDLE,
        Some(places) if places.iter().all(|&p| queues.order.is_reached(p)) => cu::SUCCESS,
        Some(_) => cu::NOT_READY,
    };
    drop(queues);
    session.answer(reply, result, &Reply::Nothing);
}

/// Carries the command out now, or once the streams have got as far as they are filled at present.
fn wait_for_places(session: &Arc<Session>, envelope: Envelope) {
    let mut queues = session.queues.lock();
    let after = match &envelope.command {
        Command::StreamSynchronize { stream } => queues.order.end_of_stream(stream.0),
        Command::EventSynchronize { event } | Command::EventSynchronizeElapsed { end: event, .. } => {
            queues.events.get(&event.0).and_then(|e| e.latest).into_iter().collect()
        }
        _ => queues.order.ends(),
    };
    let awaiting = Awaiting {
        envelope,
        since: Instant::now(),
    };
    let ready = queues.order.wait_for(awaiting, after);
    drop(queues);
    for awaiting in ready {
        carry_out(session, awaiting);
    }
}

/// What `allocate` gives, some `size_bytes`, for which managed memory leaves the device if it is that which has not the
/// room.
fn with_room<T>(
    session: &Arc<Session>,
    size_bytes: u64,
    allocate: impl Fn(&Session) -> Result<T, DeviceError>,
) -> Result<T, DeviceError> {
    let may_have = || size_bytes <= session.memory.lock().free_bytes();
    match allocate(session) {
        Err(DeviceError::OutOfMemory { .. }) if may_have() && managed_faults::give_up(session) => allocate(session),
        result => result,
    }
}

fn malloc(session: &Arc<Session>, reply: Option<SlotId>, size_bytes: u64) {
    let began = Instant::now();
    let (result, body) = if size_bytes == 0 {
        (cu::INVALID_VALUE, Reply::Nothing)
    } else {
        let allocate = |session: &Session| session.memory.lock().allocate(size_bytes, Owner::Program);
        match with_room(session, size_bytes, allocate) {
            Ok(addr) => (cu::SUCCESS, Reply::Address(addr)),
            Err(error) => {
                tracing::warn!(%error, "allocation failed");
                (cu::of_device_error(&error), Reply::Nothing)
            }
        }
    };
    session.counters().add(Activity::Allocate, size_bytes, began.elapsed());
    session.answer(reply, result, &body);
}

fn malloc_at(session: &Arc<Session>, reply: Option<SlotId>, addr: u64, size_bytes: u64) {
    let began = Instant::now();
    let allocate = |session: &Session| session.memory.lock().allocate_at(addr, size_bytes, Owner::Program);
    let result = match with_room(session, size_bytes, allocate) {
        Ok(true) => cu::SUCCESS,
        Ok(false) => cu::INVALID_VALUE,
        Err(error) => {
            tracing::warn!(%error, "allocation failed");
            cu::of_device_error(&error)
        }
    };
    session.counters().add(Activity::Allocate, size_bytes, began.elapsed());
    session.answer(reply, result, &Reply::Nothing);
}

/// Beside the ring's reader: the driver may wait for kernels.
fn array_create(session: &Arc<Session>, reply: Option<SlotId>, number: u64, shape: ArrayShape) {
    aside::start(session, move |session| {
        let made = session.arrays.lock().create(&*session.device, number, &shape);
        let result = made.map_or_else(|error| refused(&error), |()| cu::SUCCESS);
        session.answer_or_fault(reply, result);
    });
}

fn image_create(session: &Arc<Session>, reply: Option<SlotId>, object: Box<ImageObject>) {
    aside::start(session, move |session| {
        let on_device = object.with_address(|addr| session.moved.read().actual(addr));
        let mut arrays = session.arrays.lock();
        let is_memory = |addr| session.memory.lock().contains(addr, 1);
        let made = arrays.create_image(&*session.device, (&object, &on_device), is_memory);
        drop(arrays);
        let (result, body) = match made {
            Ok(value) => (cu::SUCCESS, Reply::ImageObject(value)),
            Err(error) => (refused(&error), Reply::Nothing),
        };
        session.answer(reply, result, &body);
    });
}

fn refused(error: &DeviceError) -> u32 {
    tracing::warn!(%error, "refused");
    cu::of_device_error(error)
}

fn register_host(session: &Session, reply: Option<SlotId>, facts: PinnedArea) {
    let is_managed = MANAGED_ADDRESSES.contains(&facts.addr) && session.managed.is_active();
    let registered = if is_managed {
        let lent = session.pinned.register_lent(session.app_pid, facts);
        let added = lent.and_then(|()| session.managed.add(facts.addr, &session.pinned));
        added.inspect_err(|_| drop(session.managed.unregister(facts.addr, &session.pinned)))
    } else {
        session.pinned.register_from_app(session.app_pid, facts)
    };
    if MANAGED_ADDRESSES.contains(&facts.addr) && !pause::is_held(session) {
        session.ask_for_managed_faults();
    }
    let result = match registered {
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

/// The application goes on as soon as its descriptor has been taken: it is not to keep it.
fn managed_faults(session: &Arc<Session>, reply: Option<SlotId>, fd: i32) {
    let taken = managed_faults::take(session, fd);
    let result = if taken.is_ok() { cu::SUCCESS } else { cu::UNKNOWN };
    session.answer(reply, result, &Reply::Nothing);
    let start = move |session: &Arc<Session>| match taken.and_then(|fd| managed_faults::start(session, fd)) {
        Ok(()) | Err(ServerError::WrongMoment(_)) => {}
        Err(error @ (ServerError::NotStopped { .. } | ServerError::Overtaken { .. })) => {
            tracing::warn!(%error, "managed memory stays in the host's memory for now");
            session.managed.put_off();
            session.ask_for_managed_faults();
        }
        // It keeps the descriptor until it is answered.
        Err(ServerError::Ring(RingError::Os { source, .. })) if is_of_the_dying(&source) => {}
        Err(error) => {
            tracing::warn!(%error, "managed memory stays in the host's memory");
            session.managed.refuse();
            session.ask_for_managed_faults();
        }
    };
    let is_quiet = session.queues.lock().order.is_quiet();
    match is_quiet {
        // What comes next in the ring finds it there.
        true => start(session),
        false => {
            let session_of_start = Arc::clone(session);
            aside::start(session, move |_| start(&session_of_start));
        }
    }
}

/// True if that is what the system says of a process that ends.
fn is_of_the_dying(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADF | libc::ESRCH))
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

fn module_load(session: &Arc<Session>, reply: Option<SlotId>, module: u64, who: WhoPlaces) {
    let (parts, placed) = session.modules.lock().take_parts(module);
    aside::start(session, move |session| {
        let (capability, builder, memory) = (session.capability(), &session.builder, &session.memory);
        // Variables there are filled where it lies.
        let held = (!placed.is_empty()).then(|| session.managed.hold()).transpose();
        let loaded = held
            .map_err(NotLoaded::from)
            .and_then(|_held| LoadedModule::from_parts(module, &parts, &placed, capability, builder, memory));
        let mut modules = session.modules.lock();
        let failed = |failure: LoadFailure| {
            let log = failure.log;
            (
                failure.result,
                Reply::ModuleLoaded {
                    description_bytes: 0,
                    log,
                },
            )
        };
        let (result, answer) = match (loaded, who) {
            (Ok(loaded), _) => {
                let description_bytes = loaded.description.len() as u64;
                modules.insert(module, loaded);
                let log = String::new();
                (cu::SUCCESS, Reply::ModuleLoaded { description_bytes, log })
            }
            (Err(NotLoaded::Failed(failure)), _) => {
                modules.tell(&failure);
                failed(failure)
            }
            (Err(NotLoaded::Unplaced(variables)), WhoPlaces::Application) => {
                modules.keep_parts(module, parts, placed);
                (cu::SUCCESS, Reply::ManagedVariables(variables))
            }
            (Err(NotLoaded::Unplaced(_)), WhoPlaces::Nobody) => failed(LoadFailure {
                result: cu::NOT_SUPPORTED,
                log: "the program's driver library is too old for variables in managed memory".to_owned(),
            }),
        };
        drop(modules);
        session.answer(reply, result, &answer);
    });
}

/// Who finds places for variables in managed memory.
#[derive(Clone, Copy)]
enum WhoPlaces {
    /// The application is asked.
    Application,
    /// It is one that cannot be asked (before version 6 of the protocol).
    Nobody,
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

fn kernel_attributes(session: &Arc<Session>, reply: Option<SlotId>, module: u64, index: u32) {
    let kernel = session.modules.lock().kernel(module, index);
    match kernel {
        None => session.answer(reply, cu::INVALID_HANDLE, &Reply::Nothing),
        Some(kernel) if kernel.knows_attributes() => answer_attributes(session, reply, &kernel),
        Some(kernel) => aside::start(session, move |session| answer_attributes(session, reply, &kernel)),
    }
}

fn query_clusters(session: &Arc<Session>, reply: Option<SlotId>, (module, index): (u64, u32), query: ClusterQuery) {
    let Some(kernel) = session.modules.lock().kernel(module, index) else {
        return session.answer(reply, cu::INVALID_HANDLE, &Reply::Nothing);
    };
    if !session.device.has_clusters() {
        return session.answer(reply, cu::NOT_SUPPORTED, &Reply::Nothing);
    }
    // The kernel may have to be loaded for it.
    aside::start(session, move |session| {
        let (result, body) = match kernel.query_clusters(&query, may_load(session)) {
            Ok(count) => (cu::SUCCESS, Reply::Count(count)),
            Err(BuildError::Device(error)) => (cu::of_device_error(&error), Reply::Nothing),
            Err(_) => (cu::NOT_SUPPORTED, Reply::Nothing),
        };
        session.answer(reply, result, &body);
    });
}

/// True if a kernel can be loaded now without waiting for one that runs.
fn may_load(session: &Session) -> bool {
    let is_running = || {
        session
            .queues
            .lock()
            .order
            .streams()
            .any(|(_, s)| s.flights().len() > 0)
    };
    session.device.loads_while_running() || !is_running()
}

fn answer_attributes(session: &Session, reply: Option<SlotId>, kernel: &KernelCode) {
    let (result, body) = match kernel.attributes(may_load(session)) {
        Err(_) => (cu::NOT_SUPPORTED, Reply::Nothing),
        Ok(a) => {
            let body = BuiltKernel {
                max_threads_per_block: a.max_threads_per_block,
                num_registers: a.num_registers,
                static_shared_bytes: a.static_shared_bytes,
                local_bytes: a.local_bytes,
                const_bytes: kernel.const_bytes(),
            };
            (cu::SUCCESS, Reply::KernelAttributes(body))
        }
    };
    session.answer(reply, result, &body);
}

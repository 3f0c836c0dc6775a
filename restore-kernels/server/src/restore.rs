//! From the files of a snapshot to a session that waits for its application.
//!
//! Everything that can fail happens here, before the application runs: files checked, device memory mapped and filled,
//! kernels in flight rebuilt for the device, and their blocks found not to be too large for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hetckpt_archive::chunk::read_memory;
use hetckpt_archive::packed_state::{self, PackedStateError};
use hetckpt_devices::error::DeviceError;
use hetckpt_order::order::{Order, Waiter};
use hetckpt_order::stream::StoredStream;
use hetckpt_ring::command::{Envelope, SlotId};
use hetckpt_ring::pinned_table::MANAGED_ADDRESSES;
use hetckpt_ring::version::Readable;
use hetckpt_state::codec::CodecError;
use hetckpt_state::kernel_run::KernelRun;
use hetckpt_state::names::{memory_file, state_file};
use hetckpt_state::process::ProcessState;
use hetckpt_state::queue::{Work as StateWork, WorkItem};

use crate::capture::of_chunk_error;
use crate::choose_device::Chosen;
use crate::commands::work_of;
use crate::error::{Cause, ServerError};
use crate::grid_workspaces::workspace_of;
use crate::held_commands;
use crate::host_memory::available_memory;
use crate::kernels::ProbedKernel;
use crate::launch;
use crate::launch_spec::LaunchSpec;
use crate::loaded_module::LoadedModule;
use crate::modules::Modules;
use crate::queues::{Awaiting, Event, Item, Queues, Stopped, What, Work, loading};
use crate::restored_arrays::{restore_arrays, restore_images};
use crate::session::Session;
use crate::start_points::StartPoints;
use crate::state_files::StateFiles;
use crate::thread_state::{grid_from_state, memory_bytes};

fn damaged(why: impl Into<Cause>) -> ServerError {
    ServerError::Damaged(why.into())
}

/// Reads and checks the state of a process, which must speak a version of the ring that is readable.
///
/// # Errors
/// [`ServerError::File`], [`ServerError::Damaged`], [`ServerError::Version`], [`ServerError::RingVersion`].
pub fn read_state(files: &StateFiles, readable_rings: Readable) -> Result<ProcessState, ServerError> {
    let description = files.description()?;
    let name = state_file(files.pid());
    let compressed = files.state()?;
    let hash = blake3::hash(&compressed).to_hex().to_string();
    if !description.members.iter().any(|m| m.name == name && m.blake3 == hash) {
        return Err(damaged(format!(
            "{name} does not have the hash that its description gives"
        )));
    }
    let state = packed_state::unpack(&compressed).map_err(|error| match error {
        PackedStateError::Codec(CodecError::Version { found, known }) => ServerError::Version { found, known },
        error @ PackedStateError::Memory { .. } => ServerError::File {
            path: name.into(),
            source: std::io::Error::new(std::io::ErrorKind::OutOfMemory, error),
        },
        error => damaged(error),
    })?;
    if !readable_rings.has(state.ring_version) {
        return Err(ServerError::RingVersion {
            found: state.ring_version,
            readable: readable_rings,
        });
    }
    if state.pid != files.pid() {
        return Err(damaged(format!("it is process {}'s", state.pid)));
    }
    Ok(state)
}

/// Rebuilds the session of a process on a device. It is paused until its application is attached.
///
/// # Errors
/// Any [`ServerError`]: nothing has touched the application.
pub fn restore(files: &StateFiles, state: ProcessState, chosen: Chosen) -> Result<Arc<Session>, ServerError> {
    let session = begin(files, &state, chosen)?;
    finish(&session, files, state)?;
    Ok(session)
}

/// Does of that what is likely to fail: the session has its device, and all of its memory's room.
///
/// # Errors
/// As [`restore`].
pub fn begin(files: &StateFiles, state: &ProcessState, chosen: Chosen) -> Result<Arc<Session>, ServerError> {
    let [device] = &*state.devices else {
        return Err(damaged(format!(
            "a process with {} devices, not one",
            state.devices.len()
        )));
    };
    let virtual_device = crate::virtual_device::from_state(&device.virtual_device);
    let session = Session::new(files.pid(), chosen.device, chosen.generator, virtual_device);
    check_managed_memory(&session, state)?;
    check_arrays(&session, state)?;
    map_memory(&session, state)?;
    Ok(Arc::new(session))
}

/// Does what [`begin`] has left of the session: fills memory and builds kernels.
///
/// # Errors
/// As [`restore`].
pub fn finish(session: &Session, files: &StateFiles, mut state: ProcessState) -> Result<(), ServerError> {
    let started = Instant::now();
    fill_memory(files, session, &state)?;
    let memory_at = started.elapsed();
    {
        let mut modules = session.modules.lock();
        for module in &state.modules {
            let loaded =
                LoadedModule::from_state(module, &session.builder, &session.memory).map_err(|f| damaged(f.log))?;
            modules.insert(module.id, loaded);
        }
        fill_variables(session, &mut modules, &state)?;
        for part in &state.arriving {
            modules.add_data(part.module, part.part, &part.bytes);
        }
    }
    fill_arrays(session, &mut state)?;
    let queues = rebuild_queues(session, &mut state)?;
    build_stopped(&queues)?;
    check_stopped(session, &queues)?;
    *session.queues.lock() = queues;
    tracing::info!(elapsed = ?started.elapsed(), memory = ?memory_at, device = %session.device.describe().id, "restored");
    Ok(())
}

/// Kernels must reach managed memory, which lies in the host's.
fn check_managed_memory(session: &Session, state: &ProcessState) -> Result<(), ServerError> {
    let mut pinned = state.pinned.iter();
    match pinned.find(|area| MANAGED_ADDRESSES.contains(&area.addr)) {
        Some(area) if !session.device.reaches_host_memory() => Err(ServerError::Device(DeviceError::Map {
            addr: area.addr,
            size_bytes: area.size_bytes,
            reason: "it is managed memory, and kernels of this device do not reach the host's memory".to_owned(),
        })),
        _ => Ok(()),
    }
}

/// Only some devices have arrays.
fn check_arrays(session: &Session, state: &ProcessState) -> Result<(), ServerError> {
    if state.has_arrays() && !session.device.has_arrays() {
        let device = session.device.describe().id;
        return Err(ServerError::NoArrays { device });
    }
    Ok(())
}

/// Makes and fills arrays, and makes texture and surface objects. Their memory, variables included, is there by now.
fn fill_arrays(session: &Session, state: &mut ProcessState) -> Result<(), ServerError> {
    let mut arrays = session.arrays.lock();
    restore_arrays(&*session.device, &mut arrays, &std::mem::take(&mut state.arrays))?;
    let actual = |addr| session.moved.read().actual(addr);
    let is_memory = |addr| session.memory.lock().contains(addr, 1);
    restore_images(&*session.device, &mut arrays, &state.images, actual, is_memory)
}

/// Fills variables that the device has placed. One whose address lies in device memory must lie where it did.
fn fill_variables(session: &Session, modules: &mut Modules, state: &ProcessState) -> Result<(), ServerError> {
    for variable in &state.variables {
        let lost = || damaged(format!("its module has no variable `{}`", variable.name));
        let before = state.address_of(variable).ok_or_else(lost)?;
        let module = modules.get_mut(variable.module).ok_or_else(lost)?;
        let placed = module.globals.iter_mut().find(|v| v.name == variable.name);
        let placed = placed.filter(|v| v.size_bytes == variable.bytes.len() as u64);
        let placed = placed.ok_or_else(lost)?;
        let now = placed.addr;
        if variable.is_pointed_at && now != before {
            return Err(ServerError::VariableMoved {
                name: variable.name.clone(),
                before,
                now,
            });
        }
        session.device.write(now, &variable.bytes)?;
        if now != before {
            tracing::debug!(variable = %variable.name, before, now, "moved");
            let mut moved = session.moved.write();
            moved.insert(variable.module, before, placed.size_bytes, now);
            // Everything else goes by the program's address.
            placed.addr = before;
        }
    }
    Ok(())
}

fn map_memory(session: &Session, state: &ProcessState) -> Result<(), ServerError> {
    let description = session.device.describe();
    let requested_bytes = state
        .mappings
        .iter()
        .fold(0u64, |sum, m| sum.saturating_add(m.size_bytes));
    // Where memory is the host's, nobody says no when it is mapped: what is filled must be there.
    let is_mapped_lazily = description.kind != "cuda";
    let is_too_much = is_mapped_lazily && filled_bytes(state) > description.free_bytes;
    if requested_bytes > description.total_bytes || is_too_much {
        let free_bytes = description.free_bytes;
        return Err(DeviceError::OutOfMemory {
            requested_bytes,
            free_bytes,
        }
        .into());
    }
    session
        .memory
        .lock()
        .restore(&state.mappings, &state.allocations)
        .map_err(|error| match error {
            Some(error) => ServerError::Device(error),
            None => damaged("mappings and allocations contradict each other"),
        })
}

/// Bytes of device memory that are not all zero.
fn filled_bytes(state: &ProcessState) -> u64 {
    let pieces = state.memory.chunks.iter();
    let sizes = pieces.filter_map(|chunk| state.memory.pieces.get(chunk.piece as usize));
    sizes
        .map(|piece| u64::from(piece.raw_bytes))
        .fold(0, u64::saturating_add)
}

fn fill_memory(files: &StateFiles, session: &Session, state: &ProcessState) -> Result<(), ServerError> {
    let device = &session.device;
    read_memory(
        &files.memory()?,
        &state.mappings,
        &state.memory,
        files.origin(),
        |addr, size_bytes, spare, produce| device.begin_write(addr, size_bytes, spare, produce),
    )
    .map_err(|error| of_chunk_error(error, &memory_file(files.pid())))?;
    Ok(device.end_writes()?)
}

/// Makes sure that what the blocks of stopped launches grow to has room, before any of them does.
fn ensure_room(
    pid: u32,
    state: &ProcessState,
    kernels: &[Arc<ProbedKernel>],
    available_bytes: u64,
) -> Result<(), ServerError> {
    let needed_bytes = stopped(state).fold(0u64, |sum, run| {
        let probed = kernels.get(run.probed_kernel as usize);
        sum.saturating_add(probed.map_or(0, |p| memory_bytes(run, &p.kernel, &p.layout)))
    });
    if needed_bytes <= available_bytes {
        return Ok(());
    }
    let text = format!("stopped blocks take {needed_bytes} bytes of memory, of which {available_bytes} are available");
    Err(ServerError::File {
        path: state_file(pid).into(),
        source: std::io::Error::new(std::io::ErrorKind::OutOfMemory, text),
    })
}

/// The launches that have been stopped.
fn stopped(state: &ProcessState) -> impl Iterator<Item = &KernelRun> {
    let work = state.streams.iter().flat_map(|stream| &stream.work);
    work.filter_map(|item| match &item.work {
        StateWork::Resume(run) => Some(&**run),
        _ => None,
    })
}

/// Leaves their workspaces to stopped launches, before others take any.
fn keep_workspaces(session: &Session, state: &ProcessState, kernels: &[Arc<ProbedKernel>]) {
    let modules = session.modules.lock();
    for run in stopped(state) {
        let probed = kernels.get(run.probed_kernel as usize);
        if let Some(addr) = probed.and_then(|probed| workspace_of(&probed.kernel, &run.params)) {
            modules.keep_grid_workspace(addr);
        }
    }
}

fn rebuild_queues(session: &Session, state: &mut ProcessState) -> Result<Queues, ServerError> {
    let mut kernels = Vec::new();
    for stored in &state.probed_kernels {
        let kernel =
            hetckpt_ir::text::parse::kernel(&stored.text).map_err(|e| damaged(format!("{}: {e}", stored.name)))?;
        kernels.push(Arc::new(ProbedKernel::new(kernel, session.builder.clone())));
    }
    ensure_room(session.app_pid, state, &kernels, available_memory())?;
    keep_workspaces(session, state, &kernels);
    let mut streams = Vec::new();
    for stored in std::mem::take(&mut state.streams) {
        if stored.submitted.checked_sub(stored.completed) != Some(stored.work.len() as u64) {
            return Err(damaged(format!("stream {} has lost work", stored.id)));
        }
        let stream = StoredStream {
            non_blocking: stored.non_blocking,
            priority: stored.priority,
            is_destroyed: stored.is_destroyed,
            completed: stored.completed,
            queue: items(session, state, stored.id, stored.work, &kernels)?,
        };
        streams.push((stored.id, stream));
    }
    let mut waiters = Vec::new();
    for p in &state.pending {
        waiters.push(Waiter {
            what: Awaiting {
                envelope: Envelope {
                    reply: p.reply.map(SlotId),
                    command: held_commands::waiting(p.command),
                },
                since: Instant::now(),
            },
            after: p.after.clone(),
        });
    }
    let done = state.host_functions_done.iter().copied();
    let order = Order::restored(loading(&*session.device), streams, waiters, done, state.fault);
    let mut queues = Queues::new(order, Duration::from_nanos(state.clock_ns));
    for e in &state.events {
        let event = Event {
            timing: e.timing,
            latest: e.latest,
            time: e.time_ns.map(Duration::from_nanos),
            on_device: None,
        };
        queues.events.insert(e.id, event);
    }
    Ok(queues)
}

fn items(
    session: &Session,
    state: &ProcessState,
    stream: u64,
    work: Vec<WorkItem>,
    kernels: &[Arc<ProbedKernel>],
) -> Result<Vec<Item>, ServerError> {
    let item = |stored: WorkItem| {
        let what = match stored.work {
            StateWork::Command(command) => match held_commands::in_stream(command, stream) {
                None => What::Ran { num_launches: 1 },
                Some(command) => work_of(session, command, None)
                    .map_err(|result| damaged(format!("a launch that cannot be made (CUresult {result})")))?,
            },
            StateWork::Resume(mut run) => {
                let at = run.probed_kernel as usize;
                let (Some(probed), Some(text)) = (kernels.get(at), state.probed_kernels.get(at)) else {
                    return Err(damaged("a launch without a kernel"));
                };
                let grid = grid_from_state(&mut run, &probed.kernel, &probed.layout, &text.resume_points);
                let grid = grid.map_err(damaged)?;
                if (run.params.len() as u64) < u64::from(probed.kernel.param_bytes()) {
                    return Err(damaged("a launch with too few parameters"));
                }
                let points = StartPoints::of(&grid, run.shape.num_blocks(), &probed.kernel, run.in_step);
                let spec = LaunchSpec {
                    build_before: Vec::new(),
                    kernel: None,
                    shape: run.shape,
                    room: launch::room_of(&*session.device, &run.shape),
                    params: Arc::from(run.params.as_slice()),
                    command: None,
                };
                let stopped = Stopped {
                    spec: Arc::new(spec),
                    probed: Arc::clone(probed),
                    grid: Arc::new(grid),
                    points,
                };
                What::Resume(stopped)
            }
            StateWork::AwaitHostFunction(id) => What::AwaitHostFunction(id),
        };
        let reply = stored.reply.map(SlotId);
        Ok(Item {
            work: Work { what, reply },
            after: stored.after,
        })
    };
    work.into_iter().map(item).collect()
}

/// Builds the continuations of all stopped launches, at once on several threads.
fn build_stopped(queues: &Queues) -> Result<(), ServerError> {
    let queued = queues.order.streams().flat_map(|(_, s)| s.queue());
    let stopped: Vec<&Stopped> = queued
        .filter_map(|item| match &item.work.what {
            What::Resume(stopped) => Some(stopped),
            _ => None,
        })
        .collect();
    let results: Vec<Result<(), ServerError>> = std::thread::scope(|scope| {
        let build = |stopped: &Stopped| {
            let kernel = stopped.probed.kernel.name.clone();
            let built = launch::build_stopped(stopped);
            built
                .map(drop)
                .map_err(|reason| ServerError::Rebuild { kernel, reason })
        };
        let threads: Vec<_> = stopped.iter().map(|s| scope.spawn(move || build(s))).collect();
        let lost = || Err(damaged("a thread was lost"));
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| lost()))
            .collect()
    });
    results.into_iter().collect()
}

/// Makes sure that the device can run all stopped launches: the program cannot be told any more that they are too
/// large.
fn check_stopped(session: &Session, queues: &Queues) -> Result<(), ServerError> {
    let queue = session.device.create_queue(0)?;
    let queued = queues.order.streams().flat_map(|(_, s)| s.queue());
    for item in queued.filter(|item| matches!(item.work.what, What::Resume(_))) {
        launch::check(&*queue, &item.work)?;
    }
    Ok(())
}

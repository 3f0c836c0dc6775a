//! From a stopped device and its queues to the files of a snapshot.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hetckpt_abi::array::ArrayShape;
use hetckpt_abi::image_object::{ImageHandle, ImageObject};
use hetckpt_archive::chunk::{ChunkError, write_memory};
use hetckpt_archive::known_pieces::KnownPieces;
use hetckpt_archive::memory_file::{MemoryFile, WrittenFile};
use hetckpt_archive::packed_state;
use hetckpt_devices::error::DeviceError;
use hetckpt_ring::command::DeviceIndex;
use hetckpt_ring::server_side::ServerSide;
use hetckpt_ring::version::PROTOCOL_VERSION;
use hetckpt_state::allocation::PinnedMemory;
use hetckpt_state::array::{ArrayState, ImageState};
use hetckpt_state::command::StreamCommand;
use hetckpt_state::kernel_run::{KernelRun, ProbedKernel as StateKernel};
use hetckpt_state::memory_index::MemoryIndex;
use hetckpt_state::module::{GlobalState, PlacedVariable};
use hetckpt_state::native_code::NativeCode;
use hetckpt_state::process::{CaptureDevice, DeviceState, ProcessState};
use hetckpt_state::queue::{EventState, PendingCommand, StreamState, Work as StateWork, WorkItem};
use hetckpt_state::summary::{Description, MemberFile, Summary};
use parking_lot::Mutex;

use crate::arrays::Arrays;
use crate::error::ServerError;
use crate::held_commands;
use crate::kernels::ProbedKernel;
use crate::modules::Modules;
use crate::moved_variables::Pointed;
use crate::pause::is_held;
use crate::queues::{Item, Queues, Reading, Stopped, What};
use crate::run_as;
use crate::session::Session;
use crate::state_output::{Part, StateOutput};
use crate::thread_state::{resume_point_registers, to_state};

/// How long the reader of the ring has to empty it.
const DRAIN_DEADLINE: Duration = Duration::from_secs(20);

/// What was written.
pub struct Captured {
    /// Names of the files.
    pub files: Vec<String>,
    /// Device memory, before compression.
    pub memory_bytes: u64,
}

/// Writes the state of the application to `output`. The pause must be held.
///
/// # Errors
/// [`ServerError`]; files may be left behind, the application can go on.
pub fn capture(session: &Arc<Session>, output: &impl StateOutput, commands: Commands) -> Result<Captured, ServerError> {
    let device = &session.device;
    begin(session, commands)?.write(output, |addr, bytes| device.read(addr, bytes))
}

/// Takes the state of the application, but the content of its memory. The pause must be held.
///
/// # Errors
/// [`ServerError`]; the application can go on.
pub fn begin(session: &Arc<Session>, commands: Commands) -> Result<Taken, ServerError> {
    if !is_held(session) {
        return Err(ServerError::WrongMoment("capture without a pause"));
    }
    let started = Instant::now();
    stop_reading(session, commands)?;
    let state = collect(session)?;
    let moved = session.moved.read();
    let is_moved = |variable: &PlacedVariable| {
        let addr = state.address_of(variable).unwrap_or(0);
        moved.actual(addr) != addr
    };
    Ok(Taken {
        pointed: pointed(session, &state),
        are_moved: state.variables.iter().map(is_moved).collect(),
        label: session.label(),
        native_code: session.modules.lock().native_code(),
        started,
        state,
    })
}

/// The state of an application, to be written with the content of its memory.
pub struct Taken {
    state: ProcessState,
    /// The variables that the device has placed, to be looked for in memory.
    pointed: Pointed,
    /// Those of them that a restore has moved.
    are_moved: Vec<bool>,
    label: String,
    native_code: Vec<NativeCode>,
    started: Instant,
}

impl Taken {
    /// What is mapped: addresses and bytes.
    #[must_use]
    pub fn mapped(&self) -> Vec<(u64, u64)> {
        let mappings = self.state.mappings.iter();
        mappings.map(|mapping| (mapping.addr, mapping.size_bytes)).collect()
    }

    /// What [`Self::write`] will write.
    #[must_use]
    pub fn announced(&self) -> Captured {
        let parts = [Part::Description, Part::State, Part::Memory];
        Captured {
            files: parts.map(|part| part.name(self.state.pid)).into(),
            memory_bytes: self.state.mappings.iter().map(|m| m.size_bytes).sum(),
        }
    }

    /// Writes it to `output`, with memory as `read` gives it, which several threads call at once.
    ///
    /// # Errors
    /// [`ServerError`]; files may be left behind.
    pub fn write(
        self,
        output: &impl StateOutput,
        read: impl Fn(u64, &mut [u8]) -> Result<(), DeviceError> + Sync,
    ) -> Result<Captured, ServerError> {
        let announced = self.announced();
        let Self {
            mut state,
            pointed,
            are_moved,
            label,
            native_code,
            started,
        } = self;
        let pid = state.pid;
        let create = |part: Part| output.create(part, pid).map_err(of_part(part, pid));
        let [state_name, memory_name] = [Part::State, Part::Memory].map(|part| part.name(pid));

        let file;
        let memory_file = match (output.archive(), output.several_files()) {
            (Some(archive), _) => MemoryFile::in_archive(&archive.file, &archive.member),
            (None, Some(kept)) => Ok(MemoryFile::in_stripes(kept.files())),
            (None, None) => {
                file = create(Part::Memory)?;
                MemoryFile::new(&file)
            }
        };
        let memory_file = memory_file.map_err(of_part(Part::Memory, pid))?;
        let found = Mutex::new(BTreeSet::new());
        let look = |bytes: &[u8]| {
            let mut numbers = pointed.find(bytes).peekable();
            if numbers.peek().is_some() {
                found.lock().extend(numbers);
            }
        };
        let read = |addr, bytes: &mut [u8]| -> Result<(), DeviceError> {
            read(addr, bytes)?;
            look(bytes);
            Ok(())
        };
        let nothing = KnownPieces::default();
        let known = output.archive().map_or(&nothing, |archive| &archive.known);
        let written = write_memory(&memory_file, &state.mappings, known, read)
            .map_err(|error| of_chunk_error(error, &memory_name))?;
        state.memory = written.index;
        match memory_file.finish().map_err(of_part(Part::Memory, pid))? {
            WrittenFile::Whole => {}
            WrittenFile::Parts(mut parts) => {
                parts.borrowed = written.borrowed;
                let json = serde_json::to_vec(&parts).map_err(|e| ServerError::Damaged(e.into()))?;
                let mut file = create(Part::MemoryParts)?;
                file.write_all(&json).map_err(of_part(Part::MemoryParts, pid))?;
            }
            WrittenFile::Placed(place) => output
                .several_files()
                .into_iter()
                .for_each(|kept| kept.set_place(place.clone())),
        }
        state.variables.iter().for_each(|variable| look(&variable.bytes));
        state.arrays.iter().for_each(|array| look(&array.bytes));
        for stream in &state.streams {
            for item in &stream.work {
                if let StateWork::Resume(run) = &item.work {
                    look(&run.params);
                }
            }
        }
        for number in found.into_inner() {
            let variable = &state.variables[number];
            if are_moved[number] {
                return Err(ServerError::OutOfReach {
                    module: variable.module,
                    what: format!(
                        "variable `{}`, which a restore has moved and whose new address device memory holds",
                        variable.name
                    ),
                });
            }
            state.variables[number].is_pointed_at = true;
        }

        let compressed = packed_state::pack(&state).map_err(|e| ServerError::Damaged(e.into()))?;
        let mut file = create(Part::State)?;
        file.write_all(&compressed).map_err(of_part(Part::State, pid))?;

        let description = Description {
            format_version: state.format_version(),
            summary: Summary {
                label,
                native_code,
                ..Summary::of(&state)
            },
            members: vec![
                MemberFile {
                    name: state_name,
                    size_bytes: compressed.len() as u64,
                    blake3: blake3::hash(&compressed).to_hex().to_string(),
                },
                MemberFile {
                    name: memory_name,
                    size_bytes: state.memory.stored_bytes(),
                    blake3: String::new(),
                },
            ],
            server_user: Some(run_as::own_user()),
        };
        let json = serde_json::to_vec_pretty(&description).map_err(|e| ServerError::Damaged(e.into()))?;
        let mut file = create(Part::Description)?;
        file.write_all(&json).map_err(of_part(Part::Description, pid))?;
        tracing::info!(
            elapsed = ?started.elapsed(),
            memory_bytes = announced.memory_bytes,
            stored_bytes = state.memory.stored_bytes(),
            state_bytes = compressed.len(),
            "captured"
        );
        Ok(announced)
    }
}

/// The error for a file of the state.
pub fn of_part(part: Part, pid: u32) -> impl FnOnce(std::io::Error) -> ServerError {
    move |source| ServerError::File {
        path: PathBuf::from(part.name(pid)),
        source,
    }
}

/// What a chunk's failure is to the server.
pub fn of_chunk_error(error: ChunkError<DeviceError>, name: &str) -> ServerError {
    match error {
        ChunkError::Device { addr, source } => ServerError::Transfer {
            what: format!("device memory at {addr:#x}"),
            source,
        },
        ChunkError::File(source) => ServerError::File {
            path: PathBuf::from(name),
            source,
        },
        error @ ChunkError::TooMany { .. } => ServerError::File {
            path: PathBuf::from(name),
            source: std::io::Error::new(std::io::ErrorKind::FileTooLarge, error),
        },
        error @ (ChunkError::Index { .. } | ChunkError::Hash { .. }) => ServerError::Damaged(error.into()),
    }
}

/// What becomes of commands that the application has given and that have not been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commands {
    /// They are taken in. The application gives no more: it is frozen.
    TakenIn,
    /// They stay in the ring.
    Left,
}

/// Stops the reader of the ring.
fn stop_reading(session: &Session, commands: Commands) -> Result<(), ServerError> {
    let side = session
        .side
        .get()
        .ok_or(ServerError::WrongMoment("no application is connected"))?;
    let started = Instant::now();
    let mut queues = session.queues.lock();
    session
        .stops_at_once
        .store(commands == Commands::Left, Ordering::Relaxed);
    if queues.reading == Reading::On {
        queues.reading = Reading::Stop;
    }
    while queues.reading != Reading::Stopped || !queues.order.is_quiet() {
        if started.elapsed() > DRAIN_DEADLINE {
            queues.reading = Reading::On;
            return Err(ServerError::WrongMoment(
                "commands of the application are still being worked on",
            ));
        }
        // Again and again: a wake-up just before the reader goes to sleep is lost.
        side.wake_reader();
        session.changed.wait_for(&mut queues, Duration::from_millis(1));
    }
    Ok(())
}

fn collect(session: &Session) -> Result<ProcessState, ServerError> {
    let description = session.device.describe();
    let modules = session.modules.lock();
    let arrays = session.arrays.lock();
    let memory = session.memory.lock();
    let queues = session.queues.lock();
    if let Some((module, what)) = modules.unreachable() {
        return Err(ServerError::OutOfReach { module, what });
    }
    let mut kernels = Kernels::default();
    let streams = queues
        .order
        .streams()
        .map(|(id, s)| {
            let work = s
                .queue()
                .map(|item| state_items(item, &mut kernels))
                .collect::<Result<Vec<_>, _>>()?
                .concat();
            Ok(StreamState {
                id,
                device: DeviceIndex::FIRST.0,
                non_blocking: s.is_non_blocking(),
                priority: s.priority(),
                is_destroyed: s.is_destroyed(),
                submitted: s.submitted(),
                completed: s.completed(),
                work,
            })
        })
        .collect::<Result<_, ServerError>>()?;
    let pending = queues
        .order
        .waiters()
        .iter()
        .map(|waiter| {
            Ok(PendingCommand {
                command: held_commands::of_waiting(&waiter.what.envelope.command)?,
                reply: waiter.what.envelope.reply.map(|slot| slot.0),
                after: waiter.after.clone(),
            })
        })
        .collect::<Result<_, ServerError>>()?;
    let pinned = session.pinned.areas().into_iter();
    Ok(ProcessState {
        pid: session.app_pid,
        // As long as the program lives, it speaks as the driver library that it has started with.
        ring_version: session.side.get().map_or(PROTOCOL_VERSION, ServerSide::version),
        devices: vec![DeviceState {
            captured_on: CaptureDevice {
                kind: description.kind.to_owned(),
                name: description.name,
                driver: description.driver,
            },
            virtual_device: session.state_virtual_device(),
        }],
        fault: queues.order.fault(),
        clock_ns: nanoseconds(queues.clock()),
        mappings: memory.mappings(),
        allocations: memory.allocations(),
        pinned: pinned
            .map(|a| PinnedMemory {
                addr: a.addr,
                size_bytes: a.size_bytes,
                fd: a.fd,
            })
            .collect(),
        modules: modules.to_state(),
        arriving: modules.arriving(),
        probed_kernels: kernels.listed,
        streams,
        pending,
        host_functions_done: queues.order.host_functions_done().collect(),
        events: events(&queues),
        memory: MemoryIndex::default(),
        variables: placed_variables(session, &modules)?,
        arrays: contents(session, &arrays)?,
        images: arrays.images().map(image).collect(),
    })
}

/// Arrays, with what the device has in them.
fn contents(session: &Session, arrays: &Arrays) -> Result<Vec<ArrayState>, ServerError> {
    let read = |(number, &shape): (u64, &ArrayShape)| {
        let too_large = ServerError::WrongMoment("an array is larger than memory");
        let length = shape.content_bytes().and_then(|bytes| usize::try_from(bytes).ok());
        let mut bytes = vec![0; length.ok_or(too_large)?];
        let mut rest = &mut *bytes;
        for level in 0..shape.num_levels() {
            let length = shape.level(level).and_then(|size| usize::try_from(size.bytes()?).ok());
            let (of_level, others) = rest.split_at_mut(length.unwrap_or(0).min(rest.len()));
            let read = session.device.read_array(number, level, of_level);
            read.map_err(|source| ServerError::Transfer {
                what: format!("array {number}, of {:?} elements", shape.size),
                source,
            })?;
            rest = others;
        }
        Ok(ArrayState {
            number,
            device: DeviceIndex::FIRST.0,
            shape,
            bytes,
        })
    };
    arrays.shapes().map(read).collect()
}

fn image((image, &object): (ImageHandle, &ImageObject)) -> ImageState {
    ImageState {
        value: image.value,
        device: DeviceIndex::FIRST.0,
        object,
    }
}

/// The variables that the device has placed, to be looked for in memory.
fn pointed(session: &Session, state: &ProcessState) -> Pointed {
    let moved = session.moved.read();
    let address = |variable: &PlacedVariable| {
        let addr = state.address_of(variable).unwrap_or(0);
        (moved.actual(addr), variable.bytes.len() as u64)
    };
    Pointed::new(state.variables.iter().map(address))
}

/// Variables that the device has placed, read from it.
fn placed_variables(session: &Session, modules: &Modules) -> Result<Vec<PlacedVariable>, ServerError> {
    let moved = session.moved.read();
    let read = |(module, variable): (u64, &GlobalState)| {
        let too_large = ServerError::WrongMoment("a variable is larger than memory");
        let mut bytes = vec![0; usize::try_from(variable.size_bytes).map_err(|_| too_large)?];
        let addr = moved.actual(variable.addr);
        let read = session.device.read(addr, &mut bytes);
        read.map_err(|source| ServerError::Transfer {
            what: format!(
                "variable `{}` of module {module}, {} bytes at {addr:#x}",
                variable.name, variable.size_bytes
            ),
            source,
        })?;
        Ok(PlacedVariable {
            module,
            name: variable.name.clone(),
            is_pointed_at: false,
            bytes,
        })
    };
    modules.placed_variables().map(read).collect()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn events(queues: &Queues) -> Vec<EventState> {
    let event = |(&id, e): (&u64, &crate::queues::Event)| EventState {
        id,
        device: DeviceIndex::FIRST.0,
        timing: e.timing,
        latest: e.latest,
        time_ns: e.time.map(nanoseconds),
    };
    let mut events: Vec<EventState> = queues.events.iter().map(event).collect();
    events.sort_unstable_by_key(|e| e.id);
    events
}

/// Probed kernels that stopped launches refer to, each once.
#[derive(Default)]
struct Kernels {
    listed: Vec<StateKernel>,
    known: Vec<*const ProbedKernel>,
    /// Index of the next one.
    next: u32,
}

impl Kernels {
    fn index_of(&mut self, probed: &Arc<ProbedKernel>) -> u32 {
        let pointer = Arc::as_ptr(probed);
        if let Some((at, _)) = (0u32..).zip(&self.known).find(|&(_, &p)| std::ptr::eq(p, pointer)) {
            return at;
        }
        self.known.push(pointer);
        self.listed.push(StateKernel {
            name: probed.kernel.name.clone(),
            text: hetckpt_ir::text::print::kernel(&probed.kernel),
            static_shared_bytes: probed.kernel.shared.static_bytes,
            resume_points: resume_point_registers(&probed.kernel, &probed.layout),
        });
        let at = self.next;
        self.next += 1;
        at
    }
}

/// An item in the snapshot's words: one for each of its places.
fn state_items(item: &Item, kernels: &mut Kernels) -> Result<Vec<WorkItem>, ServerError> {
    let one_of_several = |command| WorkItem {
        work: StateWork::Command(command),
        reply: None,
        after: item.after.clone(),
    };
    match &item.work.what {
        What::Graph(run) => {
            let step = |step| Ok(one_of_several(held_commands::of_stream(step, None)?));
            run.steps.iter().map(step).collect()
        }
        What::Ran { num_launches } if *num_launches > 1 => {
            let ran = (0..*num_launches).map(|_| Ok(one_of_several(StreamCommand::Nothing)));
            ran.collect()
        }
        _ => Ok(vec![state_item(item, kernels)?]),
    }
}

fn state_item(item: &Item, kernels: &mut Kernels) -> Result<WorkItem, ServerError> {
    let work = match &item.work.what {
        What::Command { command, data, .. } => StateWork::Command(held_commands::of_stream(command, data.as_deref())?),
        What::Start(spec) => {
            let missing = ServerError::WrongMoment("a launch is held back whose command is not known");
            let command = spec.command.as_ref().ok_or(missing)?;
            StateWork::Command(held_commands::of_stream(command, None)?)
        }
        What::Resume(stopped) => StateWork::Resume(Box::new(run(stopped, kernels))),
        // The reply is due.
        What::Ran { .. } => StateWork::Command(StreamCommand::Nothing),
        What::Graph(_) => return Err(ServerError::WrongMoment("a graph is held back as one step")),
        What::AwaitHostFunction(id) => StateWork::AwaitHostFunction(*id),
    };
    Ok(WorkItem {
        work,
        reply: item.work.reply.map(|slot| slot.0),
        after: item.after.clone(),
    })
}

fn run(stopped: &Stopped, kernels: &mut Kernels) -> KernelRun {
    let probed = &stopped.probed;
    let points = resume_point_registers(&probed.kernel, &probed.layout);
    let spec = &stopped.spec;
    KernelRun {
        probed_kernel: kernels.index_of(probed),
        shape: spec.shape,
        params: spec.params.to_vec(),
        stopped: stopped
            .grid
            .paused
            .iter()
            .map(|b| to_state(b, &probed.layout, &points))
            .collect(),
        not_started: stopped.grid.not_started.clone(),
        in_step: stopped.points.as_ref().is_none_or(|start| start.in_step),
    }
}

//! What streams give to the device, and what becomes of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use rustc_hash::FxHashMap;

use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_abi::thread_state::FINISHED;
use hetckpt_devices::device::{MAX_QUEUED_BYTES, Outcome, Queue, RunningLaunch, Transfer};
use hetckpt_devices::error::DeviceError;
use hetckpt_order::order::{Landed, Phase};
use hetckpt_order::stream::InPause;
use hetckpt_ring::command::{Command, Envelope, Payload, Rows};
use hetckpt_ring::reply::Reply;

use crate::counters::Activity;
use crate::cuda_result;
use crate::graph_parts::{GraphRun, StoppableStep};
use crate::kernels::ProbedKernel;
use crate::launch::{launch, refused, waited};
use crate::launch_spec::LaunchSpec;
use crate::queues::{Awaiting, By, Event, Lane, Lookout, OnDevice, Queues, Stopped, What, Work};
use crate::session::Session;
use crate::start_points::StartPoints;
use crate::stream_operations::{activity_of, answer_read, give_chunk_back, is_device_memory, is_known};
use crate::transfers::{ranges, transfer_of};

/// What is given to the device before others get at the queues again.
const GIVEN_TOGETHER: usize = 16;

/// Gives the front items of a stream to the device. The driver is called without the lock.
pub fn give_front<'a>(session: &'a Session, mut queues: MutexGuard<'a, Queues>, stream: u64) -> MutexGuard<'a, Queues> {
    queues.order.begin_give(stream, GIVEN_TOGETHER);
    let works: Vec<(Work, Watch, InPause)> = {
        let Queues {
            order, lanes, events, ..
        } = &mut *queues;
        let lane = lanes.entry(stream).or_default();
        let given = order.giving(stream);
        given
            .map(|(work, in_pause)| (work.clone(), watch(lane, events, work, in_pause), in_pause))
            .collect()
    };
    if works.is_empty() {
        return queues;
    }
    let queue = match &queues.lane(stream).queue {
        Some(queue) => Ok(Arc::clone(queue)),
        None => {
            let priority = queues.order.stream(stream).map_or(0, |s| s.priority());
            let made = session.device.create_queue(priority).map(Arc::<dyn Queue>::from);
            queues.lane(stream).queue = made.as_ref().ok().cloned();
            made
        }
    };
    drop(queues);
    // It stays there: from `begin_give` on, something counts as running.
    let queue = session.managed.bring().and(queue);
    let give = |(work, watch, in_pause): &(Work, Watch, InPause)| match &queue {
        Ok(queue) => give(session, &**queue, work, *watch, *in_pause),
        Err(error) => refused(error.clone()),
    };
    let (began, num_launches) = (
        Instant::now(),
        works.iter().map(|(work, ..)| work.num_launches()).sum::<usize>(),
    );
    let handles: Vec<OnDevice> = works.iter().map(give).collect();
    let counters = session.counters();
    counters.add_several(Activity::Launch, num_launches as u64, 0, began.elapsed());
    let mut queues = session.queues.lock();
    for handle in handles {
        queues.order.given(stream, handle);
    }
    queues.order.free(stream);
    session.changed.notify_all();
    queues
}

/// What is to be seen of something that is given to the device.
#[derive(Clone, Copy)]
enum Watch {
    /// That it is done, sooner or later.
    Nothing,
    /// When an event was recorded.
    Time,
    /// At once that a graph is done.
    End {
        /// How long what stands before it takes, since the last thing that was watched.
        before: Duration,
    },
}

fn watch(lane: &mut Lane, events: &FxHashMap<u64, Event>, work: &Work, in_pause: InPause) -> Watch {
    match &work.what {
        What::Command {
            command: Command::EventRecord { event, .. },
            ..
        } if events.get(&event.0).is_some_and(|event| event.timing) => Watch::Time,
        // The next can come once it is over.
        What::Graph(_) if in_pause == InPause::Stops => Watch::End { before: Duration::ZERO },
        What::Graph(run) => {
            let before = run.pace.begin(&mut lane.unwatched);
            before.map_or(Watch::Nothing, |before| Watch::End { before })
        }
        _ => Watch::Nothing,
    }
}

fn give(session: &Session, queue: &dyn Queue, work: &Work, watch: Watch, in_pause: InPause) -> OnDevice {
    let (command, by) = match &work.what {
        What::Command { command, by, .. } => (command, by),
        What::Graph(run) => return launch_graph(session, queue, run, watch, in_pause).unwrap_or_else(refused),
        _ => {
            tracing::trace!(kernel = work.kernel_name(), "launched");
            return launch(queue, work, in_pause);
        }
    };
    let elsewhere = session.moved.read().in_command(command);
    let given = match elsewhere.as_ref().unwrap_or(command) {
        Command::EventRecord { .. } => queue.record(matches!(watch, Watch::Time)).map(OnDevice::Record),
        Command::CopyOut { src, .. } => {
            let size_bytes = if is_device_memory(session, src.addr, src.width) {
                src.width
            } else {
                // Its turn comes when it lands.
                0
            };
            queue.read(src.addr, size_bytes).map(OnDevice::Read)
        }
        Command::CopyIn { dst, data, .. } => copy_in(session, queue, dst, data).map(waited),
        // A mark; what there is to do is done when it lands.
        _ if *by == By::Follower => queue.read(0, 0).map(OnDevice::Read),
        command => transfer(session, queue, command).map(waited),
    };
    given.unwrap_or_else(refused)
}

fn transfer(session: &Session, queue: &dyn Queue, command: &Command) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
    let transfer = transfer_of(command).ok_or(DeviceError::NotBuilt("it is no transfer".to_owned()))?;
    check_known(session, ranges(&transfer).into_iter().flatten())?;
    queue.transfer(&transfer)
}

/// Copies what the application has sent to one range of memory. A chunk is given back when that has landed.
fn copy_in(
    session: &Session,
    queue: &dyn Queue,
    dst: &Rows,
    data: &Payload,
) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
    check_known(session, std::iter::once((dst.addr, dst.width)))?;
    let lost = |reason: String| DeviceError::Driver { call: "copy", reason };
    let side = session.side.get();
    let side = side.ok_or_else(|| lost("the application is not there yet".to_owned()))?;
    let bytes = match data {
        Payload::Inline(bytes) => bytes,
        Payload::Staged(chunk) => side.chunk_bytes(*chunk).map_err(|error| lost(error.to_string()))?,
    };
    if dst.width <= MAX_QUEUED_BYTES {
        return queue.write(dst.addr, bytes);
    }
    session.pin_chunks(side);
    queue.transfer(&Transfer::Copy {
        dst: dst.addr,
        src: bytes.as_ptr() as u64,
        size_bytes: dst.width,
    })
}

fn launch_graph(
    session: &Session,
    queue: &dyn Queue,
    run: &GraphRun,
    watch: Watch,
    in_pause: InPause,
) -> Result<OnDevice, DeviceError> {
    check_known(session, run.ranges.iter().copied())?;
    tracing::trace!(steps = run.steps.len(), "launched as a graph");
    let watched = match watch {
        Watch::End { before } => Some(before),
        Watch::Nothing | Watch::Time => None,
    };
    let since = Instant::now();
    let running = queue.launch_graph(run.graph(in_pause), watched.is_some())?;
    if in_pause == InPause::Stops {
        return Ok(OnDevice::Launch { running, probed: None });
    }
    Ok(OnDevice::Waited {
        running,
        since,
        watched,
    })
}

/// Makes sure that all of it is the application's: the driver would take any memory of this process.
fn check_known(session: &Session, mut ranges: impl Iterator<Item = (u64, u64)>) -> Result<(), DeviceError> {
    match ranges.find(|&(addr, size)| !is_known(session, addr, size)) {
        Some((addr, size_bytes)) => Err(DeviceError::Fault {
            kernel: "a copy or a fill".to_owned(),
            reason: format!("{addr:#x}+{size_bytes:#x} is neither device memory nor pinned memory"),
            cuda_result: cuda_result::INVALID_VALUE,
        }),
        None => Ok(()),
    }
}

/// Takes in what has landed of a stream, as long as the reader of the ring looks after it. Returns whether anything
/// has, and what may be carried out now.
pub fn poll(session: &Session, queues: &mut Queues, stream: u64) -> (bool, Vec<Awaiting>) {
    let (mut has_landed, mut released) = (false, Vec::new());
    while queues.lookout == Lookout::Reader
        && matches!(queues.order.phase(), Phase::Running | Phase::Rebuilding)
        && let Some(first) = queues.order.first_flight(stream)
        && first.handle.is_done()
    {
        let outcome = outcome(&first.handle.clone());
        released.extend(land(session, queues, stream, outcome));
        has_landed = true;
    }
    (has_landed, released)
}

/// How a launch has ended; `None` for what is no launch. After a pause this fetches what is left of it.
#[must_use]
pub fn outcome(handle: &OnDevice) -> Option<Outcome> {
    match handle {
        OnDevice::Launch { running, .. } | OnDevice::Waited { running, .. } => Some(running.wait()),
        OnDevice::Record(_) | OnDevice::Read(_) => None,
    }
}

/// Enters how the first flight of `stream` has ended ([`outcome`]). Returns what may be carried out now.
pub fn land(session: &Session, queues: &mut Queues, stream: u64, outcome: Option<Outcome>) -> Vec<Awaiting> {
    let Some(flight) = queues.order.landed(stream) else {
        return Vec::new();
    };
    if let OnDevice::Waited { since, watched, .. } = flight.handle {
        let took = since.elapsed();
        let lane = queues.lane(stream);
        lane.window.landed(took);
        let most = lane.window.most();
        if let (What::Graph(run), Some(before)) = (&flight.work.what, watched) {
            let now = Instant::now();
            // What stood before it has not taken from its own time.
            let began = lane.landed_at.replace(now).map_or(since, |landed| landed.max(since));
            let own = (now - began).saturating_sub(before);
            let length = run.pace.ended(own);
            session.graph_parts.lock().landed(run.part, run.steps.len(), length);
        }
        queues.order.set_window(stream, most);
        count(session, &flight.work, took);
    }
    match (outcome, flight.handle) {
        (Some(Outcome::Paused(_)), OnDevice::Waited { .. }) => {
            // None of it has begun.
            queues.order.land_stopped(stream, [flight.work]);
            Vec::new()
        }
        (Some(Outcome::PausedSteps(left)), _) => {
            land_stopped_graph(session, queues, stream, flight.work, left);
            Vec::new()
        }
        (Some(Outcome::Paused(grid)), OnDevice::Launch { probed, .. }) => {
            land_stopped(session, queues, stream, flight.work, probed, grid);
            Vec::new()
        }
        (Some(Outcome::Failed(error)), _) => {
            fail(session, queues, &flight.work, &error);
            land_done(session, queues, stream, flight.work)
        }
        (_, OnDevice::Record(event)) => {
            if let Err(error) = event.wait() {
                fail(session, queues, &flight.work, &error);
            }
            let of_event = match &flight.work.what {
                What::Command {
                    command: Command::EventRecord { event, .. },
                    ..
                } => Some(event.0),
                _ => None,
            };
            let has_stopped = queues.order.stream(stream).is_some_and(|s| s.has_stopped());
            if let (Some(id), false) = (of_event, has_stopped) {
                queues.recorded(id, Some(event));
            }
            land_done(session, queues, stream, flight.work)
        }
        (_, OnDevice::Read(read)) => match queues.order.land_done(stream, flight.work) {
            Landed::Held => Vec::new(),
            Landed::Done { work, mut released } => {
                let result = answer_read(session, &work, queues.order.fault(), &*read);
                session.answer_behind_kernels(work.reply, result, &Reply::Nothing);
                if let Some(free) = free_of(&work) {
                    released.extend(queues.order.wait_for(free, Vec::new()));
                }
                released
            }
        },
        (_, OnDevice::Launch { .. } | OnDevice::Waited { .. }) => land_done(session, queues, stream, flight.work),
    }
}

/// What is left to do of a free in a stream's order whose turn has come.
fn free_of(work: &Work) -> Option<Awaiting> {
    match work.what {
        What::Command {
            command: Command::FreeAsync { addr, .. },
            ..
        } => Some(Awaiting {
            envelope: Envelope {
                reply: None,
                command: Command::Free { addr },
            },
            since: Instant::now(),
        }),
        _ => None,
    }
}

/// Counts a copy or a fill that the device has done.
fn count(session: &Session, work: &Work, took: Duration) {
    if let What::Command { command, .. } = &work.what
        && let Some((activity, bytes)) = activity_of(command)
    {
        session.counters().add(activity, bytes, took);
    }
}

fn land_done(session: &Session, queues: &mut Queues, stream: u64, work: Work) -> Vec<Awaiting> {
    match queues.order.land_done(stream, work) {
        Landed::Held => Vec::new(),
        Landed::Done { work, released } => {
            if work.is_copy_in()
                && let What::Command { command, data, .. } = &work.what
            {
                give_chunk_back(session, command, data.is_some());
            }
            session.answer_behind_kernels(work.reply, queues.order.fault(), &Reply::Nothing);
            released
        }
    }
}

fn fail(session: &Session, queues: &mut Queues, work: &Work, error: &DeviceError) {
    let result = cuda_result::of_device_error(error);
    if queues.order.fail(result) {
        match work.kernel_name() {
            "" => tracing::error!(%error, "the device failed"),
            kernel => tracing::error!(%kernel, %error, "kernel failed"),
        }
        session.note_assertions(result);
        if let Some(side) = session.side.get() {
            side.set_fault(result);
        }
    }
}

/// True if a launch that came back as `grid` has run beyond its entry; `before` is what it was to go on with.
fn has_run(grid: &PausedGrid, before: Option<&PausedGrid>) -> bool {
    match before {
        // Threads that have ended need not have done anything.
        None => {
            let mut points = grid.paused.iter().flat_map(|block| &block.resume_points);
            points.any(|&point| point != 0 && point != FINISHED)
        }
        Some(b) => (grid.paused.len(), grid.num_not_started()) != (b.paused.len(), b.num_not_started()),
    }
}

fn land_stopped(
    session: &Session,
    queues: &mut Queues,
    stream: u64,
    work: Work,
    probed: Option<Arc<ProbedKernel>>,
    grid: PausedGrid,
) {
    if session.device.cuts_launches() {
        queues.order.cut();
    }
    let Work { what, reply } = work;
    let (spec, before): (Arc<LaunchSpec>, Option<Stopped>) = match what {
        What::Start(spec) => (spec, None),
        What::Resume(stopped) => (Arc::clone(&stopped.spec), Some(stopped)),
        What::Command { .. } | What::Ran { .. } | What::Graph(_) | What::AwaitHostFunction(_) => {
            return queues.order.land_stopped(stream, [Work { what, reply }]);
        }
    };
    let Some(probed) = probed else {
        // Refused, and not known yet why.
        let what = What::Start(spec);
        return queues.order.land_stopped(stream, [Work { what, reply }]);
    };
    let has_stopped = queues.order.stream(stream).is_some_and(|s| s.has_stopped());
    if has_stopped && has_run(&grid, before.as_ref().map(|b| &*b.grid)) {
        note_overtaken(queues, &probed);
    }
    let was_in_step = before
        .as_ref()
        .and_then(|b| b.points.as_ref())
        .is_none_or(|start| start.in_step);
    let what = left_of(session, spec, probed, grid, was_in_step);
    queues.order.land_stopped(stream, [Work { what, reply }]);
}

/// `left` is what a pause has left of one step after another.
fn land_stopped_graph(session: &Session, queues: &mut Queues, stream: u64, work: Work, left: Vec<PausedGrid>) {
    let What::Graph(run) = &work.what else {
        return queues.order.land_stopped(stream, [work]);
    };
    let mut has_stopped = queues.order.stream(stream).is_some_and(|s| s.has_stopped());
    let mut num_launches = 0;
    let mut works = Vec::new();
    for (step, grid) in run.stoppable().iter().zip(left) {
        if grid.is_finished() && works.is_empty() {
            num_launches += 1;
            continue;
        }
        let StoppableStep { spec, probed } = step.clone();
        if has_stopped && has_run(&grid, None) {
            note_overtaken(queues, &probed);
        }
        has_stopped = true;
        let what = if grid.is_finished() {
            What::Ran { num_launches: 1 }
        } else {
            left_of(session, spec, probed, grid, true)
        };
        works.push(Work::of(what));
    }
    let ran = (num_launches > 0).then(|| Work::of(What::Ran { num_launches }));
    queues.order.land_stopped(stream, ran.into_iter().chain(works));
}

fn note_overtaken(queues: &mut Queues, probed: &ProbedKernel) {
    let kernel = probed.kernel.name.clone();
    tracing::error!(%kernel, "a kernel ran although the one before it in its stream had stopped");
    queues.overtaken.get_or_insert(kernel);
}

/// What is to be done of a launch that came back as `grid`.
fn left_of(
    session: &Session,
    spec: Arc<LaunchSpec>,
    probed: Arc<ProbedKernel>,
    grid: PausedGrid,
    was_in_step: bool,
) -> What {
    let stays_in_step = was_in_step && session.builder.generator.keeps_in_step();
    let points = StartPoints::of(&grid, spec.shape.num_blocks(), &probed.kernel, stays_in_step);
    match points {
        None if spec.kernel.is_some() => What::Start(spec),
        points => What::Resume(Stopped {
            spec,
            probed,
            grid: Arc::new(grid),
            points,
        }),
    }
}

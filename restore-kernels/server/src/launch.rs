//! Launches: given to the device, and what becomes of them.

use std::sync::Arc;

use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_abi::thread_state::FINISHED;
use hetckpt_devices::device::{Blocks, Device, Launch, LoadedKernel, Outcome, Queue, Room, RunningLaunch};
use hetckpt_devices::error::DeviceError;
use hetckpt_ring::reply::Reply;

use crate::cuda_result;
use crate::kernels::{BuildError, BuildResult, ProbedKernel};
use crate::queues::{InFlight, Item, LaunchSpec, Pending, Queues, Stopped, Work};
use crate::session::Session;
use crate::start_points::StartPoints;

/// A launch that the device has refused: it takes its place among those in flight so that order is kept.
struct Refused(DeviceError);

impl RunningLaunch for Refused {
    fn is_done(&self) -> bool {
        true
    }
    fn wait(&self) -> Outcome {
        Outcome::Failed(self.0.clone())
    }
    fn wait_stopped(&self) {}
}

/// Blocks in a grid of a launch that can be (`hetckpt_state::kernel_run::is_launch_shape`).
#[must_use]
pub fn num_blocks(grid: [u32; 3]) -> u64 {
    grid.iter().fold(1, |product, &n| product.saturating_mul(u64::from(n)))
}

fn launch_of(spec: &LaunchSpec, kernel: Arc<dyn LoadedKernel>, blocks: Blocks) -> Launch {
    Launch {
        kernel,
        grid: spec.grid,
        block: spec.block,
        dynamic_shared_bytes: spec.dynamic_shared_bytes,
        params: Arc::clone(&spec.params),
        blocks,
        cooperative: spec.cooperative,
    }
}

/// Name of the kernel that an item launches.
#[must_use]
pub fn kernel_name(item: &Item) -> String {
    match &item.work {
        Work::Start(spec) => spec.kernel.as_ref().map(|k| k.name.clone()),
        Work::Resume(stopped) => Some(stopped.probed.kernel.name.clone()),
        Work::Command { .. } | Work::AwaitHostFunction(_) => None,
    }
    .unwrap_or_default()
}

/// What the device is to run for an item: the program must have been built.
fn prepare(item: &Item) -> Result<(Option<Arc<ProbedKernel>>, Launch), DeviceError> {
    let refuse = DeviceError::NotBuilt;
    let not_built = |error: BuildError| refuse(error.to_string());
    match &item.work {
        Work::Start(spec) => {
            let kernel = spec
                .kernel
                .as_ref()
                .ok_or_else(|| refuse("its module is gone".to_owned()))?;
            let (probed, loaded) = kernel.build_leaving(spec.room).map_err(not_built)?;
            Ok((probed, launch_of(spec, loaded, Blocks::All)))
        }
        Work::Resume(stopped) => {
            let loaded = build_stopped(stopped).map_err(not_built)?;
            let blocks = match stopped.points {
                None => Blocks::All,
                Some(_) => Blocks::Rest(Arc::clone(&stopped.grid)),
            };
            Ok((
                Some(Arc::clone(&stopped.probed)),
                launch_of(&stopped.spec, loaded, blocks),
            ))
        }
        Work::Command { .. } | Work::AwaitHostFunction(_) => Err(refuse("it is no launch".to_owned())),
    }
}

/// The program with which a stopped launch goes on. It has run before, so it has to.
///
/// # Errors
/// [`BuildError`].
pub fn build_stopped(stopped: &Stopped) -> BuildResult<Arc<dyn LoadedKernel>> {
    let (points, room) = (stopped.points.as_ref(), stopped.spec.room);
    stopped.probed.build_leaving(points, room, || true)
}

/// What a launch has to have room for on a multiprocessor of `device`: one block, or of a cooperative launch its share.
#[must_use]
pub fn room_of(device: &dyn Device, grid: [u32; 3], block: [u32; 3], cooperative: bool) -> Room {
    let threads = block.iter().fold(1, |product: u32, &n| product.saturating_mul(n));
    let blocks = if cooperative && device.has_registers() {
        let share = num_blocks(grid).div_ceil(u64::from(device.describe().num_multiprocessors.max(1)));
        u32::try_from(share).unwrap_or(u32::MAX)
    } else {
        1
    };
    Room { threads, blocks }
}

/// Builds what the item needs; takes as long as the compiler does.
pub fn build(item: &Item) {
    // A failure is remembered where it happened and reported by the launch.
    let failed = match &item.work {
        Work::Start(spec) => {
            for other in &spec.build_before {
                // Whether it can be built is for its own launch to say.
                let _ = other.build();
            }
            let kernel = spec.kernel.as_ref();
            kernel.and_then(|k| k.build_leaving(spec.room).err())
        }
        Work::Resume(stopped) => build_stopped(stopped).err(),
        Work::Command { .. } | Work::AwaitHostFunction(_) => None,
    };
    if let Some(reason) = failed {
        tracing::debug!(kernel = %kernel_name(item), %reason, "will not be launched");
    }
}

/// Makes sure that the device can run what is left of a stopped launch; builds it if it has not been.
///
/// # Errors
/// [`DeviceError::Launch`] names kernel, what it needs and what there is; [`DeviceError::NotBuilt`].
pub fn check(queue: &dyn Queue, item: &Item) -> Result<(), DeviceError> {
    let (_, launch) = prepare(item)?;
    queue.check(&launch)
}

/// Launches the first item of a stream.
pub fn launch_front(session: &Session, queues: &mut Queues, stream: u64) {
    let Some(s) = queues.streams.get_mut(&stream) else {
        return;
    };
    let Some(item) = s.queue.pop_front() else { return };
    queues.builds_before_launches = false;
    let queue = match &s.device_queue {
        Some(queue) => Ok(Arc::clone(queue)),
        None => session.device.create_queue(s.priority).map(Arc::<dyn Queue>::from),
    };
    let launched = queue.and_then(|queue| {
        s.device_queue = Some(Arc::clone(&queue));
        let (probed, launch) = prepare(&item)?;
        Ok((probed, queue.launch(launch)?))
    });
    let (probed, running) = launched.unwrap_or_else(|error| (None, Arc::new(Refused(error)) as _));
    tracing::trace!(stream, kernel = %kernel_name(&item), "launched");
    s.in_flight.push_back(InFlight { running, item, probed });
}

fn stopped_spec(item: &Item) -> Option<(Arc<LaunchSpec>, Option<&Stopped>)> {
    match &item.work {
        Work::Start(spec) => Some((Arc::clone(spec), None)),
        Work::Resume(stopped) => Some((Arc::clone(&stopped.spec), Some(stopped))),
        Work::Command { .. } | Work::AwaitHostFunction(_) => None,
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

/// Enters how the first launch in flight of `stream` ended. Returns pending commands that may be carried out now.
pub fn settle(session: &Session, queues: &mut Queues, stream: u64, outcome: Outcome) -> Vec<Pending> {
    let in_flight = queues.streams.get_mut(&stream).map(|s| &mut s.in_flight);
    let Some(launch) = in_flight.and_then(|launches| launches.pop_front()) else {
        return Vec::new();
    };
    let InFlight { item, probed, .. } = launch;
    let name = kernel_name(&item);
    let mut is_overtaking = false;
    let ready = match outcome {
        Outcome::Paused(grid) => {
            if !queues.is_paused && session.device.cuts_launches() {
                queues.is_cut = true;
                queues.is_paused = true;
            }
            if let (Some((spec, before)), Some(probed)) = (stopped_spec(&item), probed) {
                let was_in_step = before.and_then(|b| b.points.as_ref()).is_none_or(|start| start.in_step);
                let stays_in_step = was_in_step && session.builder.generator.keeps_in_step();
                let points = StartPoints::of(&grid, num_blocks(spec.grid), &probed.kernel, stays_in_step);
                let Some(s) = queues.streams.get_mut(&stream) else {
                    return Vec::new();
                };
                is_overtaking = !s.stopped.is_empty() && has_run(&grid, before.map(|b| &*b.grid));
                let work = match points {
                    None if spec.kernel.is_some() => Work::Start(spec),
                    points => Work::Resume(Stopped {
                        spec,
                        probed,
                        grid: Arc::new(grid),
                        points,
                    }),
                };
                s.stopped.push(Item {
                    work,
                    after: Vec::new(),
                    reply: item.reply,
                });
            }
            Vec::new()
        }
        // Behind a launch that has stopped, one can end whose threads had nothing to do.
        Outcome::Finished => {
            session.answer(item.reply, queues.fault, &Reply::Nothing);
            queues.complete(stream)
        }
        Outcome::Failed(error) => {
            let result = cuda_result::of_device_error(&error);
            if queues.fault == 0 {
                tracing::error!(kernel = %name, %error, "kernel failed");
                queues.fault = result;
                if let Some(side) = session.side.get() {
                    side.set_fault(result);
                }
            }
            session.answer(item.reply, result, &Reply::Nothing);
            queues.complete(stream)
        }
    };
    if is_overtaking {
        tracing::error!(kernel = %name, "a kernel ran although the one before it in its stream had stopped");
        queues.overtaken.get_or_insert(name);
    }
    if let Some(s) = queues.streams.get_mut(&stream)
        && s.in_flight.is_empty()
    {
        s.is_draining = false;
        for item in std::mem::take(&mut s.stopped).into_iter().rev() {
            s.queue.push_front(item);
        }
    }
    ready
}

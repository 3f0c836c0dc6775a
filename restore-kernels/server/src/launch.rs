//! Launches: what they need, and giving them to the device.

use std::sync::Arc;
use std::time::Instant;

use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_devices::device::{Blocks, Device, GraphStep, Launch, LoadedKernel, Outcome, Queue, Room, RunningLaunch};
use hetckpt_devices::error::DeviceError;
use hetckpt_order::stream::InPause;

use crate::kernels::{BuildError, BuildResult, ProbedKernel};
use crate::launch_spec::LaunchSpec;
use crate::queues::{OnDevice, Stopped, What, Work};

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

fn launch_of(spec: &LaunchSpec, kernel: Arc<dyn LoadedKernel>, blocks: Blocks) -> Launch {
    Launch {
        kernel,
        shape: spec.shape,
        params: Arc::clone(&spec.params),
        blocks,
    }
}

/// What the device is to run for a launch: the program must have been built.
fn prepare(work: &Work) -> Result<(Option<Arc<ProbedKernel>>, Launch), DeviceError> {
    let refuse = DeviceError::NotBuilt;
    let not_built = |error: BuildError| refuse(error.to_string());
    match &work.what {
        What::Start(spec) => {
            let kernel = spec
                .kernel
                .as_ref()
                .ok_or_else(|| refuse("its module is gone".to_owned()))?;
            let (probed, loaded) = kernel.build_leaving(spec.room).map_err(not_built)?;
            kernel.note_run();
            Ok((probed, launch_of(spec, loaded, Blocks::All)))
        }
        What::Resume(stopped) => {
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
        What::Command { .. } | What::Ran { .. } | What::Graph(_) | What::AwaitHostFunction(_) => {
            Err(refuse("it is no launch".to_owned()))
        }
    }
}

/// A launch as a graph of the device takes it, and its probed kernel if it can stop. Its program has been built.
///
/// # Errors
/// [`DeviceError`].
pub fn graph_step(work: &Work) -> Result<(GraphStep, Option<Arc<ProbedKernel>>), DeviceError> {
    let (probed, launch) = prepare(work)?;
    Ok((GraphStep::Launch(launch), probed))
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
pub fn room_of(device: &dyn Device, shape: &LaunchShape) -> Room {
    let threads = u32::try_from(shape.threads_per_block()).unwrap_or(u32::MAX);
    let blocks = if shape.cooperative && device.has_registers() {
        let share = shape
            .num_blocks()
            .div_ceil(u64::from(device.describe().num_multiprocessors.max(1)));
        u32::try_from(share).unwrap_or(u32::MAX)
    } else {
        1
    };
    Room { threads, blocks }
}

/// Builds what a launch needs; takes as long as the compiler does.
pub fn build(work: &Work) {
    // A failure is remembered where it happened and reported by the launch.
    let failed = match &work.what {
        What::Start(spec) => {
            for other in &spec.build_before {
                // Whether it can be built is for its own launch to say.
                let _ = other.build();
            }
            let kernel = spec.kernel.as_ref();
            kernel.and_then(|k| k.build_leaving(spec.room).err())
        }
        What::Resume(stopped) => build_stopped(stopped).err(),
        What::Command { .. } | What::Ran { .. } | What::Graph(_) | What::AwaitHostFunction(_) => None,
    };
    if let Some(reason) = failed {
        tracing::debug!(kernel = work.kernel_name(), %reason, "will not be launched");
    }
}

/// Makes sure that the device can run what is left of a stopped launch; builds it if it has not been.
///
/// # Errors
/// [`DeviceError::Launch`] names kernel, what it needs and what there is; [`DeviceError::NotBuilt`].
pub fn check(queue: &dyn Queue, work: &Work) -> Result<(), DeviceError> {
    let (_, launch) = prepare(work)?;
    queue.check(&launch)
}

/// Launches on a queue, for a pause to do this to it. What the device refuses takes its place among what was given, so
/// that order is kept.
#[must_use]
pub fn launch(queue: &dyn Queue, work: &Work, in_pause: InPause) -> OnDevice {
    let ends = in_pause == InPause::Ends;
    let launched = prepare(work).and_then(|(probed, launch)| {
        let running = if ends && probed.is_some() {
            queue.launch_to_end(launch)
        } else {
            queue.launch(launch)
        };
        Ok((probed, running?))
    });
    match launched {
        Ok((_, running)) if ends => waited(running),
        Ok((probed, running)) => OnDevice::Launch { running, probed },
        Err(error) => refused(error),
    }
}

/// What a pause waits for, just given.
#[must_use]
pub fn waited(running: Arc<dyn RunningLaunch>) -> OnDevice {
    let since = Instant::now();
    let watched = None;
    OnDevice::Waited {
        running,
        since,
        watched,
    }
}

/// In the place of a launch that the device has refused.
#[must_use]
pub fn refused(error: DeviceError) -> OnDevice {
    OnDevice::Launch {
        running: Arc::new(Refused(error)),
        probed: None,
    }
}

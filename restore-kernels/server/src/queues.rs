//! What streams hold, and what the server keeps beside the order of it ([`hetckpt_order`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_devices::device::{Device, MAX_QUEUED_BYTES, PendingRead, Queue, RecordedEvent, RunningLaunch};
use hetckpt_order::order::{Loading, Order};
use hetckpt_order::stream::{self, Kind, Stops};
use hetckpt_ring::command::{Command, Envelope, SlotId};
use hetckpt_state::queue::Place;
use rustc_hash::FxHashMap;

use crate::graph_parts::GraphRun;
use crate::kernels::ProbedKernel;
use crate::launch_spec::LaunchSpec;
use crate::start_points::StartPoints;
use crate::transfers::transfer_of;
use crate::window::Window;

/// A launch that was stopped.
#[derive(Clone)]
pub struct Stopped {
    /// What was launched.
    pub spec: Arc<LaunchSpec>,
    /// The probed kernel whose resume points `grid` names.
    pub probed: Arc<ProbedKernel>,
    /// What is left of it.
    pub grid: Arc<PausedGrid>,
    /// Resume points at which its blocks start; `None`: the whole grid from the start.
    pub points: Option<StartPoints>,
}

/// Who carries out a command that is no launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A thread.
    Thread,
    /// The device's queue, and it counts for nothing behind a launch that has stopped.
    Follower,
    /// The device's queue, and nothing stops it.
    Transfer,
}

/// True for a copy from the application's own memory to one range.
fn is_copy_of_one_range(command: &Command) -> bool {
    match command {
        Command::CopyIn { dst, data, .. } => dst.rows == 1 && dst.width == data.len() && dst.width > 0,
        _ => false,
    }
}

/// What a stream has to do.
#[derive(Clone)]
pub enum What {
    /// A command that is not a launch.
    Command {
        /// The command.
        command: Command,
        /// Bytes taken out of its staging chunk, which has been given back.
        data: Option<Vec<u8>>,
        /// Who carries it out.
        by: By,
    },
    /// A launch from its start.
    Start(Arc<LaunchSpec>),
    /// A stopped launch, to go on.
    Resume(Stopped),
    /// Launches that are over, behind one that has stopped or where a graph has stopped.
    Ran {
        /// How many.
        num_launches: u64,
    },
    /// Steps of a graph, which the device does as one.
    Graph(Arc<GraphRun>),
    /// Wait for a host function to return.
    AwaitHostFunction(u64),
}

/// An item of a stream.
#[derive(Clone)]
pub struct Work {
    /// What is to be done.
    pub what: What,
    /// Reply slot of the thread that waits for it.
    pub reply: Option<SlotId>,
}

/// An item with the places that it waits for.
pub type Item = stream::Item<Work>;

impl Work {
    /// Work that nobody waits for.
    #[must_use]
    pub fn of(what: What) -> Self {
        Self { what, reply: None }
    }

    /// A command, as `device` takes it.
    #[must_use]
    pub fn command(device: &dyn Device, command: Command, data: Option<Vec<u8>>) -> What {
        let by = match &command {
            _ if !device.works_through_queues() => By::Thread,
            Command::EventRecord { .. } | Command::StreamWaitEvent { .. } | Command::FreeAsync { .. } => By::Follower,
            Command::CopyOut { src, .. } if src.rows == 1 && (1..=MAX_QUEUED_BYTES).contains(&src.width) => {
                By::Follower
            }
            command if transfer_of(command).is_some() || (data.is_none() && is_copy_of_one_range(command)) => {
                By::Transfer
            }
            _ => By::Thread,
        };
        What::Command { command, data, by }
    }

    /// True for a launch.
    #[must_use]
    pub fn is_launch(&self) -> bool {
        matches!(self.what, What::Start(_) | What::Resume(_))
    }

    /// True for a copy from the application's own memory that the device does.
    #[must_use]
    pub fn is_copy_in(&self) -> bool {
        match &self.what {
            What::Command { command, by, .. } => matches!(command, Command::CopyIn { .. }) && *by == By::Transfer,
            _ => false,
        }
    }

    /// Launches that it stands for.
    #[must_use]
    pub fn num_launches(&self) -> usize {
        match &self.what {
            What::Graph(run) => run.num_launches(),
            _ => usize::from(self.is_launch()),
        }
    }

    /// For a launch of machine code: behind a kernel that a pause has stopped it would not turn itself away.
    #[must_use]
    pub fn is_opaque(&self) -> bool {
        matches!(&self.what, What::Start(spec) if spec.kernel.as_ref().is_some_and(|k| k.is_opaque()))
    }

    /// True for a launch that can be part of a graph whose launches stop when asked. Blocks that wait for one another
    /// have the device to themselves.
    #[must_use]
    pub fn can_stop_in_graphs(&self) -> bool {
        match &self.what {
            What::Start(spec) => !self.is_opaque() && !spec.shape.cooperative && spec.shape.num_blocks() > 0,
            _ => false,
        }
    }

    /// What a launch does when asked to stop.
    #[must_use]
    pub fn stops(&self) -> Stops {
        match &self.what {
            What::Start(spec) => match &spec.kernel {
                Some(kernel) if kernel.is_opaque() => Stops::Never,
                Some(kernel) if kernel.ends_soon(spec.room, &spec.shape) => Stops::Either,
                _ => Stops::WhenAsked,
            },
            _ => Stops::WhenAsked,
        }
    }

    /// Whether the program of a launch is built, or known not to be buildable, which the launch then reports.
    #[must_use]
    pub fn is_built(&self) -> bool {
        match &self.what {
            What::Start(spec) => spec.kernel.as_ref().is_none_or(|k| k.is_built_leaving(spec.room)),
            What::Resume(stopped) => {
                let (points, room) = (stopped.points.as_ref(), stopped.spec.room);
                stopped.probed.is_built_leaving(points, room)
            }
            What::Command { .. } | What::Ran { .. } | What::Graph(_) | What::AwaitHostFunction(_) => true,
        }
    }

    /// Name of the kernel that it launches.
    #[must_use]
    pub fn kernel_name(&self) -> &str {
        match &self.what {
            What::Start(spec) => spec.kernel.as_ref().map_or("", |k| &k.name),
            What::Resume(stopped) => &stopped.probed.kernel.name,
            What::Command { .. } | What::Ran { .. } | What::Graph(_) | What::AwaitHostFunction(_) => "",
        }
    }
}

impl stream::Work for Work {
    fn kind(&self) -> Kind {
        match &self.what {
            What::Start(_) | What::Resume(_) => Kind::Launch {
                is_built: self.is_built(),
                stops: self.stops(),
            },
            What::Graph(run) => Kind::Launch {
                is_built: true,
                stops: run.stops(),
            },
            What::Command { by: By::Follower, .. } => Kind::Follower,
            What::Command { by: By::Transfer, .. } => Kind::Transfer,
            What::Command { by: By::Thread, .. } | What::Ran { .. } => Kind::Task,
            What::AwaitHostFunction(id) => Kind::HostFunction(*id),
        }
    }

    fn num_places(&self) -> u64 {
        match &self.what {
            What::Graph(run) => run.steps.len() as u64,
            What::Ran { num_launches } => *num_launches,
            _ => 1,
        }
    }

    fn behind_a_stop(self) -> Self {
        let ran = |num_launches| What::Ran { num_launches };
        match &self.what {
            What::Start(_) | What::Resume(_) => Self { what: ran(1), ..self },
            What::Graph(run) if run.stops() != Stops::Never => Self {
                what: ran(run.steps.len() as u64),
                ..self
            },
            _ => self,
        }
    }
}

/// Something given to the device.
#[derive(Clone)]
pub enum OnDevice {
    /// A launch.
    Launch {
        /// To wait for it.
        running: Arc<dyn RunningLaunch>,
        /// The probed kernel that runs; `None` for a graph, or if the launch was refused.
        probed: Option<Arc<ProbedKernel>>,
    },
    /// What a pause waits for: machine code, a launch that ends soon, a copy, a fill.
    Waited {
        /// To wait for it.
        running: Arc<dyn RunningLaunch>,
        /// When it was given.
        since: Instant,
        /// Its end is watched, and this long takes what stands before it since the last such thing.
        watched: Option<Duration>,
    },
    /// The record of an event.
    Record(Arc<dyn RecordedEvent>),
    /// A read of device memory.
    Read(Arc<dyn PendingRead>),
}

impl OnDevice {
    /// True once it is not on the device any more.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match self {
            Self::Launch { running, .. } | Self::Waited { running, .. } => running.is_done(),
            Self::Record(event) => event.is_done(),
            Self::Read(read) => read.is_done(),
        }
    }

    /// Waits until it is not on the device any more. Its failure is told when its outcome is looked at.
    pub fn wait_stopped(&self) {
        match self {
            Self::Launch { running, .. } | Self::Waited { running, .. } => running.wait_stopped(),
            Self::Record(event) => drop(event.wait()),
            Self::Read(read) => drop(read.wait(&mut |_| {})),
        }
    }
}

/// A command that waits for places but is in no stream.
#[derive(Clone)]
pub struct Awaiting {
    /// The command and its reply slot.
    pub envelope: Envelope,
    /// Since when.
    pub since: Instant,
}

/// An event.
#[derive(Clone, Default)]
pub struct Event {
    /// False: no time is kept.
    pub timing: bool,
    /// Where its latest record stands.
    pub latest: Option<Place>,
    /// When the last record happened.
    pub time: Option<Duration>,
    /// The device's own event of that record.
    pub on_device: Option<Arc<dyn RecordedEvent>>,
}

/// What the reader of the ring is to do and does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It reads.
    On,
    /// It is to empty the ring and then stop; at once if [`crate::session::Session::stops_at_once`] says so.
    Stop,
    /// It has stopped.
    Stopped,
}

/// Who looks whether something on the device is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookout {
    /// The reader of the ring, which is awake, between commands.
    Reader,
    /// The threads of the streams.
    Workers,
}

/// The device's side of a stream.
#[derive(Default)]
pub struct Lane {
    /// Made at the first launch.
    pub queue: Option<Arc<dyn Queue>>,
    /// When nothing of it ran any more after the latest request to pause.
    pub stopped_at: Option<Instant>,
    /// A thread serves the stream.
    pub has_worker: bool,
    /// How much that a pause waits for may be on the device.
    pub window: Window,
    /// When a graph has landed last whose end was watched.
    pub landed_at: Option<Instant>,
    /// How long graphs take that have been given to it since one was watched last.
    pub unwatched: Duration,
}

/// All queues of the application.
pub struct Queues {
    /// The order of everything.
    pub order: Order<Work, OnDevice, Awaiting>,
    /// The device's side of streams that have had something to do.
    pub lanes: FxHashMap<u64, Lane>,
    /// Events by the application's number.
    pub events: FxHashMap<u64, Event>,
    /// The reader of the ring.
    pub reading: Reading,
    /// What is done beside the reader ([`crate::aside`]).
    pub num_aside: usize,
    /// Who looks after what is on the device.
    pub lookout: Lookout,
    /// A launch went on although the one before it had stopped.
    pub overtaken: Option<String>,
    clock_start: Instant,
    clock_offset: Duration,
}

/// When `device` loads code.
#[must_use]
pub fn loading(device: &dyn Device) -> Loading {
    if device.loads_while_running() {
        Loading::WhileRunning
    } else {
        Loading::Alone
    }
}

impl Queues {
    /// The clock of events stands at `clock`.
    #[must_use]
    pub fn new(order: Order<Work, OnDevice, Awaiting>, clock: Duration) -> Self {
        Self {
            order,
            lanes: FxHashMap::default(),
            events: FxHashMap::default(),
            reading: Reading::On,
            num_aside: 0,
            lookout: Lookout::Workers,
            overtaken: None,
            clock_start: Instant::now(),
            clock_offset: clock,
        }
    }

    /// The clock of events.
    #[must_use]
    pub fn clock(&self) -> Duration {
        self.clock_offset + self.clock_start.elapsed()
    }

    /// The device's side of a stream.
    pub fn lane(&mut self, stream: u64) -> &mut Lane {
        self.lanes.entry(stream).or_default()
    }

    /// Enters that an event has been recorded.
    pub fn recorded(&mut self, event: u64, on_device: Option<Arc<dyn RecordedEvent>>) {
        let now = self.clock();
        if let Some(event) = self.events.get_mut(&event) {
            event.time = Some(now);
            event.on_device = on_device;
        }
    }

    /// Forgets a stream that is over.
    pub fn forget(&mut self, stream: u64) {
        self.order.forget(stream);
        if self.order.stream(stream).is_none() {
            self.lanes.remove(&stream);
        }
    }
}

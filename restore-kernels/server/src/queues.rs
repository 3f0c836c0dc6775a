//! The order of everything: streams as in-order queues, places in them, events, commands that wait for places.
//!
//! Pure bookkeeping under one lock; nothing here talks to a device. Items of a stream are numbered from 1; an item is
//! *done* when all before it are. "After" lists name places in other streams. Joins with the legacy default stream,
//! waits for events and synchronises all become such places when the command arrives, so that nothing has to be looked
//! up later.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_devices::device::{Queue, Room, RunningLaunch};
use hetckpt_ring::command::{Command, Envelope, SlotId};
use hetckpt_state::queue::Place;

use crate::kernels::{KernelCode, ProbedKernel};
use crate::start_points::StartPoints;

/// The legacy default stream.
pub const LEGACY: u64 = 0;
/// Launches that one stream gives to the device ahead of their completion.
pub const MAX_IN_FLIGHT: usize = 32;

/// A launch as the application asked for it.
#[derive(Clone)]
pub struct LaunchSpec {
    /// Kernel; `None` if it was restored from a snapshot, which keeps the probed kernel only.
    pub kernel: Option<Arc<KernelCode>>,
    /// Other kernels that are to be built before this one runs: a driver may load code only while nothing runs, and a
    /// pause would have to wait for that.
    pub build_before: Vec<Arc<KernelCode>>,
    /// Blocks of the grid, x first.
    pub grid: [u32; 3],
    /// Threads of a block, x first.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub dynamic_shared_bytes: u32,
    /// All blocks resident together.
    pub cooperative: bool,
    /// What has to have room on a multiprocessor.
    pub room: Room,
    /// Parameter buffer.
    pub params: Arc<[u8]>,
    /// The command, to be held back again.
    pub command: Option<Command>,
}

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

/// What a stream has to do.
#[derive(Clone)]
pub enum Work {
    /// A command that is not a launch.
    Command {
        /// The command.
        command: Command,
        /// Bytes taken out of its staging chunk, which has been given back.
        data: Option<Vec<u8>>,
    },
    /// A launch from its start.
    Start(Arc<LaunchSpec>),
    /// A stopped launch, to go on.
    Resume(Stopped),
    /// Wait for a host function to return.
    AwaitHostFunction(u64),
}

/// An item of a stream.
#[derive(Clone)]
pub struct Item {
    /// What.
    pub work: Work,
    /// Places that must be reached first.
    pub after: Vec<Place>,
    /// Reply slot of the thread that waits for it.
    pub reply: Option<SlotId>,
}

/// A launch on the device.
pub struct InFlight {
    /// To wait for it.
    pub running: Arc<dyn RunningLaunch>,
    /// What was launched.
    pub item: Item,
    /// The probed kernel that runs; `None` for an opaque one.
    pub probed: Option<Arc<ProbedKernel>>,
}

/// A stream.
pub struct Stream {
    /// Does not join with the legacy default stream.
    pub non_blocking: bool,
    /// Priority.
    pub priority: i32,
    /// Made at the first launch.
    pub device_queue: Option<Arc<dyn Queue>>,
    /// What has not been started, in order.
    pub queue: VecDeque<Item>,
    /// What runs on the device, in order; before everything in `queue`.
    pub in_flight: VecDeque<InFlight>,
    /// What was stopped by a pause, until all of `in_flight` has been looked at.
    pub stopped: Vec<Item>,
    /// Nothing is to be launched until `in_flight` has been emptied.
    pub is_draining: bool,
    /// When nothing of it ran any more after the latest request to pause.
    pub stopped_at: Option<Instant>,
    /// Items ever put in.
    pub submitted: u64,
    /// Items done.
    pub completed: u64,
    /// A thread works on the front item, or waits for the first launch in flight.
    pub is_busy: bool,
    /// The busy thread builds a kernel: it does not touch anything that a capture reads.
    pub is_building: bool,
    /// The application has forgotten it.
    pub is_destroyed: bool,
    /// A worker thread serves it.
    pub has_worker: bool,
}

impl Stream {
    /// A stream without work.
    #[must_use]
    pub fn new(non_blocking: bool, priority: i32) -> Self {
        Self {
            non_blocking,
            priority,
            device_queue: None,
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            stopped: Vec::new(),
            is_draining: false,
            stopped_at: None,
            submitted: 0,
            completed: 0,
            is_busy: false,
            is_building: false,
            is_destroyed: false,
            has_worker: false,
        }
    }

    /// Place of the first launch, among those that a pause can have held back, whose kernel is not built.
    fn unbuilt(&self) -> Option<usize> {
        let held_back = self.queue.iter().take(MAX_IN_FLIGHT);
        held_back.into_iter().position(|item| item.is_built() == Some(false))
    }

    /// True if it has nothing to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty() && self.stopped.is_empty() && !self.is_busy
    }
}

/// An event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Event {
    /// False: no time is kept.
    pub timing: bool,
    /// Where its latest record stands.
    pub latest: Option<Place>,
    /// When the last record happened.
    pub time: Option<Duration>,
}

/// A command that waits for places but is in no stream.
#[derive(Clone)]
pub struct Pending {
    /// The command and its reply slot.
    pub envelope: Envelope,
    /// Places that must be reached first.
    pub after: Vec<Place>,
}

/// What the reader of the ring is to do and does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It reads.
    On,
    /// It is to empty the ring and then stop.
    Stop,
    /// It has stopped.
    Stopped,
}

/// All queues of the application.
pub struct Queues {
    /// Streams by the application's number.
    pub streams: BTreeMap<u64, Stream>,
    /// Events by the application's number.
    pub events: HashMap<u64, Event>,
    /// Commands that wait.
    pub pending: Vec<Pending>,
    /// Host functions that have returned and that no stream has seen yet.
    pub host_functions_done: HashSet<u64>,
    /// Nothing is started while this is set.
    pub is_paused: bool,
    /// A launch has stopped though nobody has asked ([`hetckpt_devices::device::Device::cuts_launches`]); nothing is
    /// started until all have.
    pub is_cut: bool,
    /// What a pause held back goes on only once all launches of it are built: the driver loads no code while kernels
    /// run, and a pause would have to wait for that. Unset by the first launch.
    pub builds_before_launches: bool,
    /// Threads that carry out pending commands.
    pub num_carrying_out: u64,
    /// The reader of the ring.
    pub reading: Reading,
    /// Sticky result.
    pub fault: u32,
    /// A launch went on although the one before it had stopped.
    pub overtaken: Option<String>,
    clock_start: Instant,
    clock_offset: Duration,
}

/// What a stream's thread should do next.
pub enum Step {
    /// Nothing now.
    Wait,
    /// Launch the front item: its kernel is built.
    Launch,
    /// Build the kernel of the item at this place in the queue.
    Build(usize),
    /// Wait for the first launch in flight.
    Reap(Arc<dyn RunningLaunch>),
    /// Carry out the front item.
    Execute,
    /// The stream is destroyed and has nothing left.
    Vanish,
}

impl Default for Queues {
    fn default() -> Self {
        Self::new(Duration::ZERO)
    }
}

impl Queues {
    /// Only the legacy default stream; the clock of events stands at `clock`.
    #[must_use]
    pub fn new(clock: Duration) -> Self {
        Self {
            streams: BTreeMap::from([(LEGACY, Stream::new(false, 0))]),
            events: HashMap::new(),
            pending: Vec::new(),
            host_functions_done: HashSet::new(),
            is_paused: false,
            is_cut: false,
            builds_before_launches: false,
            num_carrying_out: 0,
            reading: Reading::On,
            fault: 0,
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

    /// Sets the clock of events.
    pub fn set_clock(&mut self, clock: Duration) {
        self.clock_start = Instant::now();
        self.clock_offset = clock;
    }

    /// True if the place is reached; a stream that is gone has done everything.
    #[must_use]
    pub fn is_reached(&self, place: Place) -> bool {
        self.streams
            .get(&place.stream)
            .is_none_or(|s| s.completed >= place.number)
    }

    fn are_reached(&self, places: &[Place]) -> bool {
        places.iter().all(|&p| self.is_reached(p))
    }

    /// Where a stream ends at present, if it is not reached.
    fn end_of(&self, stream: u64) -> Option<Place> {
        let s = self.streams.get(&stream)?;
        (s.completed < s.submitted).then_some(Place {
            stream,
            number: s.submitted,
        })
    }

    /// The ends of all streams.
    #[must_use]
    pub fn ends(&self) -> Vec<Place> {
        self.streams.keys().filter_map(|&id| self.end_of(id)).collect()
    }

    /// The end of one stream; of the legacy default stream: of all that it joins with.
    #[must_use]
    pub fn end_of_stream(&self, stream: u64) -> Vec<Place> {
        let mut places: Vec<Place> = self.end_of(stream).into_iter().collect();
        if stream == LEGACY {
            places.extend(self.blocking_ends());
        }
        places
    }

    fn blocking_ends(&self) -> impl Iterator<Item = Place> {
        let blocking = self.streams.iter().filter(|&(&id, s)| id != LEGACY && !s.non_blocking);
        blocking.filter_map(|(&id, _)| self.end_of(id))
    }

    /// Puts an item at a stream's end, behind what CUDA's joins with the legacy default stream demand. False if there
    /// is no such stream.
    pub fn submit(&mut self, stream: u64, work: Work, reply: Option<SlotId>, mut after: Vec<Place>) -> bool {
        let Some(s) = self.streams.get(&stream) else {
            return false;
        };
        if stream == LEGACY {
            after.extend(self.blocking_ends());
        } else if !s.non_blocking {
            after.extend(self.end_of(LEGACY));
        }
        after.retain(|p| p.stream != stream);
        if let Some(s) = self.streams.get_mut(&stream) {
            s.queue.push_back(Item { work, after, reply });
            s.submitted += 1;
        }
        true
    }

    /// The place just behind the last item of a stream.
    #[must_use]
    pub fn latest_place(&self, stream: u64) -> Option<Place> {
        self.streams.get(&stream).map(|s| Place {
            stream,
            number: s.submitted,
        })
    }

    /// What the thread of `stream` should do next.
    #[must_use]
    pub fn next_step(&self, stream: u64) -> Step {
        let Some(s) = self.streams.get(&stream) else {
            return Step::Vanish;
        };
        if s.is_busy {
            return Step::Wait;
        }
        let front = s.queue.front().filter(|i| self.are_reached(&i.after));
        let may_start = !self.is_paused;
        let mut may_launch = may_start;
        if self.builds_before_launches && may_start && self.fault == 0 {
            if let Some(at) = s.unbuilt() {
                return Step::Build(at);
            }
            may_launch = self.streams.values().all(|s| s.unbuilt().is_none());
        }
        if let (Some(item), true) = (front, may_launch)
            && !s.is_draining
            && s.in_flight.len() < if item.is_opaque() { 1 } else { MAX_IN_FLIGHT }
            && self.fault == 0
        {
            match item.is_built() {
                Some(true) => return Step::Launch,
                Some(false) => return Step::Build(0),
                None => {}
            }
        }
        if let Some(first) = s.in_flight.front() {
            return Step::Reap(Arc::clone(&first.running));
        }
        let front = front.filter(|item| may_launch || item.is_built().is_none());
        let Some(item) = front.filter(|_| may_start) else {
            let is_empty = s.queue.is_empty() && s.stopped.is_empty();
            return if s.is_destroyed && is_empty && !self.is_paused {
                Step::Vanish
            } else {
                Step::Wait
            };
        };
        match item.work {
            Work::AwaitHostFunction(id) if !self.host_functions_done.contains(&id) && self.fault == 0 => Step::Wait,
            _ => Step::Execute,
        }
    }

    /// Counts the first item of `stream` as done. Returns pending commands that may be carried out now.
    pub fn complete(&mut self, stream: u64) -> Vec<Pending> {
        if let Some(s) = self.streams.get_mut(&stream) {
            s.completed += 1;
        }
        self.take_ready()
    }

    /// Pending commands whose places are reached; they count as being carried out from now on.
    pub fn take_ready(&mut self) -> Vec<Pending> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let (ready, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|p| self.are_reached(&p.after));
        self.pending = waiting;
        self.num_carrying_out += ready.len() as u64;
        ready
    }

    /// True if no launch is on the device, and what has stopped is back in its stream.
    #[must_use]
    pub fn have_stopped(&self) -> bool {
        self.streams
            .values()
            .all(|s| s.in_flight.is_empty() && s.stopped.is_empty())
    }

    /// True if nothing changes any more while the pause holds.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.num_carrying_out == 0 && self.have_stopped() && self.streams.values().all(|s| !s.is_busy || s.is_building)
    }

    /// Work that has not been done.
    #[must_use]
    pub fn num_queued(&self) -> u64 {
        self.streams.values().map(|s| s.queue.len() as u64).sum::<u64>() + self.pending.len() as u64
    }
}

impl Item {
    /// For a launch of machine code: behind a kernel that a pause has stopped it would not turn itself away, so it is
    /// not given to the device ahead of time.
    #[must_use]
    pub fn is_opaque(&self) -> bool {
        match &self.work {
            Work::Start(spec) => spec.kernel.as_ref().is_some_and(|k| k.is_opaque()),
            Work::Resume(_) | Work::Command { .. } | Work::AwaitHostFunction(_) => false,
        }
    }

    /// For launches: whether the kernel is built (or known not to be buildable, which the launch then reports).
    #[must_use]
    pub fn is_built(&self) -> Option<bool> {
        match &self.work {
            Work::Start(spec) => Some(spec.kernel.as_ref().is_none_or(|k| k.is_built_leaving(spec.room))),
            Work::Resume(stopped) => {
                let (points, room) = (stopped.points.as_ref(), stopped.spec.room);
                Some(stopped.probed.is_built_leaving(points, room))
            }
            Work::Command { .. } | Work::AwaitHostFunction(_) => None,
        }
    }
}

//! All streams, what waits for places in them, and whether anything may begin.

use std::collections::{BTreeMap, BTreeSet};

use hetckpt_state::queue::Place;

use crate::stream::{Flight, Flow, Front, InPause, Item, Kind, Landing, Life, Stops, StoredStream, Stream, Work};

/// The legacy default stream, which always exists.
pub const LEGACY: u64 = 0;
/// What one stream gives to the device ahead of its completion. So much has to land at a pause.
pub const MAX_IN_FLIGHT: usize = 64;
/// Launches that can stop among that, where several are given as one: a pause has to lay out memory for each.
pub const MAX_STOPPING: usize = 256;

/// When the device can load the code of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loading {
    /// Whatever it does.
    WhileRunning,
    /// Only while nothing is on it: until then whoever loads waits, and so does whoever wants a pause.
    Alone,
}

/// Whether anything may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Yes.
    Running,
    /// A pause is over, on a device that is to be empty when it loads code: launches begin once all that the pause can
    /// have held back are built, so that none has to wait for all others later.
    Rebuilding,
    /// A launch has stopped though nobody has asked; nothing begins until all have.
    Cut,
    /// A pause is held; nothing begins.
    Paused,
}

/// What a stream should do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing now.
    Wait,
    /// Give its front items to the device: [`Order::begin_give`].
    Give,
    /// Have the device emptied, so that it can build: [`Order::begin_emptying`].
    Empty,
    /// Build the program of the item at this place in its queue: [`Order::begin_build`].
    Build(usize),
    /// Take its front item and do it: [`Order::take`].
    Take,
    /// Forget the stream: [`Order::forget`].
    Forget,
}

/// Something that waits for places and is in no stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter<P> {
    /// What waits.
    pub what: P,
    /// Places that must be reached first.
    pub after: Vec<Place>,
}

/// The order of everything. `W`: what is in streams; `F`: what the device calls something given to it; `P`: what waits
/// for places.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Order<W, F, P> {
    streams: BTreeMap<u64, Stream<W, F>>,
    waiters: Vec<Waiter<P>>,
    host_functions_done: BTreeSet<u64>,
    phase: Phase,
    loading: Loading,
    /// Streams for which the device is kept empty while they have something to build. Some may have nothing any more.
    emptying: Vec<u64>,
    /// Waiters whose places were reached and that are being seen to.
    num_released: u64,
    fault: u32,
}

impl<W, F, P> Order<W, F, P> {
    /// Nothing to do, for a device that loads code as `loading` says.
    #[must_use]
    pub fn new(loading: Loading) -> Self {
        Self {
            streams: BTreeMap::from([(LEGACY, Stream::new(false, 0))]),
            waiters: Vec::new(),
            host_functions_done: BTreeSet::new(),
            phase: Phase::Running,
            loading,
            emptying: Vec::new(),
            num_released: 0,
            fault: 0,
        }
    }

    /// Whether anything may begin.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The first failure's result, 0 = none. Nothing is given to the device any more; what threads take, they give up.
    #[must_use]
    pub fn fault(&self) -> u32 {
        self.fault
    }

    /// Enters a failure. True if it is the first.
    pub fn fail(&mut self, result: u32) -> bool {
        let is_first = self.fault == 0;
        if is_first {
            self.fault = result;
        }
        is_first
    }

    /// All streams by the application's number.
    pub fn streams(&self) -> impl Iterator<Item = (u64, &Stream<W, F>)> {
        self.streams.iter().map(|(&id, stream)| (id, stream))
    }

    /// A stream.
    #[must_use]
    pub fn stream(&self, stream: u64) -> Option<&Stream<W, F>> {
        self.streams.get(&stream)
    }

    /// What waits.
    #[must_use]
    pub fn waiters(&self) -> &[Waiter<P>] {
        &self.waiters
    }

    /// Host functions that have returned and that no stream has seen yet.
    pub fn host_functions_done(&self) -> impl Iterator<Item = u64> {
        self.host_functions_done.iter().copied()
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

    /// The place just behind the last item of a stream.
    #[must_use]
    pub fn latest_place(&self, stream: u64) -> Option<Place> {
        self.streams.get(&stream).map(|s| Place {
            stream,
            number: s.submitted,
        })
    }

    /// Makes a stream, unless there is one of that number.
    pub fn create(&mut self, stream: u64, non_blocking: bool, priority: i32) {
        let new = || Stream::new(non_blocking, priority);
        self.streams.entry(stream).or_insert_with(new);
    }

    /// The application has no use for the stream any more.
    pub fn destroy(&mut self, stream: u64) {
        if let Some(s) = self.streams.get_mut(&stream).filter(|_| stream != LEGACY) {
            s.life = Life::Destroyed;
        }
    }

    /// Forgets a stream that is destroyed and has nothing left.
    pub fn forget(&mut self, stream: u64) {
        if self.streams.get(&stream).is_some_and(Stream::is_over) {
            self.streams.remove(&stream);
        }
    }

    /// Forgets everything but streams with work, and the failure: the device is reset.
    pub fn reset(&mut self) {
        self.host_functions_done.clear();
        self.emptying.clear();
        self.streams.retain(|&id, s| id == LEGACY || !s.is_idle());
        self.fault = 0;
    }

    /// Has `what` wait for places. Returns what may be seen to now ([`Self::released`]).
    pub fn wait_for(&mut self, what: P, after: Vec<Place>) -> Vec<P> {
        self.waiters.push(Waiter { what, after });
        self.release()
    }

    /// Takes out what waits for places that are reached.
    pub fn release(&mut self) -> Vec<P> {
        if self.waiters.is_empty() {
            return Vec::new();
        }
        let (ready, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiters)
            .into_iter()
            .partition(|waiter| self.are_reached(&waiter.after));
        self.waiters = waiting;
        self.num_released += ready.len() as u64;
        ready.into_iter().map(|waiter| waiter.what).collect()
    }

    /// One of those that were released has been seen to.
    pub fn released(&mut self) {
        self.num_released = self.num_released.saturating_sub(1);
    }

    /// The application's function `id` has returned.
    pub fn host_function_returned(&mut self, id: u64) {
        self.host_functions_done.insert(id);
    }

    /// A stream has seen that the function has returned.
    pub fn forget_host_function(&mut self, id: u64) {
        self.host_functions_done.remove(&id);
    }

    /// A pause begins: nothing begins any more.
    pub fn pause(&mut self) {
        self.phase = Phase::Paused;
        for s in self.streams.values_mut() {
            s.flow = if s.num_on_device() == 0 {
                Flow::Open
            } else {
                Flow::Draining
            };
        }
    }

    /// A launch has stopped though no pause is held: nothing begins until [`Self::go_on`].
    pub fn cut(&mut self) {
        if self.phase != Phase::Paused {
            self.phase = Phase::Cut;
        }
    }

    /// The pause or cut is over.
    pub fn go_on(&mut self) {
        self.phase = match self.loading {
            Loading::WhileRunning => Phase::Running,
            Loading::Alone => Phase::Rebuilding,
        };
    }

    /// Counts an item that was taken as done. Returns what may be seen to now.
    pub fn done(&mut self, stream: u64) -> Vec<P> {
        if let Some(s) = self.streams.get_mut(&stream)
            && let Front::Taken { num_places } = s.front
        {
            s.completed += num_places;
        }
        self.release()
    }

    /// An item that was taken is to be done later, perhaps in another form.
    pub fn put_back(&mut self, stream: u64, item: Item<W>) {
        if let Some(s) = self.streams.get_mut(&stream) {
            s.queue.push_front(item);
        }
    }

    /// So much of a stream that a pause waits for may be on the device from now on, at least one thing.
    pub fn set_window(&mut self, stream: u64, window: usize) {
        if let Some(s) = self.streams.get_mut(&stream) {
            s.window = window.clamp(1, MAX_IN_FLIGHT);
        }
    }

    /// What of a stream has not begun, in order, to change what its owner keeps with it.
    pub fn queued_mut(&mut self, stream: u64) -> impl Iterator<Item = &mut W> {
        let queue = self.streams.get_mut(&stream).map(|s| s.queue.iter_mut());
        queue.into_iter().flatten().map(|item| &mut item.work)
    }

    /// Nothing is given to the device any more, until it is empty and `stream` has built what it has to.
    pub fn begin_emptying(&mut self, stream: u64) {
        if !self.emptying.contains(&stream) {
            self.emptying.push(stream);
        }
    }

    /// A thread begins to build the program of the item at `at`. Then [`Self::free`].
    pub fn begin_build(&mut self, stream: u64, at: usize) -> Option<&Item<W>> {
        if self.loading == Loading::Alone {
            self.begin_emptying(stream);
        }
        let s = self.streams.get_mut(&stream).filter(|s| s.front == Front::Free)?;
        let item = s.queue.get(at)?;
        s.front = Front::Building;
        Some(item)
    }

    /// The thread at the front of a stream has gone.
    pub fn free(&mut self, stream: u64) {
        if let Some(s) = self.streams.get_mut(&stream) {
            if s.front == Front::Building {
                self.emptying.retain(|&other| other != stream);
            }
            s.front = Front::Free;
        }
    }

    /// What a thread gives to the device, in order, and what a pause is to do to it.
    pub fn giving(&self, stream: u64) -> impl Iterator<Item = (&W, InPause)> {
        let giving = self.streams.get(&stream).into_iter().flat_map(|s| &s.giving);
        giving.map(|(work, in_pause)| (work, *in_pause))
    }

    /// The first of what is being given to the device is there, which calls it `handle`. After the last,
    /// [`Self::free`].
    pub fn given(&mut self, stream: u64, handle: F) {
        if let Some(s) = self.streams.get_mut(&stream)
            && let Some((work, in_pause)) = s.giving.pop_front()
        {
            let flight = Flight { work, handle, in_pause };
            s.flights.push_back(flight);
        }
    }

    /// The first flight of a stream, if nobody waits for it.
    #[must_use]
    pub fn first_flight(&self, stream: u64) -> Option<&Flight<W, F>> {
        let s = self.streams.get(&stream)?;
        s.flights.front().filter(|_| s.landing == Landing::Unclaimed)
    }

    /// A thread waits for the first flight of a stream: only it calls [`Self::landed`] next.
    pub fn claim(&mut self, stream: u64) -> Option<&Flight<W, F>> {
        let s = self.streams.get_mut(&stream)?;
        let first = s.flights.front().filter(|_| s.landing == Landing::Unclaimed)?;
        s.landing = Landing::Claimed;
        Some(first)
    }

    /// What has landed is not done; `works` are to be done in its place when all goes on, and take as many places.
    pub fn land_stopped(&mut self, stream: u64, works: impl IntoIterator<Item = W>) {
        if let Some(s) = self.streams.get_mut(&stream) {
            s.stopped.extend(works.into_iter().map(|work| Item {
                work,
                after: Vec::new(),
            }));
            s.put_stopped_back();
        }
    }

    fn is_device_empty(&self) -> bool {
        self.streams.values().all(|s| s.num_on_device() == 0)
    }

    /// True if no launch is on the device, and what has stopped is back in its stream.
    #[must_use]
    pub fn have_stopped(&self) -> bool {
        self.streams
            .values()
            .all(|s| s.num_on_device() == 0 && s.stopped.is_empty())
    }

    /// True if nothing changes any more while the pause holds.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.num_released == 0 && self.streams.values().all(Stream::is_quiet)
    }

    /// Work that has not begun.
    #[must_use]
    pub fn num_queued(&self) -> u64 {
        self.streams.values().map(|s| s.queue.len() as u64).sum::<u64>() + self.waiters.len() as u64
    }
}

/// What becomes of something that the device has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Landed<W, P> {
    /// It counts as done.
    Done {
        /// What was given.
        work: W,
        /// What may be seen to now.
        released: Vec<P>,
    },
    /// Something before it has stopped: it waits for that, in the form that [`Work::behind_a_stop`] gives it.
    Held,
}

impl<W: Work, F, P> Order<W, F, P> {
    /// The first flight of a stream is not on the device any more. Then [`Self::land_done`] or [`Self::land_stopped`].
    pub fn landed(&mut self, stream: u64) -> Option<Flight<W, F>> {
        let s = self.streams.get_mut(&stream)?;
        s.landing = Landing::Unclaimed;
        s.end_first()
    }

    /// What a snapshot says; a pause is held.
    #[must_use]
    pub fn restored(
        loading: Loading,
        streams: impl IntoIterator<Item = (u64, StoredStream<W>)>,
        waiters: Vec<Waiter<P>>,
        host_functions_done: impl IntoIterator<Item = u64>,
        fault: u32,
    ) -> Self {
        let mut order = Self {
            waiters,
            host_functions_done: host_functions_done.into_iter().collect(),
            phase: Phase::Paused,
            fault,
            ..Self::new(loading)
        };
        let streams = streams.into_iter().map(|(id, stored)| (id, Stream::restored(stored)));
        order.streams.extend(streams);
        order
    }

    /// Puts an item at a stream's end, behind what CUDA's joins with the legacy default stream demand. False if there
    /// is no such stream.
    pub fn submit(&mut self, stream: u64, work: W, mut after: Vec<Place>) -> bool {
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
            s.submitted += work.num_places();
            s.queue.push_back(Item { work, after });
        }
        true
    }

    /// Takes the front item of a stream, for a thread that does it. Then [`Self::done`] or [`Self::put_back`], and
    /// [`Self::free`].
    pub fn take(&mut self, stream: u64) -> Option<Item<W>> {
        let s = self.streams.get_mut(&stream).filter(|s| s.front == Front::Free)?;
        let item = s.queue.pop_front()?;
        let num_places = item.work.num_places();
        s.front = Front::Taken { num_places };
        Some(item)
    }

    /// The device has done what has landed.
    pub fn land_done(&mut self, stream: u64, work: W) -> Landed<W, P> {
        if self.streams.get(&stream).is_some_and(Stream::has_stopped) {
            self.land_stopped(stream, [work.behind_a_stop()]);
            return Landed::Held;
        }
        if let Some(s) = self.streams.get_mut(&stream) {
            s.completed += work.num_places();
            s.put_stopped_back();
        }
        let released = self.release();
        Landed::Done { work, released }
    }

    /// What `stream` should do next.
    #[must_use]
    pub fn next(&self, stream: u64) -> Step {
        let Some(s) = self.streams.get(&stream) else {
            return Step::Forget;
        };
        if s.front != Front::Free || matches!(self.phase, Phase::Paused | Phase::Cut) {
            return Step::Wait;
        }
        let works = self.fault == 0;
        if works
            && self.phase == Phase::Rebuilding
            && let Some(at) = unbuilt(s)
        {
            return self.build(stream, at);
        }
        let Some(item) = s.queue.front() else {
            return if s.is_over() { Step::Forget } else { Step::Wait };
        };
        if !self.are_reached(&item.after) {
            return Step::Wait;
        }
        if self.can_give(stream, s, item) {
            return Step::Give;
        }
        match item.work.kind() {
            Kind::Launch { is_built: false, .. } if works && has_room(s) => self.build(stream, 0),
            Kind::Launch { .. } | Kind::Transfer | Kind::Follower if works => Step::Wait,
            // All before it must be done.
            _ if s.num_on_device() > 0 => Step::Wait,
            Kind::HostFunction(id) if works && !self.host_functions_done.contains(&id) => Step::Wait,
            _ => Step::Take,
        }
    }

    /// What a stream that has something to build should do.
    fn build(&self, stream: u64, at: usize) -> Step {
        if self.loading == Loading::WhileRunning || self.is_device_empty() {
            Step::Build(at)
        } else if self.emptying.contains(&stream) {
            Step::Wait
        } else {
            Step::Empty
        }
    }

    /// True if the device is to be empty for another stream.
    fn is_kept_from(&self, stream: u64) -> bool {
        self.emptying.iter().any(|&other| other != stream && self.builds(other))
    }

    /// True if a stream builds something, or will once the device is empty.
    fn builds(&self, stream: u64) -> bool {
        let Some(s) = self.streams.get(&stream) else {
            return false;
        };
        match (s.front, s.queue.front()) {
            (Front::Building, _) => true,
            (Front::Free, Some(_)) if self.phase == Phase::Rebuilding => unbuilt(s).is_some(),
            (Front::Free, Some(item)) => {
                matches!(item.work.kind(), Kind::Launch { is_built: false, .. }) && self.are_reached(&item.after)
            }
            _ => false,
        }
    }

    /// True if the front item of a stream that nobody else is at may be given to the device.
    fn can_give(&self, stream: u64, s: &Stream<W, F>, item: &Item<W>) -> bool {
        let is_wanted = match item.work.kind() {
            Kind::Launch { is_built, stops } => {
                let may_be_there = match stops {
                    Stops::Never => may_wait_for_more(s),
                    Stops::Either if s.num_stopping == 0 => may_wait_for_more(s),
                    Stops::WhenAsked | Stops::Either => has_room_for_launches(s, item.work.num_places()),
                };
                is_built && may_be_there && self.may_launch()
            }
            Kind::Transfer => may_wait_for_more(s),
            Kind::Follower => true,
            Kind::Task | Kind::HostFunction(_) => false,
        };
        is_wanted && self.fault == 0 && has_room(s) && self.are_reached(&item.after) && !self.is_kept_from(stream)
    }

    /// A thread begins to give the front items of a stream to the device, so many at most. What they are says
    /// [`Self::giving`]. Then [`Self::given`] for each, and [`Self::free`].
    pub fn begin_give(&mut self, stream: u64, most: usize) {
        if self.next(stream) != Step::Give {
            return;
        }
        if self.phase == Phase::Rebuilding {
            self.phase = Phase::Running;
        }
        // Somebody else has built what it launches.
        self.emptying.retain(|&other| other != stream);
        for _ in 0..most {
            let front = self.streams.get(&stream).and_then(|s| Some((s, s.queue.front()?)));
            if !front.is_some_and(|(s, item)| self.can_give(stream, s, item)) {
                break;
            }
            if let Some(s) = self.streams.get_mut(&stream) {
                s.front = Front::Giving;
                s.begin_front();
            }
        }
    }

    /// After a pause, launches wait until all are built that it can have held back.
    fn may_launch(&self) -> bool {
        self.phase != Phase::Rebuilding || self.streams.values().all(|s| unbuilt(s).is_none())
    }
}

/// True if the stream may have more on the device.
fn has_room<W, F>(stream: &Stream<W, F>) -> bool {
    stream.flow == Flow::Open && stream.num_on_device() < MAX_IN_FLIGHT
}

/// True if so many more launches that can stop may be on the device.
fn has_room_for_launches<W, F>(stream: &Stream<W, F>, count: u64) -> bool {
    stream.num_stopping == 0 || stream.num_stopping + count <= MAX_STOPPING as u64
}

/// True if the device may be given something of the stream that does not stop: nothing is there that could stop in
/// front of it, and little that a pause has to wait for.
fn may_wait_for_more<W, F>(stream: &Stream<W, F>) -> bool {
    stream.num_stopping == 0 && stream.num_ending < stream.window
}

/// Place of the first launch, among those that a pause can have held back, whose program is not built.
fn unbuilt<W: Work, F>(stream: &Stream<W, F>) -> Option<usize> {
    let mut held_back = stream.queue.iter().take(MAX_IN_FLIGHT);
    held_back.position(|item| matches!(item.work.kind(), Kind::Launch { is_built: false, .. }))
}

//! All orders in which events can come, for small applications, with a device that lands what it was given whenever it
//! likes. `HETCKPT_MODEL_DEPTH=long` (`make soak`) adds applications and pauses.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use hetckpt_order::order::{LEGACY, Landed, Loading, Order, Phase, Step};
use hetckpt_order::stream::{Flight, InPause, Item, Kind, Stops, StoredStream, Work};
use hetckpt_state::queue::Place;
use stateright::{Checker, Model, Property};

/// Something that the application puts into a stream, by its number in the application.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thing {
    number: usize,
    sort: Sort,
    is_built: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sort {
    /// A launch that stops when asked.
    Launch,
    /// Two such launches that the device is given as one. The second has the next number.
    Pair,
    /// A launch that does not stop.
    Opaque,
    /// A launch that can be given in either way.
    Short,
    /// The record of an event.
    Record,
    /// A copy that the device does.
    Transfer,
    /// Two copies that the device does as one. The second has the next number.
    Two,
    /// A copy, done by a thread.
    Task,
    /// A function of the application that is to be called.
    Call,
    /// One that has been called.
    HostFunction,
    /// A launch that is over, or has run without effect.
    Ran,
    /// Two of them.
    RanPair,
}

impl Work for Thing {
    fn kind(&self) -> Kind {
        let launch = |is_built, stops| Kind::Launch { is_built, stops };
        let is_built = self.is_built;
        match self.sort {
            Sort::Launch => launch(is_built, Stops::WhenAsked),
            // Nothing is made one of it before that.
            Sort::Pair => launch(true, Stops::WhenAsked),
            Sort::Opaque => launch(is_built, Stops::Never),
            Sort::Short => launch(is_built, Stops::Either),
            Sort::Record => Kind::Follower,
            Sort::Transfer | Sort::Two => Kind::Transfer,
            Sort::Task | Sort::Call | Sort::Ran | Sort::RanPair => Kind::Task,
            Sort::HostFunction => Kind::HostFunction(self.number as u64),
        }
    }

    fn num_places(&self) -> u64 {
        match self.sort {
            Sort::Two | Sort::Pair | Sort::RanPair => 2,
            _ => 1,
        }
    }

    fn behind_a_stop(self) -> Self {
        match self.sort {
            Sort::Launch | Sort::Opaque | Sort::Short => self.into_sort(Sort::Ran),
            Sort::Pair => self.into_sort(Sort::RanPair),
            _ => self,
        }
    }
}

impl Thing {
    fn into_sort(self, sort: Sort) -> Self {
        Self { sort, ..self }
    }

    /// What it is made of.
    fn one_by_one(&self) -> impl Iterator<Item = Self> + use<> {
        let sort = match self.sort {
            Sort::Two => Sort::Transfer,
            Sort::Pair => Sort::Launch,
            Sort::RanPair => Sort::Ran,
            sort => sort,
        };
        let is_built = self.is_built;
        let numbers = (self.number..).take(self.num_places() as usize);
        numbers.map(move |number| Self { number, sort, is_built })
    }
}

/// What the application says, in this order.
#[derive(Clone, Copy, Debug)]
enum Say {
    Create(u64, bool),
    Do(u64, Sort),
    /// `Do` in the first stream, behind the present end of the second.
    DoAfter(u64, Sort, u64),
    Synchronize,
    Destroy(u64),
}

/// A mistake that the check must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// What the device has done behind a stopped launch counts at once.
    CountsBehindAStop,
    /// A snapshot lacks what waits for places.
    ForgetsWaiters,
}

struct Application {
    says: Vec<Say>,
    pauses: u8,
    /// The device stops of its own accord.
    cuts: bool,
    /// When it can load code.
    loading: Loading,
    /// All launches are of one kernel.
    one_kernel: bool,
    faults: bool,
    mistake: Mistake,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    order: Order<Thing, (), Vec<usize>>,
    said: usize,
    /// Stream, and what has to have taken effect before, of each thing by its number.
    things: Vec<(u64, Vec<usize>)>,
    /// What has taken effect, in order.
    effects: Vec<usize>,
    /// What the device has been told to stop.
    is_told: bool,
    pauses_left: u8,
    cuts_left: u8,
    /// What a thread has taken.
    taken: BTreeMap<u64, Item<Thing>>,
    building: BTreeMap<u64, usize>,
    /// Functions of the application that have been called.
    called: Vec<u64>,
    /// What waiters waited for when they were let go.
    let_go: Vec<Vec<usize>>,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Say,
    /// What [`Order::next`] says for a stream.
    Step(u64),
    Finish(u64),
    Built(u64),
    /// The first of what is being given is on the device.
    Given(u64),
    Return(u64),
    LandDone(u64),
    LandStopped(u64),
    /// The second of a pair has stopped.
    LandHalfDone(u64),
    LandFailed(u64),
    Cut,
    Pause,
    /// A snapshot is taken in the pause, and the application goes on from that in another server.
    Restore,
    GoOn,
}

impl State {
    fn effect_of(&mut self, thing: &Thing) {
        (thing.number..)
            .take(thing.num_places() as usize)
            .for_each(|number| self.effect(number));
    }

    fn effect(&mut self, number: usize) {
        let (stream, before) = self.things[number].clone();
        if before.iter().any(|n| !self.effects.contains(n)) {
            self.broken = Some("something took effect before what it comes behind");
        }
        if self.effects.contains(&number) {
            self.broken = Some("something took effect twice");
        }
        let earlier = (0..number).filter(|&n| self.things[n].0 == stream);
        if earlier.clone().any(|n| !self.effects.contains(&n)) {
            self.broken = Some("something took effect before what is in front of it in its stream");
        }
        self.effects.push(number);
    }

    fn let_go(&mut self, released: Vec<Vec<usize>>) {
        for waiter in released {
            if waiter.iter().any(|n| !self.effects.contains(n)) {
                self.broken = Some("a wait was over before what it waited for");
            }
            self.let_go.push(waiter);
            self.order.released();
        }
    }

    fn submitted(&self) -> Vec<usize> {
        (0..self.things.len()).collect()
    }

    /// What is in front of a place.
    fn in_front_of(&self, place: Place) -> Vec<usize> {
        let of_stream = (0..self.things.len()).filter(|&n| self.things[n].0 == place.stream);
        of_stream.take(usize::try_from(place.number).unwrap()).collect()
    }

    fn say(&mut self, say: Say) {
        match say {
            Say::Create(stream, non_blocking) => {
                self.order.create(stream, non_blocking, 0);
                self.order.set_window(stream, 2);
            }
            Say::Do(stream, sort) => self.submit(stream, sort, Vec::new()),
            Say::DoAfter(stream, sort, other) => {
                let after = self.order.latest_place(other).into_iter().collect();
                self.submit(stream, sort, after);
            }
            Say::Synchronize => {
                let (all, ends) = (self.submitted(), self.order.ends());
                let released = self.order.wait_for(all, ends);
                self.let_go(released);
            }
            Say::Destroy(stream) => self.order.destroy(stream),
        }
        self.said += 1;
    }

    fn submit(&mut self, stream: u64, sort: Sort, after: Vec<Place>) {
        let number = self.things.len();
        let mut before: Vec<usize> = after.iter().flat_map(|&place| self.in_front_of(place)).collect();
        // CUDA's rule for the legacy default stream.
        let is_blocking = |id: u64| self.order.stream(id).is_some_and(|s| !s.is_non_blocking());
        let joins = |other: u64| {
            other != stream && is_blocking(stream) && is_blocking(other) && (stream == LEGACY || other == LEGACY)
        };
        before.extend((0..number).filter(|&n| joins(self.things[n].0)));
        let thing = Thing {
            number,
            sort,
            is_built: false,
        };
        self.things
            .resize(number + thing.num_places() as usize, (stream, before));
        if !self.order.submit(stream, thing, after) {
            self.broken = Some("a stream is gone that the application has");
        }
    }

    fn is_device_empty(&self) -> bool {
        self.order.streams().all(|(_, s)| s.num_on_device() == 0)
    }

    fn step(&mut self, stream: u64, loading: Loading) {
        match self.order.next(stream) {
            Step::Wait => {}
            Step::Empty => self.order.begin_emptying(stream),
            Step::Give => {
                if loading == Loading::Alone && !self.building.is_empty() {
                    self.broken = Some("something was given to the device while it loaded code");
                }
                let number = self.order.stream(stream).unwrap().front().unwrap().work.number;
                let before = &self.things[number].1;
                if before.iter().any(|n| !self.effects.contains(n)) {
                    self.broken = Some("something was given to the device before what it comes behind");
                }
                self.order.begin_give(stream, 2);
            }
            Step::Build(at) => {
                if loading == Loading::Alone && !self.is_device_empty() {
                    self.broken = Some("code was loaded while something was on the device");
                }
                self.order.begin_build(stream, at).unwrap();
                self.building.insert(stream, at);
            }
            Step::Take => {
                let item = self.order.take(stream).unwrap();
                self.taken.insert(stream, item);
            }
            Step::Forget => self.order.forget(stream),
        }
    }

    fn finish(&mut self, stream: u64) {
        let mut item = self.taken.remove(&stream).unwrap();
        let number = item.work.number;
        if item.work.sort == Sort::Call && self.order.fault() == 0 {
            self.called.push(number as u64);
            item.work.sort = Sort::HostFunction;
            self.order.put_back(stream, item);
        } else {
            self.order.forget_host_function(number as u64);
            self.effect_of(&item.work);
            let released = self.order.done(stream);
            self.let_go(released);
        }
        self.order.free(stream);
    }

    /// As `capture` and `restore` of the server have it.
    fn restore(&mut self, loading: Loading, mistake: Mistake) {
        let streams = self.order.streams().map(|(id, stream)| {
            // What belongs together comes one by one.
            let one_by_one = |item: &Item<Thing>| {
                let Item { work, after } = item.clone();
                let is_built = false;
                work.one_by_one().map(move |one| Item {
                    work: Thing { is_built, ..one },
                    after: after.clone(),
                })
            };
            let stored = StoredStream {
                non_blocking: stream.is_non_blocking(),
                priority: stream.priority(),
                is_destroyed: stream.is_destroyed(),
                completed: stream.completed(),
                queue: stream.queue().flat_map(one_by_one).collect(),
            };
            (id, stored)
        });
        let waiters = match mistake {
            Mistake::ForgetsWaiters => Vec::new(),
            _ => self.order.waiters().to_vec(),
        };
        let done = self.order.host_functions_done();
        self.order = Order::restored(loading, streams, waiters, done, self.order.fault());
        // Nobody builds or holds anything there.
        self.building.clear();
        if !self.taken.is_empty() {
            self.broken = Some("a snapshot lacks what a thread has taken");
        }
    }

    fn build_all(&mut self) {
        let streams: Vec<u64> = self.order.streams().map(|(id, _)| id).collect();
        for stream in streams {
            self.order.queued_mut(stream).for_each(|thing| thing.is_built = true);
        }
    }

    /// A launch is told to stop by the device's own clock or by a pause.
    fn may_stop(&self, flight: &Flight<Thing, ()>) -> bool {
        flight.in_pause == InPause::Stops && self.is_told
    }

    fn land_done(&mut self, stream: u64, mistake: Mistake) {
        let flight = self.order.landed(stream).unwrap();
        let number = flight.work.number;
        let is_behind_a_stop = self.order.stream(stream).unwrap().has_stopped();
        if is_behind_a_stop && mistake == Mistake::CountsBehindAStop {
            self.effect(number);
        }
        if is_behind_a_stop && flight.in_pause == InPause::Ends {
            self.broken = Some("what cannot stop was done behind a stopped launch");
        }
        match self.order.land_done(stream, flight.work) {
            Landed::Held => {}
            Landed::Done { work, released } => {
                self.effect_of(&work);
                self.let_go(released);
            }
        }
    }
}

impl Model for Application {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            order: Order::new(self.loading),
            said: 0,
            things: Vec::new(),
            effects: Vec::new(),
            is_told: false,
            pauses_left: self.pauses,
            cuts_left: u8::from(self.cuts),
            taken: BTreeMap::new(),
            building: BTreeMap::new(),
            called: Vec::new(),
            let_go: Vec::new(),
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let phase = state.order.phase();
        if state.broken.is_some() {
            return;
        }
        if state.said < self.says.len() {
            actions.push(Action::Say);
        }
        for (id, stream) in state.order.streams() {
            if state.order.next(id) != Step::Wait {
                actions.push(Action::Step(id));
            }
            if state.order.giving(id).next().is_some() {
                actions.push(Action::Given(id));
            }
            let Some(first) = stream.flights().next() else { continue };
            // Behind a stopped launch, one that stops turns itself away, unless it has nothing to do.
            actions.push(Action::LandDone(id));
            if state.may_stop(first) {
                actions.push(Action::LandStopped(id));
                if first.work.sort == Sort::Pair {
                    actions.push(Action::LandHalfDone(id));
                }
            }
            if self.faults && state.order.fault() == 0 && phase == Phase::Running {
                actions.push(Action::LandFailed(id));
            }
        }
        actions.extend(state.taken.keys().map(|&id| Action::Finish(id)));
        actions.extend(state.building.keys().map(|&id| Action::Built(id)));
        actions.extend(state.called.iter().map(|&id| Action::Return(id)));
        match phase {
            Phase::Running | Phase::Rebuilding => {
                if state.pauses_left > 0 {
                    actions.push(Action::Pause);
                }
                let is_flying = state.order.streams().any(|(_, s)| s.flights().len() > 0);
                if state.cuts_left > 0 && is_flying && !state.is_told {
                    actions.push(Action::Cut);
                }
            }
            Phase::Paused if state.order.is_quiet() => actions.extend([Action::GoOn, Action::Restore]),
            Phase::Cut if state.order.have_stopped() => actions.push(Action::GoOn),
            Phase::Cut if state.pauses_left > 0 => actions.push(Action::Pause),
            Phase::Paused | Phase::Cut => {}
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Say => state.say(self.says[state.said]),
            Action::Step(id) => state.step(id, self.loading),
            Action::Finish(id) => state.finish(id),
            Action::Built(id) => {
                let at = state.building.remove(&id).unwrap();
                if let Some(thing) = state.order.queued_mut(id).nth(at) {
                    thing.is_built = true;
                }
                if self.one_kernel {
                    state.build_all();
                }
                state.order.free(id);
            }
            Action::Given(id) => {
                state.order.given(id, ());
                if state.order.giving(id).next().is_none() {
                    state.order.free(id);
                }
            }
            Action::Return(id) => {
                state.order.host_function_returned(id);
                state.called.retain(|&called| called != id);
            }
            Action::LandDone(id) => state.land_done(id, self.mistake),
            Action::LandStopped(id) => {
                if state.order.phase() != Phase::Paused {
                    state.order.cut();
                }
                let flight = state.order.landed(id).unwrap();
                // What a pause leaves goes on one by one.
                state.order.land_stopped(id, flight.work.one_by_one());
            }
            Action::LandHalfDone(id) => {
                if state.order.phase() != Phase::Paused {
                    state.order.cut();
                }
                let flight = state.order.landed(id).unwrap();
                let mut halves = flight.work.one_by_one();
                let first = halves.next().map(|half| half.into_sort(Sort::Ran));
                state.order.land_stopped(id, first.into_iter().chain(halves));
            }
            Action::LandFailed(id) => {
                state.order.fail(719);
                state.land_done(id, self.mistake);
            }
            Action::Cut => {
                state.is_told = true;
                state.cuts_left -= 1;
            }
            Action::Pause => {
                state.order.pause();
                state.is_told = true;
                state.pauses_left -= 1;
            }
            Action::Restore => state.restore(self.loading, self.mistake),
            Action::GoOn => {
                state.is_told = false;
                state.order.go_on();
            }
        }
        let begins = matches!(action, Action::Step(_));
        if begins && matches!(last.order.phase(), Phase::Paused | Phase::Cut) {
            state.broken = Some("something began in a pause");
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("in order", |_, state: &State| state.broken.is_none()),
            Property::always("nothing is forgotten", |model: &Self, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                let waits = model.says.iter().filter(|say| matches!(say, Say::Synchronize)).count();
                !actions.is_empty()
                    || state.broken.is_some()
                    || (state.effects.len() == state.things.len() && state.let_go.len() == waits)
            }),
            Property::sometimes("it ends", |model: &Self, state: &State| {
                state.said == model.says.len() && state.effects.len() == state.things.len()
            }),
        ]
    }
}

fn application(says: &[Say]) -> Application {
    Application {
        says: says.to_vec(),
        pauses: 1,
        cuts: false,
        loading: Loading::WhileRunning,
        one_kernel: false,
        faults: false,
        mistake: Mistake::None,
    }
}

fn check(application: Application) -> usize {
    let says = application.says.clone();
    let checker = application.checker().threads(2).spawn_bfs().join();
    eprintln!("{says:?}: {} states", checker.unique_state_count());
    checker.assert_properties();
    checker.unique_state_count()
}

fn is_long() -> bool {
    std::env::var("HETCKPT_MODEL_DEPTH").is_ok_and(|depth| depth == "long")
}

use Say::{Create, Destroy, Do, DoAfter, Synchronize};
use Sort::{Call, Launch, Opaque, Pair, Record, Short, Task, Transfer, Two};

/// Launches with a record between them, and a copy behind, in one stream.
const ONE_STREAM: &[Say] = &[Do(0, Launch), Do(0, Record), Do(0, Launch), Do(0, Task), Synchronize];
/// Two streams, one behind the other's event.
const TWO_STREAMS: &[Say] = &[
    Create(1, true),
    Create(2, true),
    Do(1, Launch),
    Do(1, Record),
    DoAfter(2, Launch, 1),
    Do(2, Transfer),
    Synchronize,
];
/// Three streams, each with launches and records, that all wait for one another.
const MANY: &[Say] = &[
    Create(1, true),
    Create(2, false),
    Do(1, Launch),
    Do(2, Launch),
    Do(1, Record),
    DoAfter(2, Record, 1),
    Do(0, Launch),
    DoAfter(1, Launch, 0),
    Synchronize,
];
/// The legacy default stream and a stream that joins with it.
const JOINS: &[Say] = &[
    Create(1, false),
    Do(1, Launch),
    Do(0, Launch),
    Do(1, Record),
    Destroy(1),
    Synchronize,
];
/// What cannot stop, and a function of the application.
const OTHERS: &[Say] = &[Do(0, Opaque), Do(0, Call), Do(0, Launch), Do(0, Opaque), Synchronize];
/// Copies and launches that cannot stop, several on the device at once, with launches that can.
const MIXED: &[Say] = &[
    Create(1, true),
    Do(1, Transfer),
    Do(1, Opaque),
    Do(1, Transfer),
    Do(1, Launch),
    Do(1, Record),
    Do(1, Transfer),
    Do(1, Launch),
    Synchronize,
];

/// Things that are given to the device as one, which other streams come behind.
const TOGETHER: &[Say] = &[
    Create(1, true),
    Create(2, true),
    Do(1, Launch),
    Do(1, Two),
    DoAfter(2, Two, 1),
    Do(1, Launch),
    DoAfter(1, Record, 2),
    Synchronize,
];

/// Launches that can stop and that are given as one, among others.
const PAIRS: &[Say] = &[
    Create(1, true),
    Create(2, true),
    Do(1, Pair),
    Do(1, Record),
    Do(1, Pair),
    DoAfter(2, Launch, 1),
    Do(1, Transfer),
    Synchronize,
];

/// Launches that can be given in either way, among others.
const SHORT: &[Say] = &[
    Create(1, true),
    Do(1, Short),
    Do(1, Launch),
    Do(1, Short),
    Do(1, Record),
    Do(1, Transfer),
    Do(1, Short),
    Do(1, Pair),
    Do(1, Short),
    Synchronize,
];

#[test]
fn everything_takes_effect_once_and_in_order() {
    let all = [
        ONE_STREAM,
        TWO_STREAMS,
        JOINS,
        OTHERS,
        MIXED,
        MANY,
        TOGETHER,
        PAIRS,
        SHORT,
    ];
    for says in all {
        check(application(says));
        let pauses = if is_long() { 4 } else { 2 };
        for one_kernel in [false, true] {
            check(Application {
                pauses,
                loading: Loading::Alone,
                one_kernel,
                ..application(says)
            });
        }
    }
}

#[test]
fn a_device_that_stops_of_its_own_accord_keeps_the_order() {
    for says in [ONE_STREAM, TWO_STREAMS, JOINS, PAIRS, SHORT] {
        check(Application {
            cuts: true,
            pauses: u8::from(is_long()),
            ..application(says)
        });
    }
}

#[test]
fn a_failure_ends_everything_once() {
    for says in [ONE_STREAM, TWO_STREAMS, JOINS, OTHERS, MIXED, TOGETHER, PAIRS, SHORT] {
        check(Application {
            faults: true,
            ..application(says)
        });
    }
}

#[test]
fn the_check_finds_mistakes() {
    let mistakes = [
        (Mistake::CountsBehindAStop, "in order"),
        (Mistake::ForgetsWaiters, "nothing is forgotten"),
    ];
    for (mistake, broken) in mistakes {
        let application = Application {
            mistake,
            ..application(ONE_STREAM)
        };
        let checker = application.checker().threads(2).spawn_bfs().join();
        let path = checker.discovery(broken).unwrap();
        eprintln!("{mistake:?}: {:?}", path.into_actions());
    }
}

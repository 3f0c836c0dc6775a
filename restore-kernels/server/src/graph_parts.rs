//! Parts of graphs that the application launches again and again ([`hetckpt_ring::graph_part`]). Of one that comes a
//! second time the device makes a graph of its own, where it can; until then, and elsewhere, its steps go into the
//! stream one by one.
//!
//! The application sends all of a part each time. What is kept here counts only for the same bytes, and nobody misses
//! it when it is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hetckpt_devices::device::DeviceGraph;
use hetckpt_order::stream::{InPause, Stops};
use hetckpt_ring::command::{Command, GraphId};
use rustc_hash::FxHashMap;

use crate::kernels::ProbedKernel;
use crate::launch_spec::LaunchSpec;
use crate::window::LONGEST;

/// Runs that take less time than this share of [`LONGEST`] may become longer.
const MUCH_SHORTER: u32 = 8;
/// Runs are only made shorter when they have seemed too long so often: now and then somebody looks late.
const TOO_LONG_TIMES: u32 = 3;
/// So many launches of a run are watched at first, and later at least one of so many.
const WATCHED_AT_FIRST: u32 = 4;
const WATCHED_ONE_OF: u32 = 32;
/// After so much work it is looked how far the device has got.
const BETWEEN_WATCHED: Duration = Duration::from_millis(1);

/// A part: its graph, and its number there.
pub type PartKey = (GraphId, u32);

/// Steps that the device does as one.
pub struct GraphRun {
    /// The part that they are of.
    pub part: PartKey,
    /// The steps, as the application asked for them.
    pub steps: Vec<Command>,
    /// Memory that its copies and fills touch: address and bytes.
    pub ranges: Vec<(u64, u64)>,
    /// What the device has made of them.
    pub graphs: Graphs,
    /// How it fares on the device.
    pub pace: Pace,
}

/// What the device has made of steps.
pub enum Graphs {
    /// A pause waits for it.
    Waits(Arc<dyn DeviceGraph>),
    /// A pause stops it.
    Stops(Stoppable),
    /// It can be either.
    Either {
        /// A pause waits for it.
        waits: Arc<dyn DeviceGraph>,
        /// A pause stops it.
        stops: Stoppable,
    },
}

/// A graph whose launches stop when asked.
pub struct Stoppable {
    /// What the device has made of them.
    pub graph: Arc<dyn DeviceGraph>,
    /// One for each step.
    pub launches: Vec<StoppableStep>,
}

/// A launch that can stop, with the kernel whose resume points a stop names.
#[derive(Clone)]
pub struct StoppableStep {
    /// The launch.
    pub spec: Arc<LaunchSpec>,
    /// The kernel.
    pub probed: Arc<ProbedKernel>,
}

/// How often a run has been launched, and how long it takes.
#[derive(Debug, Default)]
pub struct Pace {
    num_launches: AtomicU32,
    took_us: AtomicU32,
    /// How often, one time after another, it has seemed to take too long.
    num_long: AtomicU32,
}

/// What a run's time says of its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// A pause may have to wait for all of it, and that is too long.
    TooLong,
    /// It may stay as it is.
    Fits,
    /// It may become longer.
    Short,
}

impl Pace {
    /// It is to be launched. If its end is to be watched, so that it can be told how long it takes, returns how long
    /// what stands before it takes, from the last thing on that is watched. To watch each would take long compared with
    /// short runs. `unwatched` adds that up for a stream.
    pub fn begin(&self, unwatched: &mut Duration) -> Option<Duration> {
        let launches = self.num_launches.fetch_add(1, Ordering::Relaxed);
        let before = *unwatched;
        *unwatched += Duration::from_micros(self.took_us.load(Ordering::Relaxed).into());
        let is_watched =
            launches < WATCHED_AT_FIRST || launches.is_multiple_of(WATCHED_ONE_OF) || *unwatched >= BETWEEN_WATCHED;
        is_watched.then(|| {
            *unwatched = Duration::ZERO;
            before
        })
    }

    /// It has taken so long.
    pub fn ended(&self, after: Duration) -> Length {
        let us = u32::try_from(after.as_micros()).unwrap_or(u32::MAX);
        self.took_us.store(us, Ordering::Relaxed);
        if after > LONGEST {
            let before = self.num_long.fetch_add(1, Ordering::Relaxed);
            return if before + 1 < TOO_LONG_TIMES {
                Length::Fits
            } else {
                Length::TooLong
            };
        }
        self.num_long.store(0, Ordering::Relaxed);
        if after < LONGEST / MUCH_SHORTER {
            Length::Short
        } else {
            Length::Fits
        }
    }
}

impl GraphRun {
    /// Launches among the steps.
    #[must_use]
    pub fn num_launches(&self) -> usize {
        let launches = self.steps.iter().filter(|step| matches!(step, Command::Launch(_)));
        launches.count()
    }

    /// What it does when asked to stop.
    #[must_use]
    pub fn stops(&self) -> Stops {
        match &self.graphs {
            Graphs::Waits(_) => Stops::Never,
            Graphs::Stops(_) => Stops::WhenAsked,
            Graphs::Either { .. } => Stops::Either,
        }
    }

    /// What to give to the device, for a pause to do this to it.
    #[must_use]
    pub fn graph(&self, in_pause: InPause) -> &Arc<dyn DeviceGraph> {
        match (&self.graphs, in_pause) {
            (Graphs::Waits(graph), _) => graph,
            (Graphs::Either { stops, .. }, InPause::Stops) | (Graphs::Stops(stops), _) => &stops.graph,
            (Graphs::Either { waits, .. }, InPause::Ends | InPause::Follows) => waits,
        }
    }

    /// Its launches, one for each step, if a pause can stop it.
    #[must_use]
    pub fn stoppable(&self) -> &[StoppableStep] {
        match &self.graphs {
            Graphs::Waits(_) => &[],
            Graphs::Stops(stops) | Graphs::Either { stops, .. } => &stops.launches,
        }
    }

    fn is_of(&self, module: u64) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|step| matches!(step, Command::Launch(launch) if launch.kernel.module.0 == module))
    }
}

/// What of a part goes into a stream as one item.
pub enum Piece {
    /// Steps that the device does as one.
    Run(Arc<GraphRun>),
    /// A step by itself.
    Step(Command),
}

/// How a part is launched.
pub enum Way {
    /// Step by step.
    OneByOne,
    /// The same, and runs of so many steps at most are to be made for the next time ([`GraphParts::made`]).
    OneByOneThenRuns {
        /// Steps.
        most: usize,
    },
    /// In these pieces.
    Pieces(Arc<[Piece]>),
}

enum Made {
    /// It has been launched once.
    Nothing,
    /// Pieces are being made, or there is nothing to be made of it.
    OneByOne,
    Pieces(Arc<[Piece]>),
}

/// A part that has been launched.
pub struct Part {
    bytes: Arc<[u8]>,
    /// Steps of a run at most.
    most: usize,
    made: Made,
}

impl Part {
    /// The next runs are of so many steps at most.
    fn divide(&mut self, most: usize) {
        self.most = most;
        self.made = Made::Nothing;
    }
}

/// The parts that have been launched.
#[derive(Default)]
pub struct GraphParts(FxHashMap<PartKey, Part>);

impl GraphParts {
    /// A part is launched that is `bytes` now.
    pub fn launch(&mut self, key: PartKey, bytes: &Arc<[u8]>) -> Way {
        match self.0.get_mut(&key).filter(|part| part.bytes == *bytes) {
            Some(part) => match &part.made {
                Made::Nothing => {
                    part.made = Made::OneByOne;
                    Way::OneByOneThenRuns { most: part.most }
                }
                Made::OneByOne => Way::OneByOne,
                Made::Pieces(pieces) => Way::Pieces(Arc::clone(pieces)),
            },
            None => {
                let part = Part {
                    bytes: Arc::clone(bytes),
                    most: usize::MAX,
                    made: Made::Nothing,
                };
                self.0.insert(key, part);
                Way::OneByOne
            }
        }
    }

    /// Nothing could be made yet of a part that was `bytes` then: it is to be tried again.
    pub fn not_yet(&mut self, key: PartKey, bytes: &Arc<[u8]>) {
        if let Some(part) = self.0.get_mut(&key).filter(|part| part.bytes == *bytes) {
            part.made = Made::Nothing;
        }
    }

    /// Pieces have been made of a part that was `bytes` then. Without runs they are of no use.
    pub fn made(&mut self, key: PartKey, bytes: &Arc<[u8]>, pieces: Vec<Piece>) {
        let has_runs = pieces.iter().any(|piece| matches!(piece, Piece::Run(_)));
        if let Some(part) = self.0.get_mut(&key).filter(|part| part.bytes == *bytes)
            && has_runs
        {
            part.made = Made::Pieces(pieces.into());
        }
    }

    /// A run of `num_steps` steps of a part has shown its length, which the next runs go by.
    pub fn landed(&mut self, key: PartKey, num_steps: usize, length: Length) {
        let Some(part) = self.0.get_mut(&key) else { return };
        match length {
            Length::TooLong if num_steps <= part.most => part.divide((num_steps / 2).max(1)),
            Length::Short if num_steps == part.most => part.divide(num_steps * 2),
            _ => {}
        }
    }

    /// Takes out all parts of a graph, to be dropped without a lock.
    #[must_use]
    pub fn forget(&mut self, graph: GraphId) -> Vec<Part> {
        self.take_out(|key, _| key.0 == graph)
    }

    /// Takes out all parts with kernels of a module.
    #[must_use]
    pub fn forget_module(&mut self, module: u64) -> Vec<Part> {
        let is_of = |piece: &Piece| matches!(piece, Piece::Run(run) if run.is_of(module));
        self.take_out(|_, part| matches!(&part.made, Made::Pieces(pieces) if pieces.iter().any(is_of)))
    }

    /// Takes out all parts.
    #[must_use]
    pub fn clear(&mut self) -> Vec<Part> {
        self.take_out(|_, _| true)
    }

    fn take_out(&mut self, mut goes: impl FnMut(&PartKey, &Part) -> bool) -> Vec<Part> {
        self.0
            .extract_if(|key, part| goes(key, part))
            .map(|(_, part)| part)
            .collect()
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    struct NoGraph;

    impl DeviceGraph for NoGraph {
        fn as_any(&self) -> &dyn std::any::Any {
            self
        }
    }

    const KEY: PartKey = (GraphId(3), 1);

    fn bytes(of: u8) -> Arc<[u8]> {
        Arc::new([of; 4])
    }

    fn run(num_steps: usize) -> Piece {
        Piece::Run(Arc::new(GraphRun {
            part: KEY,
            steps: vec![Command::Exit; num_steps],
            ranges: Vec::new(),
            graphs: Graphs::Waits(Arc::new(NoGraph)),
            pace: Pace::default(),
        }))
    }

    fn most_of(way: &Way) -> usize {
        match way {
            Way::OneByOneThenRuns { most } => *most,
            Way::OneByOne | Way::Pieces(_) => panic!("nothing is to be made"),
        }
    }

    #[test]
    fn what_comes_twice_is_made_into_runs() {
        let (mut parts, first) = (GraphParts::default(), bytes(1));
        assert!(matches!(parts.launch(KEY, &first), Way::OneByOne));
        assert_eq!(most_of(&parts.launch(KEY, &first)), usize::MAX);
        assert!(matches!(parts.launch(KEY, &first), Way::OneByOne), "under way");
        parts.not_yet(KEY, &first);
        assert_eq!(most_of(&parts.launch(KEY, &first)), usize::MAX, "again");
        parts.made(KEY, &bytes(2), vec![run(4)]);
        assert!(matches!(parts.launch(KEY, &first), Way::OneByOne), "of other bytes");
        parts.made(KEY, &first, vec![run(4)]);
        assert!(matches!(parts.launch(KEY, &first), Way::Pieces(_)));
        assert!(matches!(parts.launch(KEY, &bytes(2)), Way::OneByOne), "changed");
        assert!(matches!(parts.launch(KEY, &first), Way::OneByOne), "changed back");
        assert_eq!(parts.forget(KEY.0).len(), 1);
        assert!(matches!(parts.launch(KEY, &first), Way::OneByOne));
    }

    #[test]
    fn short_runs_are_watched_now_and_then() {
        let (pace, mut unwatched) = (Pace::default(), Duration::ZERO);
        let mut watched = |pace: &Pace, times: u32| (0..times).filter_map(|_| pace.begin(&mut unwatched)).count();
        assert_eq!(watched(&pace, WATCHED_AT_FIRST), WATCHED_AT_FIRST as usize);
        let _ = pace.ended(BETWEEN_WATCHED / 10);
        assert_eq!(watched(&pace, 20), 2);
        let _ = pace.ended(BETWEEN_WATCHED);
        assert_eq!(watched(&pace, 20), 20);
        let _ = pace.ended(Duration::ZERO);
        assert_eq!(watched(&pace, WATCHED_ONE_OF), 1);
    }

    #[test]
    fn runs_that_take_long_become_shorter() {
        let (mut parts, bytes) = (GraphParts::default(), bytes(1));
        let _ = parts.launch(KEY, &bytes);
        parts.landed(KEY, 100, Length::Fits);
        assert_eq!(most_of(&parts.launch(KEY, &bytes)), usize::MAX);
        parts.landed(KEY, 100, Length::TooLong);
        assert_eq!(most_of(&parts.launch(KEY, &bytes)), 50);
        parts.landed(KEY, 100, Length::TooLong);
        assert!(
            matches!(parts.launch(KEY, &bytes), Way::OneByOne),
            "one of the longer ones"
        );
        parts.landed(KEY, 50, Length::Short);
        assert_eq!(most_of(&parts.launch(KEY, &bytes)), 100);
    }

    #[test]
    fn a_run_is_too_long_when_it_has_been_so_several_times() {
        let pace = Pace::default();
        let long = LONGEST * 2;
        let lengths = |times: u32, after| (0..times).map(|_| pace.ended(after)).collect::<Vec<_>>();
        assert_eq!(lengths(2, long), [Length::Fits; 2], "somebody may have looked late");
        assert_eq!(lengths(2, LONGEST / 2), [Length::Fits; 2]);
        assert_eq!(lengths(3, long), [Length::Fits, Length::Fits, Length::TooLong]);
        assert_eq!(lengths(1, LONGEST / 16), [Length::Short]);
    }
}

//! Making graphs of the device of what an application launches as a part of a graph.

use std::sync::Arc;

use hetckpt_devices::device::{GraphNode, GraphStep, InPause};
use hetckpt_devices::error::DeviceError;
use hetckpt_order::order::MAX_STOPPING;
use hetckpt_order::stream::Stops;
use hetckpt_ring::command::Command;
use hetckpt_ring::graph_part;

use crate::graph_parts::{GraphRun, Graphs, Pace, PartKey, Piece, Stoppable, StoppableStep};
use crate::launch::graph_step;
use crate::queues::{What, Work};
use crate::session::Session;
use crate::transfers::{ranges, transfer_of};

/// One step is as well launched by itself.
const FEWEST_STEPS: usize = 2;
/// Launches that can stop, in one run: several runs of so many can be on the device.
const MOST_STOPPABLE: usize = 64;
/// Threads of them: a pause lays out a bit for each of a run, and a word for each block.
const MOST_THREADS: u64 = 1 << 25;

/// The programs of some launches have not been built yet.
#[derive(Clone, Copy, Debug)]
pub struct NotYet;

/// What the device is to do for a command.
struct Step {
    command: Command,
    on_device: GraphStep,
    /// Places in the part.
    after: Vec<u32>,
    /// If a pause can stop it.
    stoppable: Option<StoppableStep>,
    stops: Stops,
}

/// Steps in a row to which a pause can do the same.
struct Row {
    /// The first one's place in the part.
    first: u32,
    steps: Vec<Step>,
    /// What that is: of steps that can be either, either.
    stops: Stops,
    /// Of those that can stop.
    num_threads: u64,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            first: 0,
            steps: Vec::new(),
            stops: Stops::Either,
            num_threads: 0,
        }
    }
}

/// Makes graphs of a part.
struct Maker<'a> {
    session: &'a Session,
    part: PartKey,
    /// Steps of a run that a pause waits for, at most.
    most: usize,
    /// So often the part can be on the device at a time, as far as it can stop.
    at_a_time: usize,
    pieces: Vec<Piece>,
    row: Row,
}

/// Divides a part into runs that the device does as one, and other steps. Each step comes with what a stream has to do
/// for it. A run that a pause waits for has `most` steps at most. Takes as long as the driver does.
///
/// # Errors
/// [`NotYet`].
pub fn pieces(
    session: &Session,
    part: PartKey,
    most: usize,
    steps: Vec<(What, graph_part::Step)>,
) -> Result<Vec<Piece>, NotYet> {
    let works = || steps.iter().map(|(what, _)| Work::of(what.clone()));
    if !works().all(|work| work.is_built()) {
        return Err(NotYet);
    }
    let num_stoppable = works().filter(Work::can_stop_in_graphs).count();
    let mut maker = Maker {
        session,
        part,
        most,
        at_a_time: MAX_STOPPING.div_ceil(num_stoppable.max(1)),
        pieces: Vec::new(),
        row: Row::default(),
    };
    for (place, (what, given)) in (0..).zip(steps) {
        match step(session, given.clone(), what) {
            Some(step) => maker.add(place, step),
            None => maker.add_alone(given.command),
        }
    }
    maker.end_row();
    Ok(maker.pieces)
}

/// What the device is to do for a step; `None` if it does it better alone.
fn step(session: &Session, graph_part::Step { command, after }: graph_part::Step, what: What) -> Option<Step> {
    let work = Work::of(what);
    let What::Start(spec) = &work.what else {
        let elsewhere = session.moved.read().in_command(&command);
        let transfer = transfer_of(elsewhere.as_ref().unwrap_or(&command))?;
        return Some(Step {
            command,
            on_device: GraphStep::Transfer(transfer),
            after,
            stoppable: None,
            stops: Stops::Never,
        });
    };
    if !work.is_opaque() && !work.can_stop_in_graphs() {
        return None;
    }
    let (on_device, probed) = graph_step(&work).ok()?;
    let spec = Arc::clone(spec);
    Some(Step {
        command,
        on_device,
        after,
        stoppable: probed.map(|probed| StoppableStep { spec, probed }),
        stops: work.stops(),
    })
}

impl Row {
    /// What a pause can do to all of it with one more step, if there is anything.
    fn with(&self, step: &Step) -> Option<Stops> {
        match (self.stops, step.stops) {
            (one, Stops::Either) => Some(one),
            (Stops::Either, other) => Some(other),
            (one, other) => (one == other).then_some(one),
        }
    }
}

impl Maker<'_> {
    fn add(&mut self, place: u32, step: Step) {
        let threads = step.stoppable.as_ref().map_or(0, |StoppableStep { spec, .. }| {
            let per_block = spec.shape.threads_per_block().max(32);
            spec.shape.num_blocks().saturating_mul(per_block)
        });
        let num_threads = self.row.num_threads.saturating_add(threads);
        if self.row.with(&step).is_none() || num_threads > MOST_THREADS {
            self.end_row();
        }
        let row = &mut self.row;
        if row.steps.is_empty() {
            row.first = place;
        }
        row.stops = row.with(&step).unwrap_or(step.stops);
        row.num_threads = row.num_threads.saturating_add(threads);
        row.steps.push(step);
        let most = match row.stops {
            Stops::Never => self.most,
            Stops::WhenAsked => MOST_STOPPABLE,
            Stops::Either => self.most.min(MOST_STOPPABLE),
        };
        if row.steps.len() >= most {
            self.end_row();
        }
    }

    fn add_alone(&mut self, command: Command) {
        self.end_row();
        self.pieces.push(Piece::Step(command));
    }

    fn end_row(&mut self) {
        let Row {
            first, steps, stops, ..
        } = std::mem::take(&mut self.row);
        let (mut commands, mut launches, mut on_device) = (Vec::new(), Vec::new(), Vec::new());
        for step in steps {
            commands.push(step.command);
            launches.extend(step.stoppable);
            // The row begins when all that is before it has ended.
            let in_row = |place: &u32| place.checked_sub(first).map(|place| place as usize);
            on_device.push(GraphNode {
                step: step.on_device,
                after: step.after.iter().filter_map(in_row).collect(),
            });
        }
        if commands.len() >= FEWEST_STEPS {
            match self.graphs(stops, &on_device, launches) {
                Ok(graphs) => {
                    tracing::debug!(part = ?self.part, steps = commands.len(), ?stops, "a graph is made");
                    let touched = on_device.iter().filter_map(|node| match &node.step {
                        GraphStep::Transfer(transfer) => ranges(transfer),
                        GraphStep::Launch(_) => None,
                    });
                    return self.pieces.push(Piece::Run(Arc::new(GraphRun {
                        part: self.part,
                        ranges: touched.flatten().collect(),
                        steps: commands,
                        graphs,
                        pace: Pace::default(),
                    })));
                }
                Err(error) => tracing::warn!(%error, "no graph can be made; its steps are launched one by one"),
            }
        }
        self.pieces.extend(commands.into_iter().map(Piece::Step));
    }

    fn graphs(&self, stops: Stops, nodes: &[GraphNode], launches: Vec<StoppableStep>) -> Result<Graphs, DeviceError> {
        let make = |in_pause| self.session.device.make_graph(nodes, in_pause);
        let at_a_time = self.at_a_time;
        let stoppable = || {
            let graph = make(InPause::Stops { at_a_time })?;
            Ok::<_, DeviceError>(Stoppable { graph, launches })
        };
        Ok(match stops {
            Stops::Never => Graphs::Waits(make(InPause::Waits)?),
            Stops::WhenAsked => Graphs::Stops(stoppable()?),
            Stops::Either => Graphs::Either {
                waits: make(InPause::Waits)?,
                stops: stoppable()?,
            },
        })
    }
}

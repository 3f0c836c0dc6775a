//! Making graphs of the device of what an application launches as a part of a graph.

use std::sync::Arc;

use hetckpt_devices::device::GraphStep;
use hetckpt_order::order::MAX_STOPPING;
use hetckpt_ring::command::Command;

use crate::graph_parts::{GraphRun, Pace, PartKey, Piece, StoppableStep};
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
    /// If it can stop.
    stoppable: Option<StoppableStep>,
}

/// Steps in a row of the same sort.
#[derive(Default)]
struct Row {
    steps: Vec<Step>,
    /// Of those that can stop.
    num_threads: u64,
}

/// Makes graphs of a part.
struct Maker<'a> {
    session: &'a Session,
    part: PartKey,
    /// So often the part can be on the device at a time, as far as it can stop.
    at_a_time: usize,
    pieces: Vec<Piece>,
    row: Row,
}

/// Divides a part into runs that the device does as one, and other steps. Each step comes with what a stream has to do
/// for it. A run of steps that cannot stop has `most` of them at most. Takes as long as the driver does.
///
/// # Errors
/// [`NotYet`].
pub fn pieces(
    session: &Session,
    part: PartKey,
    most: usize,
    steps: Vec<(Command, What)>,
) -> Result<Vec<Piece>, NotYet> {
    let works = || steps.iter().map(|(_, what)| Work::of(what.clone()));
    if !works().all(|work| work.is_built()) {
        return Err(NotYet);
    }
    let num_stoppable = works().filter(Work::can_stop_in_graphs).count();
    let mut maker = Maker {
        session,
        part,
        at_a_time: MAX_STOPPING.div_ceil(num_stoppable.max(1)),
        pieces: Vec::new(),
        row: Row::default(),
    };
    for (command, what) in steps {
        match step(session, command.clone(), what) {
            Some(step) => maker.add(step, most),
            None => maker.add_alone(command),
        }
    }
    maker.end_row();
    Ok(maker.pieces)
}

/// What the device is to do for a command; `None` if it does it better alone.
fn step(session: &Session, command: Command, what: What) -> Option<Step> {
    let work = Work::of(what);
    let What::Start(spec) = &work.what else {
        let elsewhere = session.moved.read().in_command(&command);
        let transfer = transfer_of(elsewhere.as_ref().unwrap_or(&command))?;
        return Some(Step {
            command,
            on_device: GraphStep::Transfer(transfer),
            stoppable: None,
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
        stoppable: probed.map(|probed| StoppableStep { spec, probed }),
    })
}

impl Maker<'_> {
    /// `most`: of what cannot stop.
    fn add(&mut self, step: Step, most: usize) {
        let (stops, threads) = match &step.stoppable {
            Some(stoppable) => {
                let shape = &stoppable.spec.shape;
                (
                    true,
                    shape.num_blocks().saturating_mul(shape.threads_per_block().max(32)),
                )
            }
            None => (false, 0),
        };
        let num_threads = self.row.num_threads.saturating_add(threads);
        let is_other = self
            .row
            .steps
            .last()
            .is_some_and(|last| last.stoppable.is_some() != stops);
        if is_other || num_threads > MOST_THREADS {
            self.end_row();
        }
        self.row.num_threads = self.row.num_threads.saturating_add(threads);
        self.row.steps.push(step);
        if self.row.steps.len() == if stops { MOST_STOPPABLE } else { most } {
            self.end_row();
        }
    }

    fn add_alone(&mut self, command: Command) {
        self.end_row();
        self.pieces.push(Piece::Step(command));
    }

    fn end_row(&mut self) {
        let Row { steps, .. } = std::mem::take(&mut self.row);
        let (mut commands, mut stoppable, mut on_device) = (Vec::new(), Vec::new(), Vec::new());
        for step in steps {
            commands.push(step.command);
            stoppable.extend(step.stoppable);
            on_device.push(step.on_device);
        }
        if commands.len() >= FEWEST_STEPS {
            match self.session.device.make_graph(&on_device, self.at_a_time) {
                Ok(graph) => {
                    tracing::debug!(part = ?self.part, steps = commands.len(), "a graph is made");
                    let touched = on_device.iter().filter_map(|step| match step {
                        GraphStep::Transfer(transfer) => ranges(transfer),
                        GraphStep::Launch(_) => None,
                    });
                    return self.pieces.push(Piece::Run(Arc::new(GraphRun {
                        part: self.part,
                        ranges: touched.flatten().collect(),
                        steps: commands,
                        stoppable,
                        graph,
                        pace: Pace::default(),
                    })));
                }
                Err(error) => tracing::warn!(%error, "no graph can be made; its steps are launched one by one"),
            }
        }
        self.pieces.extend(commands.into_iter().map(Piece::Step));
    }
}

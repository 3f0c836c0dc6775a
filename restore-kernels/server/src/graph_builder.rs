//! Making graphs of the device of what an application launches as a part of a graph.

use std::sync::Arc;

use hetckpt_devices::device::GraphStep;
use hetckpt_ring::command::Command;

use crate::graph_parts::{GraphRun, Pace, PartKey, Piece};
use crate::launch::graph_step;
use crate::queues::{What, Work};
use crate::session::Session;
use crate::transfers::{ranges, transfer_of};

/// One step is as well launched by itself.
const FEWEST_STEPS: usize = 2;

/// Divides a part into runs of `most` steps at most that the device does as one, and other steps. Each step comes with
/// what a stream has to do for it. Takes as long as the driver does.
#[must_use]
pub fn pieces(session: &Session, part: PartKey, most: usize, steps: Vec<(Command, What)>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut run = Vec::new();
    for (command, what) in steps {
        match step(session, &command, what) {
            Some(step) => {
                run.push((command, step));
                if run.len() == most {
                    end_run(session, part, &mut run, &mut pieces);
                }
            }
            None => {
                end_run(session, part, &mut run, &mut pieces);
                pieces.push(Piece::Step(command));
            }
        }
    }
    end_run(session, part, &mut run, &mut pieces);
    pieces
}

/// What the device is to do for a command, if nothing stops it.
fn step(session: &Session, command: &Command, what: What) -> Option<GraphStep> {
    if let What::Start(_) = what {
        return graph_step(&Work { what, reply: None });
    }
    let elsewhere = session.moved.read().in_command(command);
    transfer_of(elsewhere.as_ref().unwrap_or(command)).map(GraphStep::Transfer)
}

fn end_run(session: &Session, part: PartKey, run: &mut Vec<(Command, GraphStep)>, pieces: &mut Vec<Piece>) {
    let (commands, steps): (Vec<Command>, Vec<GraphStep>) = std::mem::take(run).into_iter().unzip();
    if steps.len() >= FEWEST_STEPS {
        let touched = steps.iter().filter_map(|step| match step {
            GraphStep::Transfer(transfer) => ranges(transfer),
            GraphStep::Launch(_) => None,
        });
        match session.device.make_graph(&steps) {
            Ok(graph) => {
                tracing::debug!(?part, steps = steps.len(), "a graph is made");
                let ranges = touched.flatten().collect();
                let steps = commands;
                return pieces.push(Piece::Run(Arc::new(GraphRun {
                    part,
                    steps,
                    ranges,
                    graph,
                    pace: Pace::default(),
                })));
            }
            Err(error) => tracing::warn!(%error, "no graph can be made; its steps are launched one by one"),
        }
    }
    pieces.extend(commands.into_iter().map(Piece::Step));
}

//! A round of a block: each thread's turn once, then the meeting points.

use super::block::{Block, WARP};
use super::thread::State;
use super::world::World;
use super::{barrier, step, warp};
use crate::error::Error;

/// Everyone's turn once.
pub(super) fn round(world: &mut World<'_>, block: &mut Block) -> Result<(), Error> {
    let mut has_moved = false;
    for thread in 0..block.threads.len() {
        for _ in 0..world.options.quantum.max(1) {
            if block.threads[thread].state != State::Running {
                break;
            }
            step::step(world, block, thread)?;
            has_moved = true;
        }
    }
    for first in (0..block.threads.len()).step_by(WARP) {
        has_moved |= warp::resolve(world, block, first)?;
    }
    // Whoever leaves a warp-level operation may still be on the way to the barrier.
    has_moved |= barrier::resolve(world, block)?;
    if has_moved || block.is_at_rest() {
        Ok(())
    } else {
        Err(stuck(block))
    }
}

fn stuck(block: &Block) -> Error {
    let waiting = block
        .threads
        .iter()
        .find(|t| matches!(t.state, State::AtBarrier | State::AtWarpOp));
    let is_stopped = block.threads.iter().any(|t| matches!(t.state, State::Stopped(_)));
    match waiting {
        Some(thread) if is_stopped => Error::CannotStop {
            block: block.linear,
            at: thread.block,
        },
        _ => Error::Deadlock { block: block.linear },
    }
}

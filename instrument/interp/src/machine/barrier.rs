//! Barriers: who waits, when they go on, when they stop.
//!
//! # Source
//! PTX ISA 9.0, "barrier"; exited threads count as arrived. A thread that has stopped never arrives, so those that wait
//! for it stop too, before the barrier.

use hetckpt_ir::basic_block::{BarrierProbe, BarrierReductionOp, Terminator};
use hetckpt_ir::kernel::Kernel;

use super::block::Block;
use super::thread::{State, Thread};
use super::world::World;
use crate::error::Error;

/// Lets the threads of complete barriers go on. True if any thread's state has changed.
pub(super) fn resolve(world: &mut World<'_>, block: &mut Block) -> Result<bool, Error> {
    let kernel: &Kernel = world.kernel;
    let mut numbers: Vec<u64> = block
        .threads
        .iter()
        .filter_map(|t| waits_at(kernel, t))
        .map(|(n, _)| n)
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut has_moved = false;
    for number in numbers {
        has_moved |= resolve_one(world, block, number);
    }
    Ok(has_moved)
}

/// Number and thread count of the barrier that a thread waits at.
fn waits_at(kernel: &Kernel, thread: &Thread) -> Option<(u64, Option<u64>)> {
    match &kernel.blocks[thread.block.index()].terminator {
        Terminator::Barrier { id, count, .. } if thread.state == State::AtBarrier => {
            Some((thread.operand(*id), count.map(|c| thread.operand(c))))
        }
        _ => None,
    }
}

fn resolve_one(world: &mut World<'_>, block: &mut Block, number: u64) -> bool {
    let kernel: &Kernel = world.kernel;
    let waiting: Vec<usize> = (0..block.threads.len())
        .filter(|&t| waits_at(kernel, &block.threads[t]).is_some_and(|(n, _)| n == number))
        .collect();
    let alive = block.threads.iter().filter(|t| t.state != State::Finished).count();
    let count = waiting.iter().find_map(|&t| waits_at(kernel, &block.threads[t])?.1);
    let needed = count.and_then(|c| usize::try_from(c).ok()).unwrap_or(alive);
    if waiting.len() >= needed {
        complete(world, block, &waiting);
        return true;
    }
    let may_come = block
        .threads
        .iter()
        .any(|t| matches!(t.state, State::Running | State::AtWarpOp));
    let has_stopped = block.threads.iter().any(|t| matches!(t.state, State::Stopped(_)));
    // Others of this block have stopped: the barrier cannot complete any more.
    has_stopped && !may_come && stop_at_arrival(kernel, block, &waiting)
}

fn probe_of(kernel: &Kernel, thread: &Thread) -> Option<BarrierProbe> {
    match &kernel.blocks[thread.block.index()].terminator {
        Terminator::Barrier { probe, .. } => *probe,
        _ => None,
    }
}

/// Stops all, if all can be stopped.
fn stop_at_arrival(kernel: &Kernel, block: &mut Block, waiting: &[usize]) -> bool {
    let probes: Option<Vec<_>> = waiting.iter().map(|&t| probe_of(kernel, &block.threads[t])).collect();
    let Some(probes) = probes else { return false };
    for (&t, probe) in waiting.iter().zip(probes) {
        block.threads[t].state = State::Stopped(probe.arrive);
    }
    true
}

fn complete(world: &mut World<'_>, block: &mut Block, waiting: &[usize]) {
    let kernel: &Kernel = world.kernel;
    let Some(&first) = waiting.first() else { return };
    let probe = probe_of(kernel, &block.threads[first]);
    if probe.is_some_and(|p| world.pause.poll(p.arrive)) && stop_at_arrival(kernel, block, waiting) {
        return;
    }
    let votes: Vec<bool> = waiting
        .iter()
        .filter_map(|&t| vote(kernel, &block.threads[t]))
        .collect();
    let stops = probe.is_some_and(|p| world.pause.poll(p.leave));
    for &t in waiting {
        let thread = &mut block.threads[t];
        let Terminator::Barrier {
            reduction, probe, next, ..
        } = &kernel.blocks[thread.block.index()].terminator
        else {
            continue;
        };
        if let Some(r) = reduction {
            let value = match r.op {
                BarrierReductionOp::And => votes.iter().all(|v| *v).into(),
                BarrierReductionOp::Or => votes.iter().any(|v| *v).into(),
                BarrierReductionOp::Popc => votes.iter().filter(|v| **v).count() as u64,
            };
            thread.set(kernel, r.dst, value);
        }
        thread.jump(*next);
        thread.state = match probe {
            Some(p) if stops => State::Stopped(p.leave),
            _ => State::Running,
        };
    }
}

fn vote(kernel: &Kernel, thread: &Thread) -> Option<bool> {
    match &kernel.blocks[thread.block.index()].terminator {
        Terminator::Barrier { reduction: Some(r), .. } => Some(thread.holds(r.src)),
        _ => None,
    }
}

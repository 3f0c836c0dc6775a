//! A grid: a few blocks at a time until none is left or all have stopped.

use std::collections::VecDeque;

use hetckpt_abi::paused_block::{PausedBlock, PausedGrid};
use hetckpt_ir::kernel::Kernel;

use super::block::Block;
use super::capture::{self, Captured};
use super::pause::PauseFlag;
use super::round;
use super::world::World;
use crate::error::Error;
use crate::launch::{Launch, Run};
use crate::memory::GlobalMemory;

/// A block that has not been taken up.
enum Pending {
    Fresh(u64),
    Resumed(PausedBlock),
}

pub(crate) fn run(launch: Launch<'_>, memory: &mut GlobalMemory) -> Result<Run, Error> {
    let kernel = &launch.program.kernel;
    let mut world = World {
        kernel,
        program: launch.program,
        layout: launch.layout,
        grid: launch.grid,
        block: launch.block,
        params: launch.params,
        dynamic_shared_bytes: launch.dynamic_shared_bytes,
        memory,
        pause: PauseFlag::new(launch.pause, kernel.resume_points.len()),
        options: launch.options,
        steps: 0,
        has_warp_ops: kernel.has_warp_op(),
    };
    let resumed = launch.from.paused.into_iter().map(Pending::Resumed);
    let fresh = launch
        .from
        .not_started
        .into_iter()
        .flat_map(|(first, end)| (first..end).map(Pending::Fresh));
    let left = run_blocks(&mut world, resumed.chain(fresh).collect())?;
    Ok(Run {
        left,
        polls: world.pause.polls,
        visits: world.pause.visits,
    })
}

fn run_blocks(world: &mut World<'_>, mut pending: VecDeque<Pending>) -> Result<PausedGrid, Error> {
    let mut left = PausedGrid::default();
    let mut not_started = Vec::new();
    let mut resident: Vec<Block> = Vec::new();
    loop {
        while resident.len() < world.options.resident_blocks.max(1) && !world.pause.is_set() {
            match pending.pop_front() {
                Some(block) => resident.push(admit(world, block)?),
                None => break,
            }
        }
        if resident.is_empty() {
            break;
        }
        for block in &mut resident {
            round::round(world, block)?;
        }
        for block in resident.extract_if(.., |b| b.is_at_rest()) {
            match capture::capture(world, &block) {
                Captured::Finished => {}
                Captured::NotStarted => not_started.push(block.linear),
                Captured::Paused(paused) => left.paused.push(paused),
            }
        }
    }
    for block in pending {
        match block {
            Pending::Fresh(linear) => not_started.push(linear),
            Pending::Resumed(paused) => left.paused.push(paused),
        }
    }
    left.paused.sort_by_key(|b| b.block);
    left.not_started = ranges(not_started);
    Ok(left)
}

fn admit(world: &World<'_>, block: Pending) -> Result<Block, Error> {
    match block {
        Pending::Resumed(paused) => capture::restore(world, &paused),
        Pending::Fresh(linear) => {
            let mut block = Block::new(linear, world.kernel, world.threads_per_block(), world.shared_bytes());
            let entry = capture::entry(world, Kernel::ENTRY_POINT)?;
            block.threads.iter_mut().for_each(|t| t.jump(entry));
            Ok(block)
        }
    }
}

/// Ascending, disjoint ranges of the indices.
fn ranges(mut blocks: Vec<u64>) -> Vec<(u64, u64)> {
    blocks.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for block in blocks {
        match ranges.last_mut() {
            Some((_, end)) if *end == block => *end += 1,
            _ => ranges.push((block, block + 1)),
        }
    }
    ranges
}

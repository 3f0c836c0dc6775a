//! Blocks at rest to saved state and back.

use hetckpt_abi::paused_block::PausedBlock;
use hetckpt_abi::thread_state::FINISHED;
use hetckpt_ir::entity::{BbId, RegId, ResumePointId};
use hetckpt_ir::kernel::Kernel;

use super::block::Block;
use super::thread::{State, Thread};
use super::world::World;
use crate::error::Error;
use crate::memory::{load_le, store_le};

/// What has become of a block.
pub(super) enum Captured {
    Finished,
    NotStarted,
    Paused(PausedBlock),
}

/// The saved state of a block at rest.
pub(super) fn capture(world: &World<'_>, block: &Block) -> Captured {
    let resume_points: Vec<u32> = block.threads.iter().map(|t| resume_point(t).0).collect();
    if resume_points.iter().all(|p| *p == FINISHED) {
        return Captured::Finished;
    }
    if resume_points.iter().all(|p| *p == Kernel::ENTRY_POINT.0) {
        return Captured::NotStarted;
    }
    let mut registers = vec![0; block.threads.len() * world.layout.bytes_per_thread as usize];
    for (i, thread) in block.threads.iter().enumerate() {
        let State::Stopped(point) = thread.state else { continue };
        for reg in world.layout.live_at(point).iter() {
            if let Some(at) = place(world, block.threads.len(), i, reg) {
                store_le(&mut registers[at], thread.get(reg));
            }
        }
    }
    Captured::Paused(PausedBlock {
        block: block.linear,
        resume_points,
        registers,
        shared: block.shared.clone(),
        local: block.threads.iter().flat_map(|t| t.local.iter().copied()).collect(),
    })
}

fn resume_point(thread: &Thread) -> ResumePointId {
    match thread.state {
        State::Stopped(point) => point,
        _ => ResumePointId(FINISHED),
    }
}

/// Bytes of a register of a thread in the register area.
fn place(world: &World<'_>, num_threads: usize, thread: usize, reg: RegId) -> Option<std::ops::Range<usize>> {
    let width = world.kernel.width(reg).size_bytes() as usize;
    let start = world.layout.column(reg)? as usize * num_threads + thread * width;
    Some(start..start + width)
}

/// Where threads stopped at a resume point go on.
pub(super) fn entry(world: &World<'_>, point: ResumePointId) -> Result<BbId, Error> {
    let found = world.program.entries.iter().find(|(p, _)| *p == point);
    found.map(|(_, block)| *block).ok_or(Error::NoEntry(point))
}

/// The block that a saved state describes.
pub(super) fn restore(world: &World<'_>, paused: &PausedBlock) -> Result<Block, Error> {
    let n = world.threads_per_block();
    let local_bytes = world.kernel.local.size_bytes as usize;
    let fits = paused.resume_points.len() == n
        && paused.registers.len() == n * world.layout.bytes_per_thread as usize
        && paused.shared.len() == world.shared_bytes()
        && paused.local.len() == n * local_bytes;
    if !fits {
        return Err(Error::StateShape { block: paused.block });
    }
    let mut block = Block::new(paused.block, world.kernel, n, world.shared_bytes());
    block.shared.clone_from(&paused.shared);
    for (i, thread) in block.threads.iter_mut().enumerate() {
        thread
            .local
            .copy_from_slice(&paused.local[i * local_bytes..(i + 1) * local_bytes]);
        let point = ResumePointId(paused.resume_points[i]);
        if point.0 == FINISHED {
            thread.state = State::Finished;
            continue;
        }
        thread.jump(entry(world, point)?);
        if point.index() >= world.layout.live.len() {
            return Err(Error::NoEntry(point));
        }
        for reg in world.layout.live_at(point).iter() {
            if let Some(at) = place(world, n, i, reg) {
                thread.registers[reg.index()] = load_le(&paused.registers[at]);
            }
        }
    }
    Ok(block)
}

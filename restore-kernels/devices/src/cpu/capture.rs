//! A stopped block as a snapshot keeps it.

use hetckpt_abi::paused_block::PausedBlock;
use hetckpt_abi::thread_state::{FINISHED, ThreadStateLayout};
use hetckpt_ir::analysis::reg_set::RegSet;
use hetckpt_ir::entity::{RegId, ResumePointId};

use super::context::{BlockMemory, BlockShape};

/// A stopped block is not of the launch's shape (the snapshot's fault, or a bug in us).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block {block}: {got} of {what} instead of {wanted}")]
pub struct OtherShape {
    /// The block.
    pub block: u64,
    /// Which part of its state.
    pub what: &'static str,
    /// Its size.
    pub got: usize,
    /// The launch's.
    pub wanted: usize,
}

/// Copies a block's state; registers that are not live are 0.
pub fn capture(layout: &ThreadStateLayout, block: u64, memory: &BlockMemory) -> PausedBlock {
    let threads = memory.points.len();
    let mut registers = vec![0; memory.registers.bytes().len()];
    for (reg, offset, width) in columns(layout) {
        let start = offset * threads;
        for (thread, &point) in memory.points.iter().enumerate() {
            if point != FINISHED && is_live(layout, point, reg) {
                let range = start + thread * width..start + (thread + 1) * width;
                registers[range.clone()].copy_from_slice(&memory.registers.bytes()[range]);
            }
        }
    }
    PausedBlock {
        block,
        resume_points: memory.points.clone(),
        registers,
        shared: memory.shared.bytes().to_vec(),
        local: memory.local.bytes().to_vec(),
    }
}

/// The inverse: `memory` becomes that of the stopped block.
pub fn reinstate(paused: &PausedBlock, shape: &BlockShape, memory: &mut BlockMemory) -> Result<(), OtherShape> {
    memory.reset(shape);
    let parts = [
        ("resume points", memory.points.len(), paused.resume_points.len()),
        ("registers", memory.registers.bytes().len(), paused.registers.len()),
        ("shared memory", memory.shared.bytes().len(), paused.shared.len()),
        ("local frames", memory.local.bytes().len(), paused.local.len()),
    ];
    for (what, wanted, got) in parts {
        if wanted != got {
            return Err(OtherShape {
                block: paused.block,
                what,
                got,
                wanted,
            });
        }
    }
    memory.points.copy_from_slice(&paused.resume_points);
    memory.registers.bytes_mut().copy_from_slice(&paused.registers);
    memory.shared.bytes_mut().copy_from_slice(&paused.shared);
    memory.local.bytes_mut().copy_from_slice(&paused.local);
    Ok(())
}

fn is_live(layout: &ThreadStateLayout, point: u32, reg: RegId) -> bool {
    (point as usize) < layout.live.len() && layout.live_at(ResumePointId(point)).contains(reg)
}

/// Register, bytes per thread before its column, width: columns stand without gaps.
fn columns(layout: &ThreadStateLayout) -> Vec<(RegId, usize, usize)> {
    let mut all = RegSet::default();
    layout.live.iter().for_each(|live| {
        all.union_with(live);
    });
    let mut starts: Vec<(u32, RegId)> = all.iter().filter_map(|reg| Some((layout.column(reg)?, reg))).collect();
    starts.sort_unstable();
    let ends = starts
        .iter()
        .skip(1)
        .map(|(start, _)| *start)
        .chain([layout.bytes_per_thread]);
    starts
        .iter()
        .zip(ends)
        .map(|(&(start, reg), end)| (reg, start as usize, (end - start) as usize))
        .collect()
}

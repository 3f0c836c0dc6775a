//! Between what devices hand out of stopped blocks and what a snapshot keeps of them.
//!
//! A device gives columns over all threads of a block; a snapshot keeps, per resume point, only the threads that are
//! there and only the registers that are live there. Both follow from the probed kernel alone.

use std::collections::BTreeMap;

use hetckpt_abi::paused_block::{PausedBlock, PausedGrid};
use hetckpt_abi::thread_state::{FINISHED, ThreadStateLayout};
use hetckpt_ir::entity::{RegId, ResumePointId};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Width;
use hetckpt_state::kernel_run::KernelRun;
use hetckpt_state::thread::{ResumePointRegisters, StoppedBlock, ThreadGroup};

/// Why blocks of a snapshot do not fit their kernel: damaged input.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MisfitError {
    /// The registers listed for a resume point are not what is live there.
    #[error("the registers of resume point {0} are not those of the kernel")]
    Registers(u32),
    /// A block outside of the grid, or out of order, or twice.
    #[error("block {0} is out of place")]
    Block(u64),
    /// A group's threads are out of place.
    #[error("threads of block {0} are out of place")]
    Threads(u64),
    /// Bytes are missing or too many.
    #[error("the memory or registers of block {0} have the wrong size")]
    Size(u64),
}

/// Sizes that all blocks of a launch share.
#[derive(Clone, Copy, Debug)]
pub struct BlockShape {
    /// Threads.
    pub num_threads: u32,
    /// Shared memory, static and dynamic.
    pub shared_bytes: u64,
    /// Local frames of all threads.
    pub local_bytes: u64,
}

impl BlockShape {
    /// The shape of a launch of `kernel`; `None` if it is absurd.
    #[must_use]
    pub fn new(kernel: &Kernel, block: [u32; 3], dynamic_shared_bytes: u32) -> Option<Self> {
        let num_threads = block[0].checked_mul(block[1])?.checked_mul(block[2])?;
        let shared_bytes = u64::from(kernel.shared.static_bytes) + u64::from(dynamic_shared_bytes);
        let local_bytes = u64::from(num_threads) * u64::from(kernel.local.size_bytes);
        Some(Self {
            num_threads,
            shared_bytes,
            local_bytes,
        })
    }
}

/// What is saved at each resume point of a kernel, as the state lists it.
#[must_use]
pub fn resume_point_registers(kernel: &Kernel, layout: &ThreadStateLayout) -> Vec<ResumePointRegisters> {
    let width = |r: RegId| match kernel.width(r) {
        Width::Pred => 1,
        Width::W16 => 2,
        Width::W32 => 4,
        Width::W64 => 8,
    };
    (0u32..)
        .take(kernel.resume_points.len())
        .map(|resume_point| {
            let registers = layout.live_at(ResumePointId(resume_point)).iter();
            ResumePointRegisters {
                resume_point,
                registers: registers.map(|r| (r.0, width(r))).collect(),
            }
        })
        .collect()
}

/// A register's place in a block's register area: first byte and bytes per thread.
fn column(layout: &ThreadStateLayout, reg: u32, width: u8, num_threads: u64) -> Option<(usize, usize)> {
    let start = u64::from(layout.column(RegId(reg))?) * num_threads;
    Some((usize::try_from(start).ok()?, usize::from(width)))
}

/// A stopped block as the state keeps it.
#[must_use]
pub fn to_state(block: &PausedBlock, layout: &ThreadStateLayout, points: &[ResumePointRegisters]) -> StoppedBlock {
    let num_threads = block.resume_points.len() as u64;
    let mut threads: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (thread, &point) in (0u32..).zip(&block.resume_points) {
        if point != FINISHED {
            threads.entry(point).or_default().push(thread);
        }
    }
    let group = |(resume_point, threads): (u32, Vec<u32>)| {
        let registers = points.get(resume_point as usize).map_or(&[][..], |p| &p.registers);
        let mut bytes = Vec::new();
        for &(reg, width) in registers {
            let Some((start, width)) = column(layout, reg, width, num_threads) else {
                continue;
            };
            for &thread in &threads {
                let at = start + thread as usize * width;
                match block.registers.get(at..at + width) {
                    Some(value) => bytes.extend_from_slice(value),
                    None => bytes.resize(bytes.len() + width, 0),
                }
            }
        }
        ThreadGroup {
            resume_point,
            threads: ranges(&threads),
            registers: bytes,
        }
    };
    StoppedBlock {
        block: block.block,
        groups: threads.into_iter().map(group).collect(),
        shared: block.shared.clone(),
        local: block.local.clone(),
    }
}

fn ranges(threads: &[u32]) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &thread in threads {
        match ranges.last_mut() {
            Some((_, end)) if *end == thread => *end += 1,
            _ => ranges.push((thread, thread + 1)),
        }
    }
    ranges
}

/// Memory that the blocks of a stopped launch take as devices take them: columns have room for all threads of a block,
/// also for those that have finished, of which the state has nothing.
#[must_use]
pub fn memory_bytes(run: &KernelRun, kernel: &Kernel, layout: &ThreadStateLayout) -> u64 {
    let Some(shape) = BlockShape::new(kernel, run.shape.block, run.shape.dynamic_shared_bytes) else {
        return 0;
    };
    let a_thread = size_of::<u32>() as u64 + u64::from(layout.bytes_per_thread);
    let a_block = size_of::<PausedBlock>() as u64
        + u64::from(shape.num_threads) * a_thread
        + shape.shared_bytes
        + shape.local_bytes;
    a_block.saturating_mul(run.stopped.len() as u64)
}

/// A stopped block as devices take it.
///
/// # Errors
/// [`MisfitError`].
pub fn from_state(
    block: StoppedBlock,
    layout: &ThreadStateLayout,
    points: &[ResumePointRegisters],
    shape: BlockShape,
) -> Result<PausedBlock, MisfitError> {
    let misplaced = MisfitError::Threads(block.block);
    let wrong_size = MisfitError::Size(block.block);
    if block.shared.len() as u64 != shape.shared_bytes || block.local.len() as u64 != shape.local_bytes {
        return Err(wrong_size);
    }
    let num_threads = shape.num_threads as usize;
    let mut resume_points = vec![FINISHED; num_threads];
    let mut registers = vec![0; num_threads * layout.bytes_per_thread as usize];
    for group in &block.groups {
        let Some(point) = points.get(group.resume_point as usize) else {
            return Err(misplaced);
        };
        let mut threads = Vec::new();
        for &(first, end) in &group.threads {
            if first >= end || end > shape.num_threads || threads.last().is_some_and(|&last| last >= first) {
                return Err(misplaced);
            }
            threads.extend(first..end);
        }
        for &thread in &threads {
            let slot = &mut resume_points[thread as usize];
            if *slot != FINISHED {
                return Err(misplaced);
            }
            *slot = group.resume_point;
        }
        if point.bytes_per_thread() * threads.len() as u64 != group.registers.len() as u64 {
            return Err(wrong_size);
        }
        let mut rest = group.registers.as_slice();
        for &(reg, width) in &point.registers {
            let Some((start, width)) = column(layout, reg, width, shape.num_threads.into()) else {
                return Err(wrong_size);
            };
            let (values, after) = rest.split_at(width * threads.len());
            rest = after;
            for (&thread, value) in threads.iter().zip(values.chunks_exact(width)) {
                let at = start + thread as usize * width;
                registers
                    .get_mut(at..at + width)
                    .ok_or(MisfitError::Size(block.block))?
                    .copy_from_slice(value);
            }
        }
    }
    Ok(PausedBlock {
        block: block.block,
        resume_points,
        registers,
        shared: block.shared,
        local: block.local,
    })
}

/// What is left of a launch, as devices take it; its blocks are taken out of `run`, so that they are there only once.
///
/// # Errors
/// [`MisfitError`].
pub fn grid_from_state(
    run: &mut KernelRun,
    kernel: &Kernel,
    layout: &ThreadStateLayout,
    points: &[ResumePointRegisters],
) -> Result<PausedGrid, MisfitError> {
    let computed = resume_point_registers(kernel, layout);
    let count = computed.len().max(points.len());
    let mut numbers = (0u32..).zip(0..count);
    if let Some((point, _)) = numbers.find(|&(_, i)| computed.get(i) != points.get(i)) {
        return Err(MisfitError::Registers(point));
    }
    let shape = BlockShape::new(kernel, run.shape.block, run.shape.dynamic_shared_bytes).ok_or(MisfitError::Size(0))?;
    let num_blocks = run.shape.num_blocks();
    let mut next = 0;
    let stopped = std::mem::take(&mut run.stopped);
    let mut paused = Vec::with_capacity(stopped.len());
    for block in stopped {
        if block.block < next || block.block >= num_blocks {
            return Err(MisfitError::Block(block.block));
        }
        next = block.block + 1;
        paused.push(from_state(block, layout, points, shape)?);
    }
    let mut next = 0;
    for &(first, end) in &run.not_started {
        let holds_paused = || {
            let at = paused.partition_point(|b: &PausedBlock| b.block < first);
            paused.get(at).is_some_and(|b| b.block < end)
        };
        if first < next || first >= end || end > num_blocks || holds_paused() {
            return Err(MisfitError::Block(first));
        }
        next = end;
    }
    Ok(PausedGrid {
        paused,
        not_started: run.not_started.clone(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use hetckpt_abi::launch_shape::LaunchShape;

    /// Three registers of different widths, two of them live at the loop's resume point.
    const KERNEL: &str = include_str!("../tests/data/two_points.ir");

    fn kernel() -> (Kernel, ThreadStateLayout, Vec<ResumePointRegisters>) {
        let kernel = hetckpt_ir::text::parse::kernel(KERNEL).unwrap();
        let layout = ThreadStateLayout::new(&kernel);
        let points = resume_point_registers(&kernel, &layout);
        (kernel, layout, points)
    }

    fn block(layout: &ThreadStateLayout, points: &[ResumePointRegisters]) -> PausedBlock {
        let resume_points = vec![1, 1, FINISHED, 0, 1, FINISHED];
        let mut registers = vec![0; 6 * layout.bytes_per_thread as usize];
        for &(reg, width) in &points[1].registers {
            let (start, width) = column(layout, reg, width, 6).unwrap();
            for thread in [0, 1, 4] {
                for byte in 0..width {
                    registers[start + thread * width + byte] =
                        u8::try_from(1 + reg as usize * 40 + thread * 8 + byte).unwrap();
                }
            }
        }
        PausedBlock {
            block: 2,
            resume_points,
            registers,
            shared: vec![],
            local: vec![],
        }
    }

    #[test]
    fn state_of_a_block_survives_the_round_trip() {
        let (kernel, layout, points) = kernel();
        assert!(points[1].registers.len() >= 2, "{points:?}");
        let block = block(&layout, &points);
        let state = to_state(&block, &layout, &points);
        assert_eq!(state.groups.len(), 2);
        assert_eq!(state.groups[1].threads, [(0, 2), (4, 5)]);
        let shape = BlockShape::new(&kernel, [6, 1, 1], 0).unwrap();
        assert_eq!(from_state(state, &layout, &points, shape), Ok(block));
    }

    #[test]
    fn memory_of_blocks_is_known_before_they_are_made() {
        let (kernel, layout, points) = kernel();
        let state = to_state(&block(&layout, &points), &layout, &points);
        let mut run = KernelRun {
            probed_kernel: 0,
            shape: LaunchShape::new([5, 1, 1], [6, 1, 1]),
            params: vec![],
            stopped: vec![state],
            not_started: vec![(3, 5)],
            in_step: false,
        };
        let expected = memory_bytes(&run, &kernel, &layout);
        let grid = grid_from_state(&mut run, &kernel, &layout, &points).unwrap();
        let block = &grid.paused[0];
        let taken = size_of::<PausedBlock>() + 4 * block.resume_points.len() + block.registers.len();
        assert_eq!(expected, taken as u64);
        assert!(run.stopped.is_empty(), "there only once");
    }

    #[test]
    fn misfits_are_refused() {
        let (kernel, layout, points) = kernel();
        let state = to_state(&block(&layout, &points), &layout, &points);
        let shape = BlockShape::new(&kernel, [6, 1, 1], 0).unwrap();
        let refused = |change: fn(&mut StoppedBlock)| {
            let mut changed = state.clone();
            change(&mut changed);
            from_state(changed, &layout, &points, shape).unwrap_err()
        };
        assert_eq!(refused(|b| b.groups[1].threads[1].1 = 7), MisfitError::Threads(2));
        assert_eq!(refused(|b| b.groups[1].threads[1] = (1, 2)), MisfitError::Threads(2));
        assert_eq!(refused(|b| b.groups[0].threads = vec![(0, 1)]), MisfitError::Threads(2));
        assert_eq!(refused(|b| b.groups[1].resume_point = 99), MisfitError::Threads(2));
        assert_eq!(refused(|b| b.groups[1].registers.truncate(3)), MisfitError::Size(2));
        assert_eq!(refused(|b| b.shared.push(0)), MisfitError::Size(2));
    }
}

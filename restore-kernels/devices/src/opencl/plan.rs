//! A launch, looked at and found possible.

use std::sync::Arc;

use hetckpt_abi::opencl_program::{Argument, RecordLayout, Stops};
use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_abi::thread_state::FINISHED;

use super::Limits;
use super::arguments::local_bytes;
use super::module::OpenClKernel;
use crate::control::BlockShape;
use crate::device::{Blocks, Launch};

/// Blocks that a multiprocessor of a GPU can have at once, generously.
const BLOCKS_PER_MULTIPROCESSOR: u64 = 32;
/// Threads that a multiprocessor of a GPU can have at once, generously.
const THREADS_PER_MULTIPROCESSOR: u64 = 4096;
/// Blocks that a core can have begun: one, and as many again for drivers that count otherwise.
const BLOCKS_PER_CORE: u64 = 2;

/// Why a launch is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PlanError {
    /// Blocks that the device does not have (the program's fault).
    #[error("blocks of {block:?} threads; 1 to {max} are possible")]
    Threads { block: [u32; 3], max: u32 },
    /// More blocks than can be counted (the program's fault).
    #[error("a grid of {0:?} blocks, which is more than can be counted")]
    Grid([u32; 3]),
    /// More shared memory than there is (the program's fault).
    #[error("{bytes} bytes of shared memory a block; {max} are possible")]
    SharedMemory { bytes: u64, max: u32 },
    /// Too few parameters (a bug in the caller).
    #[error("{got} bytes of parameters instead of {wanted}")]
    Params { got: usize, wanted: u32 },
    /// A continuation of more blocks than can be counted (a bug in the caller).
    #[error("{0} blocks to go on with, which is more than can be launched")]
    TooManyBlocks(u64),
    /// More blocks than run at once (the program's fault).
    #[error("{blocks} blocks that wait for one another; {max} are possible")]
    Cooperative { blocks: u64, max: u64 },
    /// A continuation with a program that starts all of the grid (a bug in the caller).
    #[error("the program was not generated for a list of blocks")]
    NotForLists,
    /// Blocks that the grid has not got, or twice (the snapshot's fault).
    #[error("blocks {first} to {past} of {all} cannot be started")]
    Range { first: u64, past: u64, all: u64 },
    /// The state of another kernel's block (the snapshot's fault).
    #[error("the state of block {block} is not of this launch's shape")]
    Shape { block: u64 },
    /// A resume point for which there is no code (the snapshot's fault, or a bug in the caller).
    #[error("block {block} stopped at {point}, where this program cannot begin")]
    Point { block: u64, point: u32 },
}

/// A launch, looked at and found possible.
pub(super) struct Plan {
    pub shape: BlockShape,
    /// Blocks of the program's grid.
    pub all_blocks: u64,
    /// What a continuation goes on with; `None` for an ordinary launch.
    pub given: Option<Arc<PausedGrid>>,
    /// Groups to launch; fits 32 bits.
    pub num_groups: u64,
    pub global: [usize; 3],
    pub local: [usize; 3],
}

impl Plan {
    /// Looks at a launch.
    pub fn new(kernel: &OpenClKernel, launch: &Launch, limits: &Limits) -> Result<Self, PlanError> {
        let request = &kernel.request;
        let volume = |d: [u32; 3]| d.iter().try_fold(1u64, |product, &n| product.checked_mul(u64::from(n)));
        let threads = volume(launch.shape.block)
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or(0);
        let max_threads = kernel.attributes.max_threads_per_block;
        if threads == 0 || threads > max_threads {
            return Err(PlanError::Threads {
                block: launch.shape.block,
                max: max_threads,
            });
        }
        let all_blocks = volume(launch.shape.grid).filter(|&n| u32::try_from(n).is_ok());
        let all_blocks = all_blocks.ok_or(PlanError::Grid(launch.shape.grid))?;
        let shape = BlockShape {
            threads,
            bytes_per_thread: request.layout.bytes_per_thread,
            shared_bytes: request
                .static_shared_bytes
                .saturating_add(launch.shape.dynamic_shared_bytes),
            local_bytes: request.local_bytes,
        };
        let shared = local_bytes(&kernel.program, &shape).saturating_add(kernel.own_local_bytes);
        if shared > u64::from(limits.max_shared_bytes) {
            let max = limits.max_shared_bytes;
            return Err(PlanError::SharedMemory { bytes: shared, max });
        }
        if launch.params.len() < request.param_bytes as usize {
            let (got, wanted) = (launch.params.len(), request.param_bytes);
            return Err(PlanError::Params { got, wanted });
        }
        let given = given_blocks(kernel, launch, &shape, all_blocks)?;
        let num_groups = given
            .as_ref()
            .map_or(all_blocks, |g| g.paused.len() as u64 + g.num_not_started());
        if u32::try_from(num_groups).is_err() {
            return Err(PlanError::TooManyBlocks(num_groups));
        }
        if launch.shape.cooperative && num_groups > limits.max_cooperative_blocks {
            let max = limits.max_cooperative_blocks;
            return Err(PlanError::Cooperative {
                blocks: num_groups,
                max,
            });
        }
        let local = launch.shape.block.map(|n| n as usize);
        let groups = match given {
            Some(_) => [num_groups as usize, 1, 1],
            None => launch.shape.grid.map(|n| n as usize),
        };
        Ok(Self {
            shape,
            all_blocks,
            given,
            num_groups,
            global: std::array::from_fn(|i| groups[i] * local[i]),
            local,
        })
    }

    /// All of the launch, as if it had stopped before it began.
    pub fn untouched(&self) -> PausedGrid {
        let all = || PausedGrid {
            paused: vec![],
            not_started: vec![(0, self.all_blocks)],
        };
        self.given.as_deref().map_or_else(all, PausedGrid::clone)
    }

    /// Places for what stops that the launch can use, and the bytes of each. Those that find none go on until there is.
    pub fn places(&self, kernel: &OpenClKernel, limits: &Limits) -> (u64, u64) {
        let program = &kernel.program;
        if !program.arguments.contains(&Argument::Stopped) {
            return (0, 1);
        }
        let (shape, cores) = (&self.shape, u64::from(limits.num_multiprocessors));
        let threads = u64::from(shape.threads);
        let wanted = match (program.stops, limits.is_cpu) {
            (Stops::Blocks, true) => cores * BLOCKS_PER_CORE,
            (Stops::Blocks, false) => cores * BLOCKS_PER_MULTIPROCESSOR,
            (Stops::Threads, true) => cores * BLOCKS_PER_CORE * threads,
            (Stops::Threads, false) => cores * THREADS_PER_MULTIPROCESSOR,
        };
        match program.stops {
            Stops::Blocks => (wanted.min(self.num_groups), shape.slot().stride),
            Stops::Threads => {
                let layout = RecordLayout::new(shape.bytes_per_thread, shape.local_bytes);
                (wanted.min(self.num_groups * threads), layout.stride)
            }
        }
    }
}

/// What the launch goes on with; `None` if it runs the whole grid from the start.
fn given_blocks(
    kernel: &OpenClKernel,
    launch: &Launch,
    shape: &BlockShape,
    all_blocks: u64,
) -> Result<Option<Arc<PausedGrid>>, PlanError> {
    let rest = match &launch.blocks {
        Blocks::All => return Ok(None),
        Blocks::Rest(rest) if rest.paused.is_empty() && rest.not_started == [(0, all_blocks)] => return Ok(None),
        Blocks::Rest(rest) => rest,
    };
    if !kernel.program.takes_resumed() {
        return Err(PlanError::NotForLists);
    }
    let mut end = 0;
    for &(first, past) in &rest.not_started {
        if first < end || past < first || past > all_blocks {
            return Err(PlanError::Range {
                first,
                past,
                all: all_blocks,
            });
        }
        end = past;
    }
    for block in &rest.paused {
        let index = block.block;
        if index >= all_blocks || !shape.fits(block) {
            return Err(PlanError::Shape { block: index });
        }
        let entries = &kernel.request.entries;
        let known = |point: &&u32| **point == FINISHED || entries.contains(point);
        if let Some(point) = block.resume_points.iter().find(|point| !known(point)) {
            return Err(PlanError::Point {
                block: index,
                point: *point,
            });
        }
    }
    Ok(Some(rest.clone()))
}

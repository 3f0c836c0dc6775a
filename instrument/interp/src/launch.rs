//! A launch: what is run, from where, and when it is paused.

use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_ir::entity::ResumePointId;
use hetckpt_ir::types::Dim3;

use crate::error::Error;
use crate::machine;
use crate::memory::GlobalMemory;

/// When the pause flag of a launch is set; from then on every probe stops whoever comes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Never.
    Never,
    /// At the poll with this number, counted from 0 over all threads.
    AtPoll(u64),
    /// When someone comes to a resume point that often (0: the first time).
    AtResumePoint {
        /// The resume point.
        point: ResumePointId,
        /// How often before.
        occurrence: u64,
    },
}

/// How a launch is interpreted. The defaults interleave blocks and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Blocks that run at the same time.
    pub resident_blocks: usize,
    /// Instructions a thread runs before the next thread's turn.
    pub quantum: u32,
    /// Instructions in all before the run is given up.
    pub max_steps: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            resident_blocks: 2,
            quantum: 7,
            max_steps: 50_000_000,
        }
    }
}

/// A launch of a program, or what is left of one.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// What to run. Blocks not started need an entry for `rp0`.
    pub program: &'a Program,
    /// Where saved registers lie: the layout of the probed kernel, for its continuations too.
    pub layout: &'a ThreadStateLayout,
    /// The grid.
    pub grid: Dim3,
    /// A block.
    pub block: Dim3,
    /// The parameter buffer.
    pub params: &'a [u8],
    /// Dynamic shared memory.
    pub dynamic_shared_bytes: u32,
    /// The blocks to run: all of them ([`Launch::all_blocks`]) or what a pause left.
    pub from: PausedGrid,
    /// When to pause.
    pub pause: Pause,
    /// How to run.
    pub options: Options,
}

impl<'a> Launch<'a> {
    /// An ordinary launch, never paused. Dimensions are set by the caller's `grid` and `block`.
    #[must_use]
    pub fn new(program: &'a Program, layout: &'a ThreadStateLayout, grid: Dim3, block: Dim3, params: &'a [u8]) -> Self {
        Self {
            program,
            layout,
            grid,
            block,
            params,
            dynamic_shared_bytes: 0,
            from: Self::all_blocks(grid),
            pause: Pause::Never,
            options: Options::default(),
        }
    }

    /// No block of `grid` has started.
    #[must_use]
    pub fn all_blocks(grid: Dim3) -> PausedGrid {
        let blocks = u64::from(grid.x) * u64::from(grid.y) * u64::from(grid.z);
        PausedGrid {
            paused: vec![],
            not_started: if blocks == 0 { vec![] } else { vec![(0, blocks)] },
        }
    }
}

/// What came of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// What is left, if it was paused.
    pub left: PausedGrid,
    /// Polls in all.
    pub polls: u64,
    /// How often someone came to each resume point, indexed by [`ResumePointId`].
    pub visits: Vec<u64>,
}

/// Runs a launch until it has finished or stopped.
///
/// # Errors
/// The kernel does what no device would take, or what this interpreter does not know.
pub fn run(launch: Launch<'_>, memory: &mut GlobalMemory) -> Result<Run, Error> {
    machine::grid::run(launch, memory)
}

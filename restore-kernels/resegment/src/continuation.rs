//! The continuation of a kernel: where threads that stopped go on.
//!
//! Blocks are only ever added. So resume points, their live registers and with them the layout of thread state
//! ([`hetckpt_abi::thread_state::ThreadStateLayout`]) are the probed kernel's own, and a continuation can be stopped,
//! captured and continued like the kernel it came from.

use hetckpt_abi::program::Program;
use hetckpt_ir::entity::ResumePointId;
use hetckpt_ir::kernel::Kernel;
use thiserror::Error;

use crate::peel::Peeler;

/// How control enters loops in their middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peel {
    /// It jumps into them: smallest code, and lanes that stopped apart meet again in the same instructions. Loops with
    /// two entries are irreducible.
    None,
    /// The rest of the iteration is copied in front of each loop, so that loops are entered through their headers and
    /// control flow stays reducible.
    Loops,
}

/// Why there is no continuation. All variants mean that the resume points are not this kernel's: a damaged snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The kernel has no such resume point.
    #[error("the kernel has no resume point {0}")]
    UnknownResumePoint(ResumePointId),
    /// A resume point is given twice.
    #[error("resume point {0} is given twice")]
    DuplicateResumePoint(ResumePointId),
    /// A resume point stands at a basic block that the kernel lacks.
    #[error("resume point {0} stands at a basic block that the kernel lacks")]
    NoBlock(ResumePointId),
}

/// The continuation of `kernel` for threads that stopped at `points`. Threads that have not started need `rp0` among
/// them.
///
/// # Errors
/// `points` names a resume point twice, or one that the kernel lacks.
pub fn continuation(kernel: &Kernel, points: &[ResumePointId], peel: Peel) -> Result<Program, Error> {
    let mut sorted = points.to_vec();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::DuplicateResumePoint(pair[0]));
    }
    for &point in &sorted {
        let block = kernel
            .resume_points
            .get(point.index())
            .ok_or(Error::UnknownResumePoint(point))?
            .block;
        if block.index() >= kernel.blocks.len() {
            return Err(Error::NoBlock(point));
        }
    }
    let block_of = |point: ResumePointId| kernel.resume_points[point.index()].block;
    Ok(match peel {
        Peel::None => {
            let entries = sorted.iter().map(|&point| (point, block_of(point))).collect();
            Program {
                kernel: kernel.clone(),
                entries,
            }
        }
        Peel::Loops => {
            let mut peeler = Peeler::new(kernel);
            let entries = sorted
                .iter()
                .map(|&point| (point, peeler.enter_at(block_of(point))))
                .collect();
            Program {
                kernel: peeler.finish(),
                entries,
            }
        }
    })
}

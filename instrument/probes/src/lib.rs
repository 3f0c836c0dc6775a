//! Makes a kernel stoppable: inserts the probes at which its threads can pause, and the resume points they go on from.
//!
//! Input is a kernel as the front end lowered it, output the *probed kernel*: target-independent, what archives store
//! and what every generator starts from. Nothing here knows a target; what a probe costs on one is the generators'
//! concern.
//!
//! [`pipeline`] lists the passes; each is one file. [`check`] judges their result and shares no code with them.

pub mod pipeline;
pub mod error;
pub mod options;
pub mod report;
mod entry_probe;
mod split_barriers;
mod split_warp_ops;
mod warp_masks;
mod nest;
mod loop_plan;
mod strip_mine_loops;
mod unroll_with_exits;
mod fuel;
mod count_down;
mod count_down_irreducible;
mod warp_probe_polls;
mod edges;
pub mod check;

use hetckpt_ir::kernel::Kernel;

use crate::error::Error;
use crate::options::Options;

/// The probed kernel of `kernel`.
///
/// # Errors
/// See [`pipeline::run`].
pub fn probe(kernel: &Kernel, options: &Options) -> Result<Kernel, Error> {
    pipeline::run(kernel, options).map(|(probed, _)| probed)
}

/// Looks whether [`probe`] takes `kernel`, without the work of it.
///
/// # Errors
/// See [`pipeline::check_input`].
pub fn check_input(kernel: &Kernel) -> Result<(), Error> {
    pipeline::check_input(kernel)
}

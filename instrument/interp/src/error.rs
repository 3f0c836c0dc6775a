//! Why a run cannot go on.

use hetckpt_ir::entity::{BbId, ResumePointId};
use hetckpt_ir::types::Space;
use thiserror::Error;

/// What went wrong; all but [`Error::Unsupported`] are faults of the kernel or of the test that runs it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// An access outside of mapped memory or of a segment.
    #[error("{bytes} bytes at {address:#x} lie outside the {space:?} space")]
    OutOfBounds {
        /// The space.
        space: Space,
        /// The address.
        address: u64,
        /// Bytes accessed.
        bytes: usize,
    },
    /// An address that is not a multiple of the access's size.
    #[error("{bytes} bytes at {address:#x} are misaligned")]
    Misaligned {
        /// The address.
        address: u64,
        /// Bytes accessed.
        bytes: usize,
    },
    /// The kernel trapped.
    #[error("a thread of block {block} trapped")]
    Trapped {
        /// Linear index of the block.
        block: u64,
    },
    /// Threads wait for one another forever.
    #[error("the threads of block {block} wait for one another")]
    Deadlock {
        /// Linear index of the block.
        block: u64,
    },
    /// Threads have stopped at a probe while others wait for them where nothing is probed.
    #[error("threads of block {block} cannot be stopped where they wait, at {at}")]
    CannotStop {
        /// Linear index of the block.
        block: u64,
        /// Where they wait.
        at: BbId,
    },
    /// Lanes have stopped in a loop while others of their warp wait at an operation that does not ask whether any has:
    /// on devices where lanes run on their own these would go on without them.
    #[error("lanes stopped before the warp-level operation at {at}, which does not poll")]
    MissingPoll {
        /// The operation's block.
        at: BbId,
    },
    /// The run took more steps than allowed.
    #[error("more than {0} steps")]
    TooLong(u64),
    /// A lane that takes part in a warp-level operation is not in its member mask.
    #[error("lane {lane} executes a warp-level operation without being in its mask {mask:#x}")]
    NotInMask {
        /// The lane.
        lane: usize,
        /// The mask.
        mask: u64,
    },
    /// The program has no entry for a resume point that threads stopped at.
    #[error("the program cannot be started at {0}")]
    NoEntry(ResumePointId),
    /// A paused block that does not fit the launch.
    #[error("the state of block {block} does not fit the launch")]
    StateShape {
        /// Linear index of the block.
        block: u64,
    },
    /// An instruction that this interpreter does not know, or a type it does not know for it.
    #[error("not interpreted: {0}")]
    Unsupported(String),
}

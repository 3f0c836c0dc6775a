//! Why a kernel cannot be probed.

use thiserror::Error;

/// Why a kernel cannot be probed. All but [`Error::Invalid`] are the fault of the input.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The kernel has resume points.
    #[error("kernel `{kernel}` has been probed already")]
    AlreadyProbed {
        /// Name of the kernel.
        kernel: String,
    },
    /// The kernel has no basic block.
    #[error("kernel `{kernel}` has no code")]
    NoCode {
        /// Name of the kernel.
        kernel: String,
    },
    /// A barrier other than number 0.
    #[error("kernel `{kernel}`, line {line}: only barrier 0 can be probed, not a barrier of another number")]
    NamedBarrier {
        /// Name of the kernel.
        kernel: String,
        /// Line of the PTX text.
        line: u32,
    },
    /// A barrier for part of the block.
    #[error("kernel `{kernel}`, line {line}: a barrier with a thread count cannot be probed")]
    PartialBarrier {
        /// Name of the kernel.
        kernel: String,
        /// Line of the PTX text.
        line: u32,
    },
    /// What a pass made breaks hetIR's rules: a bug in this crate.
    #[error("kernel `{kernel}`: {pass} made invalid code: {reason}")]
    Invalid {
        /// Name of the kernel.
        kernel: String,
        /// The pass.
        pass: &'static str,
        /// What the validator found.
        reason: String,
    },
}

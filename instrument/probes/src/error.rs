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

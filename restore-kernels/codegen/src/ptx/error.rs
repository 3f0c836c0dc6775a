//! Why a kernel cannot be written as PTX.

use hetckpt_ir::entity::Span;

/// Failure of [`super::generate`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A barrier of part of the block: pausing at it is not supported (the program's limit).
    #[error("kernel `{kernel}`, line {}: only barriers of the whole block (number 0) can be paused at", span.line)]
    PartialBarrier {
        /// Kernel.
        kernel: String,
        /// Where.
        span: Span,
    },
    /// A variable without an address (a bug in the caller: globals must be bound first).
    #[error("kernel `{kernel}`: variable `{name}` has no address yet")]
    UnboundGlobal {
        /// Kernel.
        kernel: String,
        /// Variable.
        name: String,
    },
    /// An instruction whose operands do not fit it (a bug in what made the kernel).
    #[error("kernel `{kernel}`, line {}: malformed {what}", span.line)]
    Malformed {
        /// Kernel.
        kernel: String,
        /// Where.
        span: Span,
        /// Which instruction.
        what: &'static str,
    },
    /// A start at resume points, or over a list of blocks, was asked of a kernel that has none (a bug in the caller).
    #[error("kernel `{kernel}` has no probes, so it can only be started as a whole")]
    NotProbed {
        /// Kernel.
        kernel: String,
    },
    /// A saved register without a column (a bug in the caller: the layout is not this kernel's).
    #[error("kernel `{kernel}`: the layout has no column for {register}")]
    WrongLayout {
        /// Kernel.
        kernel: String,
        /// Register.
        register: hetckpt_ir::entity::RegId,
    },
}

//! Why a kernel cannot be written as OpenCL C.

use hetckpt_ir::entity::Span;

/// Failure of [`super::generate`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A kernel whose threads wait for one another, without probes (a bug in the caller: they say where threads wait).
    #[error("kernel `{kernel}` has no probes, and its threads wait for one another")]
    NotProbed {
        /// Kernel.
        kernel: String,
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
    /// OpenCL C has nothing that does this (the program's limit on OpenCL devices).
    #[error("kernel `{kernel}`, line {}: OpenCL C has no form of {what}", span.line)]
    NoForm {
        /// Kernel.
        kernel: String,
        /// Where.
        span: Span,
        /// Which instruction.
        what: String,
    },
}

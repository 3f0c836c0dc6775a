//! Why a kernel cannot be written as OpenCL C.

use hetckpt_ir::entity::Span;

/// Failure of [`super::generate`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The kernel has probes, which this generator does not write.
    #[error("kernel `{kernel}` has probes; as OpenCL C it can be written without them only")]
    Probed {
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
    /// A barrier of part of the block.
    #[error("kernel `{kernel}`, line {}: OpenCL C has barriers of the whole block only", span.line)]
    PartialBarrier {
        /// Kernel.
        kernel: String,
        /// Where.
        span: Span,
    },
    /// A barrier or warp-level operation that part of the block may come to while the rest goes another way.
    #[error("kernel `{kernel}`, line {}: {what} that not all threads of the block may come to together", span.line)]
    DivergentMeeting {
        /// Kernel.
        kernel: String,
        /// Where.
        span: Span,
        /// Which instruction.
        what: &'static str,
    },
    /// A barrier or warp-level operation that some threads may have ended before. OpenCL C waits for them for ever.
    #[error(
        "kernel `{kernel}`, line {}: {what} that threads may end before, at the branch in line {}",
        span.line,
        branch.line
    )]
    EndedBeforeMeeting {
        /// Kernel.
        kernel: String,
        /// Where.
        span: Span,
        /// Which instruction.
        what: &'static str,
        /// The branch by which they end.
        branch: Span,
    },
    /// A loop with more than one entry in a kernel that has barriers or warp-level operations.
    #[error("kernel `{kernel}`: a loop is entered at more than one place, and threads wait for one another")]
    Irreducible {
        /// Kernel.
        kernel: String,
    },
}

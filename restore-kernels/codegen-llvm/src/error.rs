//! What goes wrong between hetIR and runnable code.

use std::sync::Arc;

use hetckpt_ir::entity::{BbId, ResumePointId, Span};

/// Failure of code generation.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CodegenError {
    /// The caller's objects are not what `compile` gave.
    #[error("the objects are damaged")]
    Joined,
    /// The caller's hetIR text does not parse.
    #[error("hetIR text: {0}")]
    Text(String),
    /// The caller names no tier ([`hetckpt_abi::cpu_codegen::Tier`]).
    #[error("{0} is no tier")]
    Tier(u32),
    /// An instruction that only its own target can run.
    #[error("line {}: `{text}` can run only on the device kind it was written for", span.line)]
    Opaque {
        /// The instruction.
        text: String,
        /// Where.
        span: Span,
    },
    /// An instruction with types or modifiers that this generator has no code for.
    #[error("line {}: no CPU code for {what}", span.line)]
    Unsupported {
        /// The instruction.
        what: String,
        /// Where.
        span: Span,
    },
    /// A barrier or warp-level operation without resume points: the probe pass has not run (a bug in us).
    #[error("{block} waits for other threads but has no resume points")]
    NotProbed {
        /// Basic block.
        block: BbId,
    },
    /// An id that the kernel does not have (a bug in us, or a damaged archive).
    #[error("{what} does not exist in the kernel")]
    NoSuchEntity {
        /// As the text form prints it.
        what: String,
    },
    /// A register that must be saved at a resume point but has no column (a bug in us).
    #[error("{what} is needed at {point} but not saved there")]
    NotSaved {
        /// The register.
        what: String,
        /// The resume point.
        point: ResumePointId,
    },
    /// The tables that go with the object cannot be written (a bug in us).
    #[error(transparent)]
    Tables(Arc<hetckpt_abi::cpu_tables::EncodeError>),
    /// LLVM refused something.
    #[error("LLVM: {step}: {message}")]
    Llvm {
        /// What was being done.
        step: &'static str,
        /// LLVM's words.
        message: String,
    },
    /// The object lacks a function that was asked for (a damaged cache, or a bug in us).
    #[error("the object has no function `{0}`")]
    NoSuchSymbol(String),
}

//! What can be wrong with a PTX text as a whole, and why one kernel of it cannot be lowered.

use thiserror::Error;

/// Failure of [`crate::lower_module`]: nothing of the module can be used. The fault is the input's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The text does not follow PTX's grammar outside of function bodies; all places found, first to last.
    #[error("{}", list(.errors))]
    Syntax {
        /// At least one.
        errors: Vec<SyntaxError>,
    },
    /// The text is larger than [`crate::MAX_TEXT_BYTES`].
    #[error(
        "PTX text of {size_bytes} bytes, more than {} are not accepted",
        crate::MAX_TEXT_BYTES
    )]
    TooLarge {
        /// Its size.
        size_bytes: usize,
    },
    /// `.address_size 32`.
    #[error("line {line}: {bits}-bit addresses are not supported")]
    AddressSize {
        /// Line of the directive.
        line: u32,
        /// What it says.
        bits: u64,
    },
}

/// A place where the text does not follow PTX's grammar.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: expected {expected}, found {found}")]
pub struct SyntaxError {
    /// Line of the text, from 1.
    pub line: u32,
    /// What the grammar asks for.
    pub expected: &'static str,
    /// The token that stands there.
    pub found: String,
}

/// Why an instruction or a declaration cannot be expressed in hetIR.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    /// No lowering for this opcode.
    #[error("this instruction is not supported")]
    Instruction,
    /// A whole family that hetIR does not model.
    #[error("{0} are not supported")]
    Family(&'static str),
    /// A modifier that the lowering does not know.
    #[error("modifier `.{0}` is not supported here")]
    Modifier(String),
    /// The instruction needs a modifier that is not there.
    #[error("the instruction lacks {0}")]
    Lacks(&'static str),
    /// NVIDIA's driver makes something else of it than PTX's manual says.
    #[error("NVIDIA's driver makes something else of it than PTX's manual says")]
    DiffersOnGpus,
    /// A type that hetIR has not, or not for this instruction.
    #[error("type `{0}` is not supported here")]
    Type(String),
    /// Wrong number of operands.
    #[error("{found} operands, expected {expected}")]
    OperandCount {
        /// As PTX has it.
        expected: &'static str,
        /// As the text has it.
        found: usize,
    },
    /// An operand of the wrong kind.
    #[error("operand `{found}` is not {expected}")]
    Operand {
        /// What must stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A register of the wrong width.
    #[error("register `{name}` has {found} bits, expected {expected}")]
    Width {
        /// The register.
        name: String,
        /// Bits it has.
        found: u32,
        /// Bits the instruction asks for.
        expected: u32,
    },
    /// A name that nothing declares.
    #[error("`{0}` is not declared")]
    Undeclared(String),
    /// A variable or function of the module whose declaration cannot be read or laid out.
    #[error("`{name}` cannot be used: {why}")]
    Declaration {
        /// What is declared.
        name: String,
        /// Line of the declaration, and what is wrong with it.
        why: String,
    },
    /// A name declared twice in one scope.
    #[error("`{0}` is declared twice")]
    Redeclared(String),
    /// A special register that hetIR does not model.
    #[error("special register `{0}` is not supported")]
    SpecialRegister(String),
    /// A call that cannot be inlined.
    #[error("calls of `{name}`: {why}")]
    Call {
        /// The callee.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// A generic address that may point to several state spaces, or leaves the kernel's sight.
    #[error("{0}")]
    GenericAddress(&'static str),
    /// A size beyond what the front end accepts.
    #[error("{what} of {found}, more than {limit} are not accepted")]
    Limit {
        /// Of what.
        what: &'static str,
        /// How much.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// An initialiser that is not understood.
    #[error("its initialiser {0}")]
    Initialiser(&'static str),
    /// The body does not follow PTX's grammar.
    #[error("{0}")]
    Syntax(SyntaxError),
}

fn list(errors: &[SyntaxError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

//! What can be wrong with a text.

use thiserror::Error;

/// Why a text is not hetIR. The fault lies with the text.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ParseError {
    /// Something else stands where one of these belongs.
    #[error("line {line}: expected {expected}, found {found}")]
    Expected {
        /// Line, from 1.
        line: usize,
        /// What would have been right.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A register that the kernel does not declare.
    #[error("line {line}: register %r{register} is not declared")]
    UnknownRegister {
        /// Line, from 1.
        line: usize,
        /// Its number.
        register: u32,
    },
    /// A basic block that the kernel does not have.
    #[error("line {line}: there is no bb{block}")]
    UnknownBlock {
        /// Line, from 1.
        line: usize,
        /// Its number.
        block: u32,
    },
    /// A resume point that the kernel does not declare.
    #[error("line {line}: resume point rp{resume_point} is not declared")]
    UnknownResumePoint {
        /// Line, from 1.
        line: usize,
        /// Its number.
        resume_point: u32,
    },
    /// Ids count from 0 in the order of their declarations.
    #[error("line {line}: expected {expected} to be declared next")]
    OutOfOrder {
        /// Line, from 1.
        line: usize,
        /// The id that comes next.
        expected: String,
    },
    /// More of something than the parser takes ([`crate::text::limits`]).
    #[error("line {line}: more than {limit} {what}")]
    Limit {
        /// Line, from 1.
        line: usize,
        /// Of what.
        what: &'static str,
        /// How many are allowed.
        limit: usize,
    },
}

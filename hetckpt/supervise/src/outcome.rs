//! What a command that stands in for a program comes to.

use std::process::ExitCode;

/// What it came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// The program has ended; this is its exit code, or that of a failure which has been told.
    Ended(ExitCode),
    /// The program runs, and nobody stands in for it: its process id.
    Detached(i32),
}

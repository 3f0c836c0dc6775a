//! Failures as the user sees them: a stable code, what and why, what became of the program, the way out.

use std::fmt;

use hetckpt_ring::failure_code::Code;

use crate::exit;

/// A failure with all that a person, or a program reading `--json`, needs.
///
#[derive(Debug, Clone)]
pub struct Failure {
    /// Which kind of failure it is.
    pub code: Code,
    /// What failed, naming the thing.
    pub message: String,
    /// Why, where it is known.
    pub notes: Vec<String>,
    /// What became of the program, where there is one.
    pub state: Option<String>,
    /// What to do.
    pub help: Option<String>,
    /// This machine or program cannot do it at all.
    pub unsupported: bool,
    /// The exit status, where it is not the verb's own for failures.
    pub exit: Option<u8>,
}

impl Failure {
    /// A failure with nothing but a message yet.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            notes: vec![],
            state: None,
            help: None,
            unsupported: code.exit() == exit::UNSUPPORTED,
            exit: None,
        }
    }

    /// Adds a cause.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Says what became of the program.
    pub fn state(mut self, state: impl Into<String>) -> Self {
        self.state = Some(state.into());
        self
    }

    /// Says what to do.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Gives it an exit status of its own.
    pub fn exit(mut self, status: u8) -> Self {
        self.exit = Some(status);
        self
    }

    /// Marks it "not supported here".
    pub fn unsupported(mut self) -> Self {
        self.unsupported = true;
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

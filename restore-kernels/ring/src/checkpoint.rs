//! A checkpoint that a program asks for itself: what travels from its device server to `hetckpt run` or `restore`,
//! which stands in for it, and from there to a `hetckpt job`. One request on each connection, and one answer.

use serde::{Deserialize, Serialize};

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Absolute path of the archive, or a URL, as bytes, since paths may be any; `None`: a snapshot in the job's store.
    pub file: Option<Vec<u8>>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What came of it.
    pub outcome: Outcome,
    /// Why, if there is no checkpoint.
    pub message: String,
}

impl Answer {
    /// There is a checkpoint, and the program runs on.
    #[must_use]
    pub fn done() -> Self {
        Self::new(Outcome::Done, "")
    }

    /// Of that outcome.
    #[must_use]
    pub fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { outcome, message }
    }
}

/// What came of a request. The numbers are those in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum Outcome {
    /// The checkpoint is complete, and the program runs on.
    Done = 0,
    /// The program has been restored from a snapshot that was made while it waited.
    Restored = 1,
    /// No file was named, and there is no job with a store.
    NoStore = 2,
    /// Nobody stands in for the program.
    Unattended = 3,
    /// The dump has failed.
    Failed = 4,
}

impl Outcome {
    /// The outcome with that number; one that is not known is a failure.
    #[must_use]
    pub fn of_number(number: u32) -> Self {
        let all = [Self::Done, Self::Restored, Self::NoStore, Self::Unattended];
        all.into_iter()
            .find(|&outcome| outcome as u32 == number)
            .unwrap_or(Self::Failed)
    }
}

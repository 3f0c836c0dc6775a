//! What `hetckpt-tracer` is told, and what it says: on its command line, and as lines of JSON on its stdout.
//!
//! It says [`Said::Ready`] when probes are in place, or [`Said::Refused`]. It traces until its stdin ends, or what it
//! traces has ended, and then says [`Said::Measured`].

use serde::{Deserialize, Serialize};

use crate::measured::Measured;

/// File name of the program.
pub const PROGRAM: &str = "hetckpt-tracer";

/// Trace this process and its children: `--pid PID`.
pub const PID: &str = "--pid";

/// Trace children that this process starts from now on, and not itself: `--children-of PID`.
pub const CHILDREN_OF: &str = "--children-of";

/// Put probes on this library before anyone maps it: `--library FILE`, as often as there are.
pub const LIBRARY: &str = "--library";

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Said {
    /// Probes are in place.
    Ready,
    /// Tracing is not permitted, or not possible: what went wrong, and what is missing.
    Refused {
        /// What failed.
        message: String,
        /// What is missing for it, a sentence each.
        missing: Vec<String>,
    },
    /// The process to trace is not there.
    Gone,
    /// The end.
    Measured(Box<Measured>),
}

//! No scheduler that is known: whoever starts the job names it, and starts it again if it exits with 75.

use crate::Scheduler;

/// A job that nobody has scheduled.
#[derive(Debug)]
pub struct Unscheduled;

impl Scheduler for Unscheduled {
    fn name(&self) -> &'static str {
        "none"
    }

    fn variable_prefixes(&self) -> &'static [&'static str] {
        &[]
    }
}

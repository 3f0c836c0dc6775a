//! No scheduler that is known: whoever starts the job names it, and starts it again if it exits with 75.

use std::time::Duration;

use crate::question::QuestionError;
use crate::{Reason, Requeue, Scheduler};

/// A job that nobody has scheduled.
#[derive(Debug)]
pub struct Unscheduled;

impl Scheduler for Unscheduled {
    fn name(&self) -> &'static str {
        "none"
    }

    fn job_name(&self) -> Option<String> {
        None
    }

    fn num_earlier_runs(&self) -> u32 {
        0
    }

    fn grace(&self) -> Option<Duration> {
        None
    }

    fn reason(&self) -> Reason {
        Reason::Unknown
    }

    fn requeue(&self) -> Result<Requeue, QuestionError> {
        Ok(Requeue::ByExitCode)
    }

    fn variable_prefixes(&self) -> &'static [&'static str] {
        &[]
    }
}

//! Grid Engine and its descendants: a job that exits with 99 is queued again.
//!
//! # Source
//! sge_diagnostics(5), qsub(1) ("-notify": SIGUSR1 before a stop, SIGUSR2 before SIGKILL).

use crate::environment::Environment;
use crate::{Scheduler, plain};

/// The exit code that has a job queued again.
const RESCHEDULE: u8 = 99;

/// A job of Grid Engine's.
#[derive(Debug)]
pub struct GridEngine {
    id: String,
    task: Option<String>,
    is_restarted: bool,
    num_hosts: u32,
}

impl GridEngine {
    /// The job of that environment; `None` if it is of none.
    #[must_use]
    pub fn detect(environment: &Environment) -> Option<Self> {
        environment.get("SGE_ROOT")?;
        Some(Self {
            id: environment.get("JOB_ID")?.to_owned(),
            task: environment
                .get("SGE_TASK_ID")
                .filter(|&task| task != "undefined")
                .map(str::to_owned),
            is_restarted: environment.number("RESTARTED").is_some_and(|how| how > 0),
            num_hosts: environment.number("NHOSTS").unwrap_or(1),
        })
    }
}

impl Scheduler for GridEngine {
    fn name(&self) -> &'static str {
        "grid-engine"
    }

    fn job_name(&self) -> Option<String> {
        let task = self.task.iter().map(|task| format!(".{task}"));
        Some(plain(&format!("sge-{}{}", self.id, task.collect::<String>())))
    }

    fn num_earlier_runs(&self) -> u32 {
        // It does not say how often.
        u32::from(self.is_restarted)
    }

    fn exit_to_requeue(&self) -> u8 {
        RESCHEDULE
    }

    fn refusal(&self) -> Option<String> {
        let text = "the job has several hosts, and a snapshot is of one";
        (self.num_hosts > 1).then(|| text.into())
    }

    fn variable_prefixes(&self) -> &'static [&'static str] {
        &["SGE_", "JOB_", "NHOSTS", "NSLOTS", "QUEUE", "RESTARTED", "TMPDIR"]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn tasks_have_names_of_their_own() {
        let root = ("SGE_ROOT", "/opt/sge");
        let of = |task| GridEngine::detect(&[root, ("JOB_ID", "12"), ("SGE_TASK_ID", task)].into()).unwrap();
        assert_eq!(of("undefined").job_name().unwrap(), "sge-12");
        assert_eq!(of("3").job_name().unwrap(), "sge-12.3");
        assert!(GridEngine::detect(&[("JOB_ID", "12")].into()).is_none());
    }
}

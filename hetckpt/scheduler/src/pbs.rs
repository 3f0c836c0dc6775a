//! PBS Professional and OpenPBS.
//!
//! A job that is preempted by requeueing gets SIGTERM, and SIGKILL when the queue's `kill_delay` is over; PBS queues it
//! again by itself. MoM's actions `checkpoint_abort` and `restart` (`migrate-scripts/pbs`) come to the same.
//!
//! # Source
//! The PBS Professional guides for users and administrators: "Checkpoint and Restart", "Preemption".

use crate::environment::Environment;
use crate::question::{QuestionError, ask};
use crate::{Requeue, Scheduler, plain};
use std::process::Command;

/// A job of PBS's.
#[derive(Debug)]
pub struct Pbs {
    id: String,
    is_several: bool,
}

impl Pbs {
    /// The job of that environment; `None` if it is of none.
    #[must_use]
    pub fn detect(environment: &Environment) -> Option<Self> {
        Some(Self {
            id: environment.get("PBS_JOBID")?.to_owned(),
            is_several: environment.number("PBS_NODENUM").is_some_and(|node| node > 0),
        })
    }
}

impl Scheduler for Pbs {
    fn name(&self) -> &'static str {
        "pbs"
    }

    fn job_name(&self) -> Option<String> {
        Some(plain(&self.id))
    }

    fn num_earlier_runs(&self) -> u32 {
        let mut command = Command::new("qstat");
        command.args(["-f", &self.id]);
        // Without an answer, it counts as the first.
        ask(command).map_or(0, |text| earlier_runs(&text))
    }

    fn requeue(&self) -> Result<Requeue, QuestionError> {
        Ok(Requeue::ByHand(
            "PBS queues the job again if it has preempted it; else an operator does (qrerun)".into(),
        ))
    }

    fn refusal(&self) -> Option<String> {
        let text = "the job has several nodes, and a snapshot is of one";
        self.is_several.then(|| text.into())
    }

    fn variable_prefixes(&self) -> &'static [&'static str] {
        &["PBS_"]
    }
}

/// `run_count` counts the one that runs.
fn earlier_runs(shown: &str) -> u32 {
    let count = shown.lines().find_map(|line| line.trim().strip_prefix("run_count = "));
    count
        .and_then(|text| text.trim().parse::<u32>().ok())
        .map_or(0, |count| count.saturating_sub(1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_tasks_have_names() {
        let name = |id| Pbs::detect(&[("PBS_JOBID", id)].into()).unwrap().job_name().unwrap();
        assert_eq!(name("12.server"), "12.server");
        assert_eq!(name("12[3].server"), "12_3_.server");
    }

    #[test]
    fn the_run_that_runs_is_not_counted() {
        assert_eq!(earlier_runs("Job Id: 12.server\n    run_count = 3\n"), 2);
        assert_eq!(earlier_runs(""), 0);
    }
}

//! IBM Spectrum LSF: a job that exits with one of the queue's `REQUEUE_EXIT_VALUES` is queued again.
//!
//! # Source
//! LSF's reference: lsb.queues(5), and the environment variables of job execution (`LSB_EXIT_REQUEUE`).

use crate::environment::Environment;
use crate::question::{QuestionError, ask};
use crate::{EX_TEMPFAIL, Requeue, Scheduler, plain};
use std::process::Command;

/// A job of LSF's.
#[derive(Debug)]
pub struct Lsf {
    id: String,
    index: Option<String>,
    exit_to_requeue: Option<u8>,
    is_restarted: bool,
    num_hosts: usize,
}

impl Lsf {
    /// The job of that environment; `None` if it is of none.
    #[must_use]
    pub fn detect(environment: &Environment) -> Option<Self> {
        let codes = environment.get("LSB_EXIT_REQUEUE").unwrap_or_default();
        let hosts = environment.get("LSB_MCPU_HOSTS").unwrap_or_default();
        Some(Self {
            id: environment.get("LSB_JOBID")?.to_owned(),
            index: environment
                .get("LSB_JOBINDEX")
                .filter(|&index| index != "0")
                .map(str::to_owned),
            exit_to_requeue: codes.split_whitespace().find_map(|code| code.parse().ok()),
            is_restarted: environment.get("LSB_RESTART") == Some("Y"),
            num_hosts: hosts.split_whitespace().count() / 2,
        })
    }

    /// As LSF's commands take it.
    fn called(&self) -> String {
        match &self.index {
            Some(index) => format!("{}[{index}]", self.id),
            None => self.id.clone(),
        }
    }
}

impl Scheduler for Lsf {
    fn name(&self) -> &'static str {
        "lsf"
    }

    fn job_name(&self) -> Option<String> {
        Some(plain(&format!("lsf-{}", self.called())))
    }

    fn num_earlier_runs(&self) -> u32 {
        // It does not say how often.
        u32::from(self.is_restarted)
    }

    fn requeue(&self) -> Result<Requeue, QuestionError> {
        if self.exit_to_requeue.is_some() {
            return Ok(Requeue::ByExitCode);
        }
        let mut command = Command::new("brequeue");
        command.args(["-r", &self.called()]);
        ask(command).map(|_| Requeue::Queued)
    }

    fn exit_to_requeue(&self) -> u8 {
        self.exit_to_requeue.unwrap_or(EX_TEMPFAIL)
    }

    fn refusal(&self) -> Option<String> {
        let text = "the job has several hosts, and a snapshot is of one";
        (self.num_hosts > 1).then(|| text.into())
    }

    fn variable_prefixes(&self) -> &'static [&'static str] {
        &["LSB_", "LSF_", "LS_"]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_queue_says_which_code_requeues() {
        let id = ("LSB_JOBID", "12");
        let job = Lsf::detect(&[id, ("LSB_EXIT_REQUEUE", "EXCLUDE(20) 99 100"), ("LSB_JOBINDEX", "0")].into()).unwrap();
        assert_eq!(
            (job.exit_to_requeue(), job.requeue().unwrap()),
            (99, Requeue::ByExitCode)
        );
        assert_eq!(job.job_name().unwrap(), "lsf-12");
        let job = Lsf::detect(&[id, ("LSB_JOBINDEX", "3"), ("LSB_MCPU_HOSTS", "a 4 b 4")].into()).unwrap();
        assert_eq!(
            (job.exit_to_requeue(), job.job_name().unwrap().as_str()),
            (75, "lsf-12_3_")
        );
        assert!(job.refusal().is_some());
    }
}

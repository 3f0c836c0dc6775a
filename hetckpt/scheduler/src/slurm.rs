//! Slurm, 22.05 and newer.
//!
//! A preempted job is signalled, gets the `GraceTime` of its partition or quality of service, then SIGTERM, and
//! `KillWait` later SIGKILL. What reaches the batch script at the beginning depends on the site and on `--signal`
//! (`docs/schedulers.md`). Where only steps are signalled, a step beside the job passes the signal on
//! ([`Scheduler::sentinel`]).
//!
//! # Source
//! slurm.conf(5), sbatch(1), scontrol(1); <https://slurm.schedmd.com/preempt.html>.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::environment::Environment;
use crate::question::{QuestionError, ask};
use crate::{Reason, Requeue, Scheduler, plain};

/// `KillWait` counts as no less than this.
const LEAST_KILL_WAIT: Duration = Duration::from_secs(5);

/// A job of Slurm's.
#[derive(Debug)]
pub struct Slurm {
    environment: Environment,
    /// `GraceTime` of the job's quality of service, once it was asked for: not again when time runs.
    grace_of_quality: OnceLock<Option<Duration>>,
}

impl Slurm {
    /// The job of that environment; `None` if it is of none.
    #[must_use]
    pub fn detect(environment: &Environment) -> Option<Self> {
        environment.get("SLURM_JOB_ID")?;
        Some(Self {
            environment: environment.clone(),
            grace_of_quality: OnceLock::new(),
        })
    }

    /// What `scontrol` calls the job. The number of an array's last task is that of the whole array, so a task is
    /// called by array and index.
    fn id(&self) -> String {
        let of_array = self.environment.get("SLURM_ARRAY_JOB_ID");
        match of_array.zip(self.environment.get("SLURM_ARRAY_TASK_ID")) {
            Some((array, task)) => format!("{array}_{task}"),
            None => self.environment.get("SLURM_JOB_ID").unwrap_or_default().to_owned(),
        }
    }

    fn kill_wait(&self) -> Option<Duration> {
        kill_wait(&self.show(&["config"]).ok()?)
    }

    /// `GraceTime` of the job's quality of service. The database has it; `None` if that does not answer.
    fn ask_grace_of_quality(&self) -> Option<Duration> {
        let mut command = Command::new("sacctmgr");
        let quality = self.environment.get("SLURM_JOB_QOS")?;
        command.args(["--noheader", "--parsable2", "show", "qos", quality, "format=GraceTime"]);
        duration(ask(command).ok()?.trim())
    }

    fn is_in_step(&self) -> bool {
        self.environment.get("SLURM_STEP_ID").is_some()
    }

    fn show(&self, what: &[&str]) -> Result<Fields, QuestionError> {
        let mut command = Command::new("scontrol");
        command.args(["--oneliner", "show"]).args(what);
        Ok(Fields::parse(&ask(command)?))
    }
}

impl Scheduler for Slurm {
    fn name(&self) -> &'static str {
        "slurm"
    }

    fn job_name(&self) -> Option<String> {
        let cluster = self.environment.get("SLURM_CLUSTER_NAME").unwrap_or("slurm");
        Some(plain(&format!("{cluster}-{}", self.id())))
    }

    fn num_earlier_runs(&self) -> u32 {
        self.environment.number("SLURM_RESTART_COUNT").unwrap_or(0)
    }

    fn grace(&self) -> Option<Duration> {
        let config = self.show(&["config"]).ok()?;
        let of_quality = match config.get("PreemptType") {
            Some("preempt/qos") => *self.grace_of_quality.get_or_init(|| self.ask_grace_of_quality()),
            _ => None,
        };
        let grace = match of_quality {
            Some(grace) => grace,
            None => {
                let partition = self.environment.get("SLURM_JOB_PARTITION")?;
                self.show(&["partition", partition]).ok()?.duration("GraceTime")?
            }
        };
        Some(grace + kill_wait(&config)?)
    }

    fn time_left(&self, reason: Reason) -> Option<Duration> {
        match reason {
            // The grace time is over, or there is none.
            Reason::Preempted { is_requeued: true } | Reason::Cancelled => self.kill_wait(),
            Reason::Preempted { is_requeued: false } => self.grace(),
            // Before the time limit, the signal comes when the job wanted it: nobody knows.
            Reason::TimeLimit | Reason::Unknown => None,
        }
    }

    fn reason(&self) -> Reason {
        let fields = self.show(&["job", &self.id()]);
        fields.map_or(Reason::Unknown, |fields| fields.reason(self.num_earlier_runs()))
    }

    fn requeue(&self) -> Result<Requeue, QuestionError> {
        if self.environment.get("SLURM_JOB_ID").is_none() {
            return Ok(Requeue::ByExitCode);
        }
        let mut command = Command::new("scontrol");
        command.arg("requeue").arg(self.id());
        match ask(command) {
            Ok(_) => Ok(Requeue::Queued),
            // In a container, whoever started it asks.
            Err(QuestionError::NotRun { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Ok(Requeue::ByExitCode)
            }
            Err(e) => Err(e),
        }
    }

    fn refusal(&self) -> Option<String> {
        let several = |name: &str| self.environment.number(name).is_some_and(|number| number > 1);
        if several("SLURM_JOB_NUM_NODES") || several("SLURM_HET_SIZE") {
            return Some("the job has several nodes, and a snapshot is of one: it would take the processes of all nodes, stopped at the same moment".into());
        }
        if self.is_in_step() && several("SLURM_STEP_NUM_TASKS") {
            return Some("srun starts several tasks, and a snapshot is of one process tree: start them on one node by `hetckpt job -- mpirun …`, as one task".into());
        }
        None
    }

    fn sentinel(&self) -> Option<Command> {
        // A step is signalled itself.
        if self.is_in_step() || self.environment.get("SLURM_JOB_ID").is_none() {
            return None;
        }
        let mut command = Command::new("srun");
        command.args([
            "--overlap",
            "--nodes=1",
            "--ntasks=1",
            "--mem=0",
            "--gres=none",
            "--quiet",
        ]);
        command.args([
            "--input=none",
            "--output=none",
            "--error=none",
            "--job-name=hetckpt-sentinel",
        ]);
        Some(command)
    }

    fn variable_prefixes(&self) -> &'static [&'static str] {
        &["SLURM", "SBATCH_", "SRUN_"]
    }
}

/// What `scontrol` shows: `Name=value` one after the other, or a line each.
#[derive(Debug)]
struct Fields(BTreeMap<String, String>);

impl Fields {
    fn parse(text: &str) -> Self {
        let mut found = BTreeMap::new();
        for line in text.lines() {
            // `show config` has a line for each, with blanks around the sign.
            if let Some((name, value)) = line.split_once(" = ") {
                found.insert(name.trim().to_owned(), value.trim().to_owned());
                continue;
            }
            for word in line.split_whitespace() {
                if let Some((name, value)) = word.split_once('=') {
                    found.entry(name.to_owned()).or_insert_with(|| value.to_owned());
                }
            }
        }
        Self(found)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn duration(&self, name: &str) -> Option<Duration> {
        duration(self.get(name)?)
    }

    /// Why a job that has these was signalled in its run `run`, counted from 0.
    fn reason(&self, run: u32) -> Reason {
        let restarts: u32 = self.get("Restarts").and_then(|text| text.parse().ok()).unwrap_or(run);
        if restarts > run {
            return Reason::Preempted { is_requeued: true };
        }
        if self.get("Reason") == Some("TimeLimit") {
            return Reason::TimeLimit;
        }
        let state = self.get("JobState").unwrap_or_default();
        // While it has not ended for Slurm: in the grace time, or before the time limit. It is SIGNALING for a moment
        // while a signal is on its way.
        let is_there = matches!(state, "RUNNING" | "SIGNALING" | "SUSPENDED" | "STOPPED");
        let is_preempted = self.get("PreemptTime").is_some_and(|time| time != "None");
        // Where preemption cancels without a grace time, both are the same moment.
        let ends_by_that = is_preempted && self.get("PreemptTime") == self.get("EndTime");
        match (is_there, is_preempted) {
            (true, true) => Reason::Preempted { is_requeued: false },
            (true, false) => Reason::Unknown,
            (false, _) if state == "PREEMPTED" || ends_by_that => Reason::Preempted { is_requeued: false },
            (false, _) if state == "TIMEOUT" => Reason::TimeLimit,
            (false, _) if state.is_empty() => Reason::Unknown,
            (false, _) => Reason::Cancelled,
        }
    }
}

/// `KillWait` as it counts.
fn kill_wait(config: &Fields) -> Option<Duration> {
    Some(config.duration("KillWait")?.max(LEAST_KILL_WAIT))
}

/// `20`, `5 sec`, `00:00:20`, `1-00:00:00`.
fn duration(text: &str) -> Option<Duration> {
    let text = text.split_whitespace().next()?;
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let parts: Result<Vec<u64>, _> = clock.split(':').map(str::parse).collect();
    let seconds = parts
        .ok()?
        .iter()
        .fold(0u64, |sum, part| sum.saturating_mul(60).saturating_add(*part));
    let days: u64 = days.parse().ok()?;
    Some(Duration::from_secs(days.saturating_mul(86_400).saturating_add(seconds)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn slurm<const N: usize>(pairs: [(&str, &str); N]) -> Slurm {
        Slurm::detect(&pairs.into()).unwrap()
    }

    #[test]
    fn tasks_of_an_array_are_told_apart() {
        let alone = slurm([("SLURM_JOB_ID", "7"), ("SLURM_CLUSTER_NAME", "a b")]);
        assert_eq!(alone.job_name().unwrap(), "a_b-7");
        let last = slurm([
            ("SLURM_JOB_ID", "7"),
            ("SLURM_ARRAY_JOB_ID", "7"),
            ("SLURM_ARRAY_TASK_ID", "3"),
        ]);
        assert_eq!(last.job_name().unwrap(), "slurm-7_3");
        assert!(Slurm::detect(&[].into()).is_none());
    }

    #[test]
    fn several_tasks_are_refused() {
        assert!(
            slurm([("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "1")])
                .refusal()
                .is_none()
        );
        assert!(
            slurm([("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "2")])
                .refusal()
                .is_some()
        );
        let step = slurm([
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NUM_TASKS", "4"),
        ]);
        assert!(step.refusal().unwrap().contains("mpirun"));
    }

    #[test]
    fn durations_are_read_as_slurm_writes_them() {
        let of = |value: &str| Fields([("T".to_owned(), value.to_owned())].into()).duration("T");
        assert_eq!(of("20"), Some(Duration::from_secs(20)));
        assert_eq!(of("5 sec"), Some(Duration::from_secs(5)));
        assert_eq!(of("00:01:20"), Some(Duration::from_secs(80)));
        assert_eq!(of("1-00:00:01"), Some(Duration::from_secs(86_401)));
        assert_eq!(of("UNLIMITED"), None);
    }

    #[test]
    fn the_reason_is_what_scontrol_shows() {
        let reason = |text: &str, run| Fields::parse(text).reason(run);
        let grace = "JobId=3 JobState=RUNNING Reason=None Restarts=0 EndTime=Unknown PreemptTime=2026-11-25T09:38:35";
        assert_eq!(reason(grace, 0), Reason::Preempted { is_requeued: false });
        let signalled = grace.replace("RUNNING", "SIGNALING");
        assert_eq!(reason(&signalled, 0), Reason::Preempted { is_requeued: false });
        let requeued = "JobId=3 JobState=COMPLETING Reason=None Restarts=2 EndTime=Unknown PreemptTime=None";
        assert_eq!(reason(requeued, 1), Reason::Preempted { is_requeued: true });
        let cancelled =
            "JobId=3 JobState=COMPLETING Reason=None Restarts=1 EndTime=2026-11-25T09:38:43 PreemptTime=None";
        assert_eq!(reason(cancelled, 1), Reason::Cancelled);
        let at_once = "JobId=3 JobState=COMPLETING Reason=None Restarts=0 EndTime=2026-11-25T09:38:43 PreemptTime=2026-11-25T09:38:43";
        assert_eq!(reason(at_once, 0), Reason::Preempted { is_requeued: false });
        let limit = "JobId=3 JobState=COMPLETING Reason=TimeLimit Restarts=1 EndTime=2026-11-25T09:38:43";
        assert_eq!(reason(limit, 1), Reason::TimeLimit);
        let warned = "JobId=3 JobState=RUNNING Reason=None Restarts=1 EndTime=2026-11-25T09:38:43 PreemptTime=None";
        assert_eq!(reason(warned, 1), Reason::Unknown);
    }

    #[test]
    fn configuration_has_a_line_for_each() {
        let fields =
            Fields::parse("Configuration data as of now\nKillWait                = 30 sec\nMailProg = /bin/mail\n");
        assert_eq!(fields.duration("KillWait"), Some(Duration::from_secs(30)));
    }
}

//! HTCondor, whose jobs may checkpoint themselves.
//!
//! A job that is vacated gets its `kill_sig`, and SIGKILL when the machine's `MachineMaxVacateTime` is over. A job that
//! exits with its `checkpoint_exit_code` is started again with the same arguments.
//!
//! # Source
//! HTCondor's manual, "Self-Checkpointing Applications", and condor_submit(1).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::environment::Environment;
use crate::{Scheduler, plain};

/// The exit code that the manual's examples have.
const CHECKPOINTED: u8 = 85;

/// A job of HTCondor's.
#[derive(Debug)]
pub struct HtCondor {
    job: ClassAd,
    machine: ClassAd,
}

impl HtCondor {
    /// The job of that environment; `None` if it is of none.
    #[must_use]
    pub fn detect(environment: &Environment) -> Option<Self> {
        let read = |name: &str| {
            let text = std::fs::read_to_string(environment.get(name)?).ok()?;
            Some(ClassAd::parse(&text))
        };
        Some(Self {
            job: read("_CONDOR_JOB_AD")?,
            machine: read("_CONDOR_MACHINE_AD").unwrap_or_default(),
        })
    }
}

impl Scheduler for HtCondor {
    fn name(&self) -> &'static str {
        "htcondor"
    }

    fn job_name(&self) -> Option<String> {
        // With the submitting host and the time of submission: numbers begin anew elsewhere.
        let global = self.job.text("GlobalJobId").map(plain);
        global.or_else(|| {
            let (cluster, process) = (self.job.number("ClusterId")?, self.job.number("ProcId")?);
            Some(format!("condor-{cluster}.{process}"))
        })
    }

    fn num_earlier_runs(&self) -> u32 {
        // It counts the one that runs.
        let starts = self.job.number("NumShadowStarts").unwrap_or(1);
        u32::try_from(starts.saturating_sub(1)).unwrap_or(0)
    }

    fn grace(&self) -> Option<Duration> {
        let of_machine = self.machine.number("MachineMaxVacateTime")?;
        let of_job = self.job.number("JobMaxVacateTime").unwrap_or(of_machine);
        Some(Duration::from_secs(of_machine.min(of_job)))
    }

    fn exit_to_requeue(&self) -> u8 {
        let wanted = self.job.number("SuccessCheckpointExitCode");
        wanted.and_then(|code| u8::try_from(code).ok()).unwrap_or(CHECKPOINTED)
    }

    fn variable_prefixes(&self) -> &'static [&'static str] {
        &["_CONDOR_", "BATCH_SYSTEM", "TEMP", "TMP", "TMPDIR"]
    }
}

/// A description by HTCondor: a line `Name = value` for each attribute.
#[derive(Debug, Default)]
struct ClassAd(BTreeMap<String, String>);

impl ClassAd {
    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once(" = "));
        // Names are the same in upper and lower case.
        Self(
            lines
                .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
                .collect(),
        )
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(&name.to_ascii_lowercase()).map(String::as_str)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.strip_prefix('"')?.strip_suffix('"')
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn condor(job: &str, machine: &str) -> HtCondor {
        HtCondor {
            job: ClassAd::parse(job),
            machine: ClassAd::parse(machine),
        }
    }

    #[test]
    fn jobs_are_read_from_their_description() {
        let job = "ClusterId = 12\nProcId = 3\nNumShadowStarts = 2\nSuccessCheckpointExitCode = 77\n";
        let job = condor(job, "MachineMaxVacateTime = 600\n");
        assert_eq!(job.job_name().unwrap(), "condor-12.3");
        assert_eq!(job.num_earlier_runs(), 1);
        assert_eq!(job.exit_to_requeue(), 77);
        assert_eq!(job.grace(), Some(Duration::from_secs(600)));
        let job = condor(
            "GlobalJobId = \"host#12.3#1700000000\"\nJobMaxVacateTime = 60",
            "machinemaxvacatetime = 600",
        );
        assert_eq!(job.job_name().unwrap(), "host_12.3_1700000000");
        assert_eq!((job.num_earlier_runs(), job.exit_to_requeue()), (0, 85));
        assert_eq!(job.grace(), Some(Duration::from_secs(60)));
    }
}

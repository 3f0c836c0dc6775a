//! Batch schedulers, one file each: which job this process belongs to, why a signal came, how the job is queued again.
//!
//! Nothing here dumps or starts a program. What a scheduler says is read from the environment that it gives its jobs,
//! and from its own commands.
//!
//! # Source
//! The manual of each scheduler, named in its file.

pub mod environment;
pub mod question;
pub mod flux;
pub mod grid_engine;
pub mod htcondor;
pub mod kubernetes;
pub mod lsf;
pub mod pbs;
pub mod slurm;
pub mod unscheduled;
pub mod detect;

use std::fmt;
use std::process::Command;
use std::time::Duration;

use crate::question::QuestionError;

/// `EX_TEMPFAIL` of sysexits(3): try again. The exit code of a job that is to be run again, where a scheduler has no
/// other.
pub const EX_TEMPFAIL: u8 = 75;

/// Why a job was signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its place is wanted for another job.
    Preempted {
        /// The scheduler has queued it again by itself.
        is_requeued: bool,
    },
    /// Its time is up, or soon will be.
    TimeLimit,
    /// Somebody has cancelled it: it is not to go on.
    Cancelled,
    /// The scheduler does not say. Whoever sends the signal for preemption wants a snapshot.
    Unknown,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preempted { is_requeued: true } => "the job is preempted, and queued again",
            Self::Preempted { is_requeued: false } => "the job is preempted",
            Self::TimeLimit => "the job's time is up",
            Self::Cancelled => "the job is cancelled",
            Self::Unknown => "the scheduler does not say why",
        })
    }
}

/// How a job comes to be queued again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// The scheduler has it in its queue.
    Queued,
    /// The scheduler queues it when it sees the job's exit code ([`Scheduler::exit_to_requeue`]).
    ByExitCode,
    /// Nobody starts it again by itself: a sentence that says what to do.
    ByHand(String),
}

/// A batch scheduler, as one of its jobs sees it.
pub trait Scheduler {
    /// Its name, as `--scheduler` takes it.
    fn name(&self) -> &'static str;

    /// A name for this job that stays the same when it is queued again, and that no other job of the scheduler has:
    /// letters, digits, `-`, `_` and `.`. `None` if the scheduler gives none.
    fn job_name(&self) -> Option<String> {
        None
    }

    /// How often this job was started before; 0 if the scheduler does not say.
    fn num_earlier_runs(&self) -> u32 {
        0
    }

    /// Time from the signal of a preemption to SIGKILL, at least; `None` if the scheduler does not say.
    fn grace(&self) -> Option<Duration> {
        None
    }

    /// Why a signal has just come. Most schedulers do not say.
    fn reason(&self) -> Reason {
        Reason::Unknown
    }

    /// Time from that signal to SIGKILL, at least; `None` if the scheduler does not say.
    fn time_left(&self, reason: Reason) -> Option<Duration> {
        let _ = reason;
        self.grace()
    }

    /// Has the job queued again.
    ///
    /// # Errors
    /// What the scheduler says against it.
    fn requeue(&self) -> Result<Requeue, QuestionError> {
        Ok(Requeue::ByExitCode)
    }

    /// The exit code with which a job ends that is to be run again.
    fn exit_to_requeue(&self) -> u8 {
        EX_TEMPFAIL
    }

    /// A sentence that says why this job cannot be kept; `None` if it can.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// A command that runs beside the job and ends on SIGTERM, where the scheduler signals such commands but not the
    /// job itself. It is followed by a program and its arguments.
    fn sentinel(&self) -> Option<Command> {
        None
    }

    /// What the names of variables begin with that the scheduler sets anew for each run.
    fn variable_prefixes(&self) -> &'static [&'static str];
}

/// `text` as a part of a job's name: other characters become `_`.
fn plain(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
}

//! `hetckpt job`: a program under a batch scheduler. It is dumped when the scheduler wants its place, the job is queued
//! again, and its next run goes on from the snapshot, on whatever node and device that has.
//!
//! Dumps, restores and the program itself are processes of this program's other verbs: what becomes of one of them does
//! not become of the job.

pub mod options;
pub mod sentinel;

mod signals;
mod renewing;
mod snapshots;
mod grace;
mod kept_environment;
mod program;
mod asked;
mod changing;
mod devices;
mod supervisor;

use std::process::ExitCode;
use std::time::Duration;

use hetckpt_report::failure::Failure;
use hetckpt_report::remark;
use hetckpt_ring::failure_code::Code;
use hetckpt_scheduler::detect::{detect, named};
use hetckpt_scheduler::environment::Environment;
use hetckpt_store::encryption::Encryption;
use hetckpt_store::failure::failure;
use hetckpt_store::name::Key;
use hetckpt_store::remote::Patience;
use hetckpt_store::store::Store;

use self::options::Options;
use self::signals::Signals;
use self::snapshots::{Snapshots, Stores};
use self::supervisor::Supervisor;

/// Longest time for a note in the store.
const HASTY: Duration = Duration::from_secs(20);

/// How long a store is waited for where a program or a scheduler waits too: no longer than for archives.
fn hasty() -> Patience {
    let patient = Patience::of_environment();
    Patience {
        request: patient.request.min(HASTY),
        ..patient
    }
}

/// Runs the job, from its last snapshot if it has one. Gives the program's exit code, or the one with which the
/// scheduler queues the job again.
///
/// # Errors
/// What keeps the job from being run.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let environment = Environment::of_this_process();
    let scheduler = match &options.scheduler {
        None => detect(&environment),
        Some(name) => named(name, &environment).ok_or_else(|| {
            Failure::new(Code::NotAJob, format!("this is no job of {name}'s"))
                .note("the variables that it gives its jobs are missing")
                .help("leave --scheduler out, or say --scheduler none and --name NAME")
        })?,
    };
    if let Some(why) = scheduler.refusal() {
        return Err(Failure::new(Code::NotAJob, "this job cannot be kept")
            .note(why)
            .unsupported());
    }
    let given = scheduler.job_name().and_then(|name| name.parse::<Key>().ok());
    let job = options.name.clone().or(given).ok_or_else(|| {
        Failure::new(
            Code::NotAJob,
            format!("the job has no name (scheduler: {})", scheduler.name()),
        )
        .help("name it: --name NAME. A job that is started again with that name goes on from its snapshot")
    })?;
    let encryption = options.key_file.as_deref().map(Encryption::open).transpose();
    let encryption = encryption.map_err(|e| failure(&e.into()))?;
    let patient = Store::open(&options.store, encryption).map_err(|e| failure(&e))?;
    let hasty = Store::open_with(&options.store, None, hasty()).map_err(|e| failure(&e))?;
    // A thread that waits for a store that is gone must not keep this process from its end.
    let stores = Stores {
        patient: Box::leak(Box::new(patient)),
        hasty: Box::leak(Box::new(hasty)),
    };
    let mut snapshots = Snapshots::of(stores, job);
    if let Some(code) = snapshots.ended()? {
        remark::note(format!(
            "the job {} has ended before, with status {code}: nothing is run (`hetckpt store rm` makes it forget)",
            snapshots.job()
        ));
        return Ok(code.into());
    }
    // Before the thread that renews the claim: it would take signals that it does not hold back.
    let signals = Signals::take(&options.on, options.suspendable)?;
    snapshots.claim(scheduler.num_earlier_runs())?;
    Supervisor::new(options, &*scheduler, snapshots, signals).run()
}

//! `hetckpt check`: can this machine restore a snapshot, and if not, what is missing?

use std::process::ExitCode;

use crate::cli::Check;
use crate::namespaces::create::{Job, run_inside};
use crate::snapshot::Snapshot;
use crate::{check, finding};

/// Prints what was found. The status is 1 if there is a problem.
pub fn run(options: Check) -> anyhow::Result<ExitCode> {
    if let Some(code) = run_inside(options.adaptation.namespaces, &Job::default())? {
        return Ok(code);
    }
    let snapshot = Snapshot::open(&options.snapshot)?;
    let findings = check::examine(&snapshot, &options)?;
    Ok(finding::report(&findings, options.json))
}

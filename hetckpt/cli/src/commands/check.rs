//! `hetckpt check`: can this machine restore a snapshot, and if not, what is missing?

use std::process::ExitCode;

use hetckpt_move::check::{self, Allowed};
use hetckpt_move::snapshot::Snapshot;
use hetckpt_supervise::namespaces::create::{Job, run_inside};

use super::code_of;
use crate::arguments::Check;
use crate::findings;
use crate::located::Located;

/// Prints what was found. The status is 1 if there is a problem.
pub fn run(options: &Check) -> anyhow::Result<ExitCode> {
    if let Some(outcome) = run_inside(options.adaptation.namespaces, &Job::default())? {
        return Ok(code_of(outcome));
    }
    let found = Located::find(&options.snapshot, &options.key)?;
    let snapshot = Snapshot::open(found.path())?;
    let allowed = Allowed {
        adaptation: &options.adaptation,
        outside: options.outside,
    };
    let findings = check::examine(&snapshot, &options.device, options.any_processor, &allowed)?;
    Ok(findings::report(&findings, options.json))
}

//! `hetckpt doctor`: can this machine dump and restore, or can a process be dumped, and if not, what is to be done?

use std::process::ExitCode;

use hetckpt_move::doctor;

use crate::arguments::Doctor;
use crate::findings;

/// Prints what was found. The status is 1 if there is a problem.
pub fn run(options: &Doctor) -> anyhow::Result<ExitCode> {
    let found = match options.pid {
        Some(pid) => doctor::process::examine(pid, options.time)?,
        None => doctor::examine(),
    };
    Ok(findings::report(&found, options.json))
}

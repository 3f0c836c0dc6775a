//! `hetckpt doctor`: can this machine dump and restore, and if not, what is to be done?

use std::process::ExitCode;

use hetckpt_move::doctor;

use crate::arguments::Doctor;
use crate::findings;

/// Prints what was found. The status is 1 if there is a problem.
pub fn run(options: &Doctor) -> anyhow::Result<ExitCode> {
    Ok(findings::report(&doctor::examine(), options.json))
}

//! `hetckpt doctor`: can this machine dump and restore, and if not, what is to be done?

use std::process::ExitCode;

use crate::cli::Doctor;
use crate::{doctor, finding};

/// Prints what was found. The status is 1 if there is a problem.
pub fn run(options: Doctor) -> anyhow::Result<ExitCode> {
    Ok(finding::report(&doctor::examine(), options.json))
}

//! `hetckpt run`: starts a program under the shim and stands in for it.

use std::process::ExitCode;

use crate::cli::{Launch, Run};
use crate::commands::devices;
use crate::install::Installation;
use crate::namespaces::create::{Job, run_inside};
use crate::supervise;

/// Runs the program and passes on its exit status.
pub fn run(options: Run) -> anyhow::Result<ExitCode> {
    let job = Job {
        detach: false,
        pid_file: options.pid_file.as_deref(),
    };
    if let Some(code) = run_inside(options.namespaces, &job)? {
        return Ok(code);
    }
    let installation = Installation::find()?;
    devices::require(&installation, &options.device)?;
    Ok(supervise::run(
        &installation,
        &options.device,
        &options.command,
        options.pid_file.as_deref(),
    )?)
}

/// The second half of [`run`], in the child process.
pub fn launch(options: Launch) -> anyhow::Result<ExitCode> {
    Err(supervise::launch(&options.command, options.inside).into())
}

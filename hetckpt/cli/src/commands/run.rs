//! `hetckpt run`: start a program under the shim and stand in for it.

use std::process::ExitCode;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use hetckpt_move::devices;
use hetckpt_report::installation::Installation;
use hetckpt_supervise::namespaces::create::{Job, run_inside};
use hetckpt_supervise::stand_in;

use super::code_of;
use crate::arguments::Run;

/// Runs the program and passes on its exit status.
pub fn run(options: &Run) -> anyhow::Result<ExitCode> {
    if options.end_with_starter {
        set_pdeathsig(Signal::SIGKILL)?;
    }
    let pid_file = options.pid_file.as_deref();
    let job = Job {
        detach: false,
        pid_file,
    };
    if let Some(outcome) = run_inside(options.namespaces, &job)? {
        return Ok(code_of(outcome));
    }
    let installation = Installation::find()?;
    devices::require(&options.device)?;
    Ok(stand_in::run(
        &installation,
        &options.device,
        options.virtual_gpu,
        &options.command,
        pid_file,
        options.job.as_deref(),
    )?)
}

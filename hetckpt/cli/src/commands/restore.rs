//! `hetckpt restore`: resume a program from an archive, or from a folder of images.

use std::process::ExitCode;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use hetckpt_move::restore;
use hetckpt_supervise::namespaces::create::{Job, run_inside};

use super::code_of;
use crate::arguments::Restore;
use crate::located;

/// Restores the program and, unless detached, stands in for it.
pub fn run(options: &Restore) -> anyhow::Result<ExitCode> {
    if options.end_with_starter {
        set_pdeathsig(Signal::SIGKILL)?;
    }
    let job = Job {
        detach: options.detach,
        pid_file: options.pid_file.as_deref(),
    };
    let outcome = match run_inside(options.adaptation.namespaces, &job)? {
        Some(outcome) => outcome,
        None => {
            let given = located::in_place(&options.snapshot, &options.key)?;
            restore::restore(&options.how(&given))?
        }
    };
    Ok(code_of(outcome))
}

//! Exit codes: 0 done, 1 failed, 2 usage, 3 not supported here; `run`, `restore` and `criu` pass on the program's own code
//! and use 125 for our own failures, `run` 126 and 127 for a program that cannot be started or is not there, as `env` and `timeout` do.

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::diagnostic::Failure;

/// The command failed.
pub const FAILED: u8 = 1;
/// The command line was wrong.
pub const USAGE: u8 = 2;
/// This machine, or this program, cannot do it.
pub const UNSUPPORTED: u8 = 3;
/// `run`, `restore` or `criu` failed before the program could say anything.
pub const OWN_FAILURE: u8 = 125;

/// `run` could not start the program, which is there.
pub const NOT_RUN: u8 = 126;
/// `run` has found no such program.
pub const NOT_FOUND: u8 = 127;

/// Code for a failure of ours under `command`.
pub fn own_failure_code(command: &Command) -> u8 {
    match command {
        Command::Run(_) | Command::Launch(_) | Command::Criu(_) => OWN_FAILURE,
        // It stands in for the command within.
        Command::Init(options) => {
            let inner = std::iter::once("hetckpt".into()).chain(options.command.iter().cloned());
            Cli::try_parse_from::<_, std::ffi::OsString>(inner)
                .map_or(OWN_FAILURE, |cli| own_failure_code(&cli.command))
        }
        Command::Restore(options) if !options.detach => OWN_FAILURE,
        _ => FAILED,
    }
}

/// The status that a failure has of its own.
pub fn own_status(error: &anyhow::Error) -> Option<u8> {
    error.downcast_ref::<Failure>()?.exit
}

/// True if the failure is of the kind "not supported here".
pub fn is_unsupported(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<Failure>()
        .is_some_and(|failure| failure.unsupported)
}

/// Code for what clap found.
pub fn from_clap(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        ExitCode::from(USAGE)
    } else {
        ExitCode::SUCCESS
    }
}

/// Code of a program that ended with `status`, as a shell gives it: its own, or 128 + the signal's number.
pub fn from_wait_status(status: std::process::ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_init_fails_as_the_command_within() {
        let code = |words: &str| {
            let line = format!("hetckpt {words}");
            own_failure_code(&Cli::try_parse_from(line.split(' ')).unwrap().command)
        };
        for (command, expected) in [
            ("check a.hetsnap", FAILED),
            ("restore --detach a.hetsnap", FAILED),
            ("restore a.hetsnap", OWN_FAILURE),
            ("run -- true", OWN_FAILURE),
        ] {
            assert_eq!(code(command), expected, "{command}");
            assert_eq!(code(&format!("__init /run/job -- {command}")), expected, "{command}");
        }
    }
}

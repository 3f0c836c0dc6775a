//! Which of the exit codes a command ends with ([`hetckpt_report::exit`]).

use std::process::ExitCode;

use clap::Parser;

use hetckpt_report::exit::{FAILED, OWN_FAILURE, USAGE};
use hetckpt_report::failure::Failure;

use crate::arguments::{Cli, Command};

/// Code for a failure of ours under `command`.
pub fn own_failure_code(command: &Command) -> u8 {
    match command {
        Command::Run(_) | Command::Job(_) | Command::Launch(_) | Command::Criu(_) => OWN_FAILURE,
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

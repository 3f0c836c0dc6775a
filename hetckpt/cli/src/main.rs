//! `hetckpt`: checkpoint and restore GPU programs, in the middle of their kernels.
//!
//! Each verb is one short file in `commands/`: parse, call, report. Only `output` prints.

mod arguments;
mod commands;
mod device_text;
mod exit;
mod findings;
mod manifest_text;
mod output;

use std::process::ExitCode;

use clap::Parser;

use hetckpt_report::{exit as codes, file_size};

use crate::arguments::Cli;

fn main() -> ExitCode {
    file_size::fail_past_the_limit();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout with 0, wrong usage to stderr with 2: clap knows which.
            let code = exit::from_clap(&error);
            output::clap(&error);
            return code;
        }
    };
    output::show_remarks(cli.verbose);
    let own_failure = exit::own_failure_code(&cli.command);
    let (is_json, only_tells) = (cli.command.is_json(), cli.command.only_tells());
    match commands::run(cli.command) {
        Ok(_) if only_tells && output::is_lost() => ExitCode::from(codes::FAILED),
        Ok(code) => code,
        Err(error) => {
            output::failure(&error);
            if is_json {
                output::json_failure(&error);
            }
            ExitCode::from(match exit::own_status(&error) {
                Some(status) => status,
                None if exit::is_unsupported(&error) && own_failure == codes::FAILED => codes::UNSUPPORTED,
                None => own_failure,
            })
        }
    }
}

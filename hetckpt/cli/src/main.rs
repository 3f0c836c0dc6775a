//! `hetckpt`: checkpoint and restore GPU programs, in the middle of their kernels.
//!
//! Each verb is one short file in `commands/`: parse, call, report. Only `output` prints.

mod arguments;
mod commands;
mod device_text;
mod choose_exit_code;
mod findings;
mod located;
mod manifest_text;
mod outgoing;
mod output;
mod store_arguments;
mod trace_text;

use std::process::ExitCode;

use clap::Parser;

use hetckpt_report::{exit as codes, file_size};

use crate::arguments::Cli;

fn main() -> ExitCode {
    file_size::fail_past_the_limit();
    let cli = match Cli::try_parse().and_then(Cli::checked) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout with 0, wrong usage to stderr with 2: clap knows which.
            let code = choose_exit_code::from_clap(&error);
            output::clap(&error);
            return code;
        }
    };
    output::show_remarks(cli.verbose);
    let own_failure = choose_exit_code::own_failure_code(&cli.command);
    let (is_json, only_tells) = (cli.command.is_json(), cli.command.only_tells());
    match commands::run(cli.command) {
        Ok(_) if only_tells && output::is_lost() => ExitCode::from(codes::FAILED),
        Ok(code) => code,
        Err(error) => {
            output::failure(&error);
            if is_json {
                output::json_failure(&error);
            }
            ExitCode::from(match choose_exit_code::own_status(&error) {
                Some(status) => status,
                None if choose_exit_code::is_unsupported(&error) && own_failure == codes::FAILED => codes::UNSUPPORTED,
                None => own_failure,
            })
        }
    }
}

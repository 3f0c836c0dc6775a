//! `hetckpt`: checkpoint and restore GPU programs, in the middle of their kernels.
//!
//! Each verb is one short file in `commands/`: parse, call, report. Only `output` prints.
//!
//! A library only for `main.rs` and for the fuzz targets of what reads bytes from outside ([`parsers`]): it promises nothing to anybody else.

#![allow(
    clippy::missing_errors_doc,
    reason = "nothing here is for others: the program and fuzz targets take what comes"
)]

mod cli;
mod exit;
mod file_size;
mod output;
mod diagnostic;
mod install;
mod target;
mod runtime_folder;
mod dump_lock;
mod stopped_tree;
mod obstacles;
mod not_kept;
mod capture;
mod migration;
mod result_file;
mod supervise;
mod namespaces;
mod server_client;
mod archive_error;
mod archive_name;
mod snapshot_files;
mod snapshot;
mod module_addresses;
mod criu;
mod carried;
mod interrupting;
mod finding;
mod doctor;
mod check;
mod commands;
#[doc(hidden)]
pub mod parsers;

use std::process::ExitCode;

use clap::Parser;

/// Does what the command line says.
#[doc(hidden)]
pub fn run() -> ExitCode {
    file_size::fail_past_the_limit();
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout with 0, wrong usage to stderr with 2: clap knows which.
            let code = exit::from_clap(&error);
            output::clap(&error);
            return code;
        }
    };
    output::set_verbosity(cli.verbose);
    let own_failure = exit::own_failure_code(&cli.command);
    let (is_json, only_tells) = (cli.command.is_json(), cli.command.only_tells());
    match commands::run(cli.command) {
        Ok(_) if only_tells && output::is_lost() => ExitCode::from(exit::FAILED),
        Ok(code) => code,
        Err(error) => {
            output::failure(&error);
            if is_json {
                output::json_failure(&error);
            }
            ExitCode::from(match exit::own_status(&error) {
                Some(status) => status,
                None if exit::is_unsupported(&error) && own_failure == exit::FAILED => exit::UNSUPPORTED,
                None => own_failure,
            })
        }
    }
}

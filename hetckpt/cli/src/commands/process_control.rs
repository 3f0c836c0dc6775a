//! The hidden verb by which our driver library answers CUDA's checkpoint functions: one line tells what came of it.

use std::process::ExitCode;

use hetckpt_supervise::namespaces::enter;
use hetckpt_supervise::process_control::{ProcessControl, act};

use crate::output;

/// Prints `ok STATE`, or `failed CODE MESSAGE`.
pub fn run(options: &ProcessControl) -> anyhow::Result<ExitCode> {
    let done = match enter::run_where(options.pid) {
        Ok(Some(code)) => return Ok(code),
        Ok(None) => act(options),
        Err(failure) => Err(failure),
    };
    output::line(match done {
        Ok(state) => format!("ok {state}"),
        Err(failure) => {
            let why = [vec![failure.message], failure.notes].concat().join("; ");
            format!("failed {} {}", failure.code, why.replace('\n', " "))
        }
    });
    Ok(ExitCode::SUCCESS)
}

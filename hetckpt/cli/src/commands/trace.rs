//! `hetckpt trace`: which driver calls a program makes, how often and how long.

use std::process::ExitCode;

use hetckpt_move::trace;

use crate::arguments::Trace;
use crate::{output, trace_text};

/// Traces and prints what was measured. The status is that of the program, if this command has started it.
pub fn run(options: &Trace) -> anyhow::Result<ExitCode> {
    let traced = match options.pid {
        Some(pid) => trace::process(pid, options.time)?,
        None => trace::command(&options.command, options.time)?,
    };
    match options.json {
        true => output::json(&traced.measured),
        false => trace_text::print(&traced.measured),
    }
    match traced.running {
        Some(program) => Ok(program.wait()?),
        None => Ok(traced.status),
    }
}

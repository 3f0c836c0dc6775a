//! `hetckpt trace`, and `hetckpt doctor` of a process, beside counts that are known from elsewhere.

mod calls;
mod doctor;
mod opencl;
mod reports;

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::runner::Test;
use hetckpt_e2e::sandbox::Sandbox;
use serde_json::Value;

/// The tests.
pub fn tests() -> Vec<Test> {
    let mut tests = opencl::tests();
    tests.extend(calls::tests());
    tests.extend(reports::tests());
    tests.extend(doctor::tests());
    // What a command does is traced by probes in all processes with the same libraries, which cannot be dumped
    // meanwhile.
    tests.into_iter().map(Test::alone).collect()
}

/// Writes `source` into the sandbox and compiles it.
fn compile(sandbox: &Sandbox, name: &str, source: &str, options: &[&str]) -> Result<PathBuf> {
    let (file, program) = (sandbox.path(&format!("{name}.c")), sandbox.path(name));
    fs::write(&file, source)?;
    let mut command = Command::new("gcc");
    command.args(["-O1", "-o"]).arg(&program).arg(&file);
    let output = command.args(options).output().context("gcc cannot be run")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "gcc refuses {name}.c: {words}");
    Ok(program)
}

/// The program of `driver_calls.c`.
fn compile_driver_calls(sandbox: &Sandbox) -> Result<PathBuf> {
    compile(sandbox, "driver_calls", include_str!("driver_calls.c"), &["-ldl"])
}

/// `hetckpt trace --json -- PROGRAM`, whose own output goes to stderr.
fn trace_command<I: AsRef<OsStr>>(sandbox: &Sandbox, program: impl IntoIterator<Item = I>) -> Command {
    let shell = ["trace", "--json", "--", "sh", "-c", "exec \"$@\" >&2", "sh"];
    let mut command = hetckpt::command(sandbox, shell);
    command.args(program);
    command
}

/// Runs that, and gives what was measured too.
fn traced(command: Command) -> Result<(Outcome, Value)> {
    let outcome = Running::run(command, PATIENCE)?;
    let measured = serde_json::from_str(&outcome.stdout)
        .with_context(|| format!("trace --json prints no JSON: {}", outcome.text()))?;
    Ok((outcome, measured))
}

/// The list `name` of a report.
fn list<'a>(measured: &'a Value, name: &str) -> Result<&'a Vec<Value>> {
    measured[name]
        .as_array()
        .with_context(|| format!("no {name}: {measured}"))
}

/// The row of the list `rows` that is called `name`.
fn named<'a>(measured: &'a Value, rows: &str, name: &str) -> Result<&'a Value> {
    let found = list(measured, rows)?.iter().find(|row| row["name"] == name);
    found.with_context(|| format!("{rows} has no {name}: {measured}"))
}

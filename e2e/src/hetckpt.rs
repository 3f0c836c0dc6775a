//! The verbs of the command line under test, each with a limit.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::installation::Installation;
use crate::process::{Outcome, Running};
use crate::sandbox::Sandbox;

/// Limit for anything that ought to take a second or two. Machines that run tests are slow at times.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// `hetckpt` with the sandbox's environment and the given arguments.
pub fn command<I: AsRef<OsStr>>(sandbox: &Sandbox, arguments: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(Installation::get().hetckpt());
    sandbox.equip(&mut command);
    command.args(arguments);
    command
}

/// Runs a verb to its end.
///
/// # Errors
/// If it cannot be started or does not end; its exit code is the caller's business.
pub fn run<I: AsRef<OsStr>>(sandbox: &Sandbox, arguments: impl IntoIterator<Item = I>) -> Result<Outcome> {
    Running::run(command(sandbox, arguments), PATIENCE)
}

/// `hetckpt dump --force --pid PID -o FILE --json`, whatever its outcome.
///
/// # Errors
/// If it cannot be started or does not end.
pub fn dump(sandbox: &Sandbox, pid: i32, archive: &Path, leave_running: bool) -> Result<Outcome> {
    let mut command = command(sandbox, ["dump", "--json", "--force", "--pid", &pid.to_string(), "-o"]);
    command.arg(archive);
    if leave_running {
        command.arg("--leave-running");
    }
    Running::run(command, PATIENCE)
}

/// `hetckpt restore FILE --device DEVICE`, still running. It writes `timings.json` and `pid` into the sandbox once the
/// program runs.
///
/// # Errors
/// If it cannot be started.
pub fn restore(sandbox: &Sandbox, archive: &Path, device: &str) -> Result<Running> {
    let mut command = command(sandbox, ["restore", "--device", device]);
    command.arg("--timings").arg(sandbox.path("timings.json"));
    command.arg("--pid-file").arg(sandbox.path("pid")).arg(archive);
    Running::start(command)
}

/// `hetckpt inspect --json FILE`.
///
/// # Errors
/// If it fails.
pub fn inspect(sandbox: &Sandbox, archive: &Path) -> Result<Value> {
    let mut command = command(sandbox, ["inspect", "--json", "--verify"]);
    command.arg(archive);
    let outcome = Running::run(command, PATIENCE)?.success("inspect")?;
    serde_json::from_str(&outcome.stdout).context("inspect --json prints no JSON")
}

/// The rows of `hetckpt ps --json`.
///
/// # Errors
/// If `ps` fails.
pub fn ps(sandbox: &Sandbox) -> Result<Vec<Value>> {
    let outcome = run(sandbox, ["ps", "--json"])?.success("ps")?;
    serde_json::from_str(&outcome.stdout).context("ps --json prints no JSON list")
}

/// The row of `hetckpt ps --json` for `pid`, if it has a device server.
///
/// # Errors
/// If `ps` fails.
pub fn ps_row(sandbox: &Sandbox, pid: i32) -> Result<Option<Value>> {
    Ok(ps(sandbox)?.into_iter().find(|row| row["pid"] == pid))
}

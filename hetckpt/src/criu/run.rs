//! Runs CRIU and finds the reason in its log when it fails.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::criu::locate::Criu;
use crate::diagnostic::Failure;

/// What CRIU is to do.
pub struct Call<'a> {
    /// `dump`, `restore`.
    pub verb: &'a str,
    /// The folder of the images.
    pub images: &'a Path,
    /// Where CRIU puts its log, `VERB.log`, and its statistics.
    pub work_folder: &'a Path,
    /// More arguments.
    pub arguments: &'a [OsString],
    /// Added to our environment; a shim that this process may itself run under is kept away from CRIU.
    pub environment: &'a [(&'a str, OsString)],
    /// Our stdin, a terminal, is handed on.
    pub needs_terminal: bool,
    /// Code of the failure, if it fails.
    pub failure_code: &'static str,
}

/// Runs CRIU and waits for it.
pub fn run(criu: &Criu, call: &Call<'_>) -> Result<(), Failure> {
    let log = call.work_folder.join(format!("{}.log", call.verb));
    let mut command = Command::new(&criu.program);
    command
        .arg(call.verb)
        .arg("-D")
        .arg(call.images)
        .arg("-W")
        .arg(call.work_folder)
        .arg("-o")
        .arg(&log)
        .arg("-v4")
        .args(call.arguments);
    if !nix::unistd::geteuid().is_root() {
        command.arg("--unprivileged");
    }
    command
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD")
        .stdin(if call.needs_terminal {
            Stdio::inherit()
        } else {
            Stdio::null()
        });
    for (name, value) in call.environment {
        command.env(name, value);
    }
    let failed = |reason: String| Failure::new(call.failure_code, format!("criu {} failed: {reason}", call.verb));
    let output = command.output().map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let reason = first_error(&log).unwrap_or_else(|| format!("{}", output.status));
    let mut failure = failed(reason);
    for line in String::from_utf8_lossy(&output.stderr)
        .lines()
        .filter(|l| l.contains("hetgpu"))
        .take(4)
    {
        failure = failure.note(line.trim().to_owned());
    }
    Err(failure)
}

/// The first line in a CRIU log that tells what went wrong: our plugin's words before CRIU's own.
fn first_error(log: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&fs::read(log).ok()?).into_owned();
    let errors: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("Error (") || line.contains("hetgpu: error:"))
        // CRIU says these at level Error and carries on.
        .filter(|line| {
            !["Unable to set", "RLIMIT_NOFILE", "tun:", "net:"]
                .iter()
                .any(|harmless| line.contains(harmless))
        })
        .collect();
    let line = errors
        .iter()
        .find(|line| line.contains("hetgpu: error:"))
        .or(errors.first())?;
    // `(00.012345) Error (criu/files.c:12): message` → message
    let message = line
        .split_once("hetgpu: error: ")
        .map(|(_, m)| m)
        .or_else(|| line.split_once("): ").map(|(_, m)| m));
    Some(message.unwrap_or(line).trim().to_owned())
}

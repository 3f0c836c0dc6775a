//! Runs CRIU and finds the reason in its log when it fails.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::criu::locate::Criu;
use crate::diagnostic::Failure;

/// Runs `criu VERB -D folder …` with its log in `folder/VERB.log`, and waits for it.
///
/// `environment` is added to ours; a shim that this process may itself run under is kept away from CRIU.
pub fn run(
    criu: &Criu,
    verb: &str,
    folder: &Path,
    arguments: &[OsString],
    environment: &[(&str, OsString)],
    failure_code: &'static str,
) -> Result<(), Failure> {
    let log = folder.join(format!("{verb}.log"));
    let mut command = Command::new(&criu.program);
    command
        .arg(verb)
        .arg("-D")
        .arg(folder)
        .arg("-o")
        .arg(&log)
        .arg("-v4")
        .args(arguments);
    if !nix::unistd::geteuid().is_root() {
        command.arg("--unprivileged");
    }
    command
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null());
    for (name, value) in environment {
        command.env(name, value);
    }
    let failed = |reason: String| Failure::new(failure_code, format!("criu {verb} failed: {reason}"));
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

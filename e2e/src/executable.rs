//! Files that are run once they are there.
//!
//! Another process writes them. If this one did, a child that another thread starts meanwhile would have the file open
//! too, until it runs its own program. The kernel does not run what a process has open for writing (`ETXTBSY`).

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Writes `text`, a script for example, to `path`.
///
/// # Errors
/// If it cannot be written.
pub fn write(path: &Path, text: &str) -> Result<()> {
    install(Path::new("/dev/stdin"), text, path)
}

/// Copies a file that can be run.
///
/// # Errors
/// If it cannot be read or written.
pub fn copy(source: &Path, path: &Path) -> Result<()> {
    install(source, "", path)
}

fn install(source: &Path, input: &str, path: &Path) -> Result<()> {
    let mut install = Command::new("install");
    install.args(["--mode", "755", "--"]).arg(source).arg(path);
    install.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut install = install.spawn().context("install cannot be run")?;
    let mut stdin = install.stdin.take().context("install has no stdin")?;
    stdin.write_all(input.as_bytes())?;
    drop(stdin);
    let output = install.wait_with_output()?;
    ensure!(
        output.status.success(),
        "cannot write {}: {}",
        path.display(),
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(())
}

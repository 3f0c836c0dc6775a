//! Programs with nothing but the shim, and CRIU with nothing but the plugin: no command line of ours takes part.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::baseline::Baseline;
use crate::early_end;
use crate::hetckpt::PATIENCE;
use crate::installation::Installation;
use crate::process::{Outcome, Running};
use crate::program::PACED;
use crate::sandbox::{Sandbox, is_gone};

/// A program started with nothing but the shim on its library path, writing to the files `out` and `err`.
#[derive(Debug)]
pub struct Program {
    child: Child,
}

impl Program {
    /// Starts `command` and waits until it has launched its kernel.
    ///
    /// # Errors
    /// If it cannot be started, or launches none.
    pub fn start(sandbox: &Sandbox, command: &[OsString]) -> Result<Self> {
        let program = Self::begin(sandbox, command, &[])?;
        wait_for_kernel(sandbox)?;
        Ok(program)
    }

    /// Starts `command` and waits for nothing.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn begin(sandbox: &Sandbox, command: &[OsString], environment: &[(&str, &Path)]) -> Result<Self> {
        // A session of its own spares CRIU the terminal.
        let mut setsid = Command::new("setsid");
        setsid.args(command);
        with_shim(sandbox, &mut setsid);
        setsid.envs(environment.iter().copied());
        setsid.stdin(Stdio::null());
        setsid
            .stdout(File::create(sandbox.path("out"))?)
            .stderr(File::create(sandbox.path("err"))?);
        let child = setsid.spawn().context("cannot start setsid")?;
        Ok(Self { child })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(-1)
    }

    /// Its exit code, once it has ended; 128 + the signal's number if a signal ended it.
    ///
    /// # Errors
    /// If it does not end.
    pub fn finish(mut self) -> Result<i32> {
        early_end::process(self.pid());
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(crate::process::exit_code(status));
            }
            ensure!(Instant::now() < deadline, "process {} does not end", self.pid());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Dumped ones are dead; either way their entry must go.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Gives `command` the test's environment, with the shim and the device that programs start on.
pub fn with_shim(sandbox: &Sandbox, command: &mut Command) {
    sandbox.equip(command);
    command
        .env("LD_LIBRARY_PATH", Installation::get().shim_folder())
        .env("HETCKPT_DEVICE", Installation::from_device());
}

/// Waits until the program that writes its errors to the file `err` has launched its kernel.
///
/// # Errors
/// If it does not.
pub fn wait_for_kernel(sandbox: &Sandbox) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(sandbox.path("err")).is_ok_and(|said| said.contains("launched")) {
        ensure!(Instant::now() < deadline, "the program does not launch its kernel");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(300));
    Ok(())
}

/// The command line of [`PACED`] that tells when it has launched its kernel.
#[must_use]
pub fn paced(length: u64) -> Vec<OsString> {
    let mut command = PACED.command(length);
    command.push("--progress".into());
    command
}

/// [`PACED`] of the given length, once its kernel runs.
///
/// # Errors
/// As [`Program::start`].
pub fn start_paced(sandbox: &Sandbox, length: u64) -> Result<Program> {
    Program::start(sandbox, &paced(length))
}

/// `criu VERB` with the image folder `images` of the sandbox and the plugins of `folder`.
///
/// # Errors
/// If the image folder cannot be made.
pub fn criu_command(sandbox: &Sandbox, verb: &str, folder: &Path) -> Result<Command> {
    let images = sandbox.path("images");
    fs::create_dir_all(&images)?;
    let mut command = Command::new(&Installation::get().criu);
    sandbox.equip(&mut command);
    command
        .args([verb, "-v4", "-o"])
        .arg(format!("{verb}.log"))
        .arg("-D")
        .arg(&images)
        .arg("--libdir")
        .arg(folder)
        .env("HETCKPT_DEVICE", Installation::to_device());
    Ok(command)
}

/// Runs `criu VERB` with the image folder `images` of the sandbox, and `more`.
///
/// # Errors
/// If CRIU cannot be started or does not end.
pub fn criu(sandbox: &Sandbox, verb: &str, with_plugin: bool, more: &[&str]) -> Result<Outcome> {
    let folder = match with_plugin {
        true => Installation::get().plugin_folder(),
        // A folder without plugins: else CRIU looks for them in the system's.
        false => no_plugins(sandbox)?,
    };
    let mut command = criu_command(sandbox, verb, &folder)?;
    command.args(more);
    Running::run(command, PATIENCE)
}

/// A folder without plugins.
///
/// # Errors
/// If it cannot be made.
pub fn no_plugins(sandbox: &Sandbox) -> Result<PathBuf> {
    let folder = sandbox.path("no-plugins");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Waits until process `pid` has ended.
///
/// # Errors
/// If it does not.
pub fn wait_until_gone(pid: i32) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    early_end::process(pid);
    while !is_gone(pid) {
        ensure!(Instant::now() < deadline, "process {pid} does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Waits until the id of process `pid`, which is no child of this one, is free: whoever has adopted it takes note of
/// its end when it likes.
///
/// # Errors
/// If it stays in use.
pub fn wait_until_reaped(pid: i32) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while Path::new(&format!("/proc/{pid}")).exists() {
        ensure!(Instant::now() < deadline, "process {pid} does not go");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Makes sure that `file` holds `expected`.
///
/// # Errors
/// If it does not.
pub fn ensure_same(file: &Path, expected: &str) -> Result<()> {
    let printed = fs::read_to_string(file)?;
    ensure!(
        printed == expected,
        "wanted {expected:?}, the program printed {printed:?}"
    );
    Ok(())
}

/// Makes sure that `program`, which a dump has ended, is gone with its device server and has not come to its result.
///
/// # Errors
/// If it is not, or has.
pub fn ensure_dumped(sandbox: &Sandbox, program: Program) -> Result<()> {
    let pid = program.pid();
    drop(program);
    ensure!(is_gone(pid), "process {pid} still runs after the dump");
    sandbox
        .wait_until_empty(Duration::from_secs(10))
        .context("after the dump")?;
    ensure_same(&sandbox.path("out"), "").context("it ended before the dump")
}

/// Makes sure that process `pid`, which has been restored, comes to the right result and leaves nothing running.
///
/// # Errors
/// If it does not.
pub fn ensure_ends_right(sandbox: &Sandbox, pid: i32, baseline: &Baseline) -> Result<()> {
    wait_until_gone(pid)?;
    ensure_same(&sandbox.path("out"), &baseline.outcome.stdout)?;
    sandbox
        .wait_until_empty(Duration::from_secs(10))
        .context("after the program's end")
}

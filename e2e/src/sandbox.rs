//! A test's own folder and environment. Whatever process a test leaves behind is found by that environment and ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::installation::Installation;
use crate::user;

/// The variable that device servers find their folder by, and this harness its processes.
const RUNTIME_DIR: &str = "HETCKPT_RUNTIME_DIR";

/// A folder, and everything that runs with it as its runtime directory.
#[derive(Debug)]
pub struct Sandbox {
    folder: TempDir,
    variables: Vec<(&'static str, &'static str)>,
}

impl Sandbox {
    /// Makes one.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn new() -> Result<Self> {
        // Short, because the sockets' paths have 107 bytes at most.
        let folder = tempfile::Builder::new()
            .prefix("hk-")
            .tempdir()
            .context("cannot make a folder for the test")?;
        fs::create_dir(folder.path().join("run"))?;
        let sandbox = Self {
            folder,
            variables: Vec::new(),
        };
        sandbox.give(sandbox.folder.path())?;
        sandbox.give(&sandbox.runtime_dir())?;
        Ok(sandbox)
    }

    /// Makes a file or a folder the property of the user that what is tested runs as ([`user`]).
    ///
    /// # Errors
    /// If that is refused.
    pub fn give(&self, path: &Path) -> Result<()> {
        let Some(user) = user::tested() else { return Ok(()) };
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        std::os::unix::fs::lchown(path, Some(uid), Some(gid)).with_context(|| format!("chown of {}", path.display()))
    }

    /// Sets a variable for whatever is started from now on.
    pub fn set(&mut self, name: &'static str, value: &'static str) {
        self.variables.push((name, value));
    }

    /// A file of this test.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Files of this test whose names end in `.` and `extension`.
    #[must_use]
    pub fn files(&self, extension: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path()).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == extension))
            .collect()
    }

    /// The runtime directory.
    #[must_use]
    pub fn runtime_dir(&self) -> PathBuf {
        self.path("run")
    }

    /// Gives `command` the test's environment, folder and user.
    pub fn equip(&self, command: &mut Command) {
        self.equip_for_root(command);
        user::equip(command);
    }

    /// As [`Self::equip`], for a command that becomes that user itself, or must not.
    pub fn equip_for_root(&self, command: &mut Command) {
        let installation = Installation::get();
        command.env(RUNTIME_DIR, self.runtime_dir());
        command.envs(self.variables.iter().copied());
        command.env("HETCKPT_CACHE_DIR", installation.state.join("translations"));
        command.env("HETCKPT_CRIU", &installation.criu);
        // What a user's shell may have set must not decide what is tested.
        for name in [
            "HETCKPT_DEVICE",
            "HETCKPT_SERVER",
            "HETCKPT_CPU_CODEGEN",
            "LD_LIBRARY_PATH",
            "LD_PRELOAD",
        ] {
            command.env_remove(name);
        }
        command.current_dir(self.folder.path());
    }

    /// Processes (zombies aside) that were started with this test's environment, or by one that was.
    #[must_use]
    pub fn processes(&self) -> Vec<i32> {
        processes_of(&self.runtime_dir())
    }

    /// Waits until nothing of this test runs any more.
    ///
    /// # Errors
    /// If something still does after `limit`; it is named.
    pub fn wait_until_empty(&self, limit: Duration) -> Result<()> {
        self.wait_until_none(limit, |_, _| true)
    }

    /// As [`Self::wait_until_empty`], but for those, of all, that `counts` leaves out.
    ///
    /// # Errors
    /// As there.
    pub fn wait_until_none(&self, limit: Duration, counts: impl Fn(i32, &[i32]) -> bool) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let all = self.processes();
            let left: Vec<i32> = all.iter().copied().filter(|&pid| counts(pid, &all)).collect();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let names: Vec<String> = left.iter().map(|&pid| describe(pid)).collect();
                bail!("still running after {limit:?}: {}", names.join("; "));
            }
            std::thread::sleep(Duration::from_millis(25));
        }
    }

    /// Kills whatever of this test runs.
    pub fn kill_all(&self) {
        kill_processes_of(&self.runtime_dir());
    }

    /// The end of each log in the sandbox, for the report of a failed test.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut text = String::new();
        collect_logs(self.folder.path(), &mut text);
        text
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// Processes whose environment has `runtime_dir`.
fn processes_of(runtime_dir: &Path) -> Vec<i32> {
    let mark = format!("{RUNTIME_DIR}={}", runtime_dir.display()).into_bytes();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|entry| entry == mark)
    })
    .collect()
}

/// Kills the processes whose environment has `runtime_dir`, and those that they start meanwhile.
pub fn kill_processes_of(runtime_dir: &Path) {
    for _ in 0..3 {
        for pid in processes_of(runtime_dir) {
            // One that ended meanwhile needs no signal.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// True if no process `pid` runs (a zombie does not).
#[must_use]
pub fn is_gone(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold anything.
    stat.rsplit_once(") ")
        .is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

fn describe(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!("{pid} ({})", String::from_utf8_lossy(&bytes).replace('\0', " ").trim())
}

fn collect_logs(folder: &Path, text: &mut String) {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect_logs(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "log") {
            let content = String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
            let lines: Vec<&str> = content.lines().collect();
            text.push_str(&format!("--- {}\n", path.display()));
            for line in &lines[lines.len().saturating_sub(30)..] {
                text.push_str(&format!("    {line}\n"));
            }
        }
    }
}

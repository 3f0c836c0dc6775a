//! A program on this machine that is to move, and `hetckpt migrate`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use hetckpt_e2e::baseline::Baseline;
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::Program;
use hetckpt_e2e::sandbox::{Sandbox, is_gone};

use super::authority::Files;
use super::node::Node;

/// A program under `hetckpt run`, with a kernel in flight.
pub struct Source<'a> {
    sandbox: &'a Sandbox,
    supervisor: Running,
    /// Its process id.
    pub pid: i32,
    /// An uninterrupted run.
    pub baseline: Baseline,
}

impl<'a> Source<'a> {
    /// Starts `program` on `device`.
    pub fn start(sandbox: &'a Sandbox, program: &Program, device: &str) -> Result<Self> {
        let baseline = calibration::baseline_on(device, program)?;
        Self::start_again(sandbox, program, device, baseline)
    }

    /// As [`Source::start`], with what an uninterrupted run is known to print.
    pub fn start_again(sandbox: &'a Sandbox, program: &Program, device: &str, baseline: Baseline) -> Result<Self> {
        let pid_file = sandbox.path("source.pid");
        // Left by an earlier program of this test.
        let _ = fs::remove_file(&pid_file);
        let mut command = hetckpt::command(sandbox, ["run", "--device", device, "--pid-file"]);
        command.arg(&pid_file).arg("--").args(program.command(baseline.length));
        // A folder that both nodes have.
        command.current_dir("/");
        let mut supervisor = Running::start(command)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = fs::read_to_string(&pid_file).unwrap_or_default();
            let pid = text.strip_suffix('\n').and_then(|digits| digits.parse().ok());
            if let Some(pid) = pid
                && hetckpt::ps_row(sandbox, pid)?.is_some_and(|row| row["running_kernels"] != 0)
            {
                return Ok(Self {
                    sandbox,
                    supervisor,
                    pid,
                    baseline,
                });
            }
            if supervisor.has_ended()? || Instant::now() > deadline {
                bail!("no kernel comes to run: {}", supervisor.said());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// `hetckpt migrate` of it to `node`, which trusts whom this node's authority trusts.
    pub fn migrate(&self, node: &Node<'_>) -> Result<Command> {
        self.migrate_as(node, &node.authority.sign("source")?)
    }

    /// As [`Source::migrate`], with other files.
    pub fn migrate_as(&self, node: &Node<'_>, files: &Files) -> Result<Command> {
        migrate(self.sandbox, self.pid, node, files)
    }

    /// Its process id as it knows itself, which its images have.
    pub fn own_name(&self) -> i32 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let names = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let own = names.and_then(|names| names.split_whitespace().last()?.parse().ok());
        own.unwrap_or(self.pid)
    }

    /// Where migrations make their folders.
    pub fn scratch(&self) -> PathBuf {
        scratch(self.sandbox)
    }

    /// True once it has ended, or gone.
    pub fn is_gone(&self) -> bool {
        is_gone(self.pid)
    }

    /// Waits for the end of what stands in for it here.
    pub fn wait(self) -> Result<Outcome> {
        self.supervisor.wait(PATIENCE)
    }

    /// Makes sure that it runs on here, to the right result, and that a failed migration has left nothing.
    pub fn ensure_runs_on(self) -> Result<()> {
        let (expected, scratch) = (self.baseline.outcome.clone(), self.scratch());
        let outcome = self.wait()?;
        ensure!(outcome == expected, "it did not run on: {}", outcome.text());
        // A guardian cleans up when it has told the target.
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left: Vec<_> = fs::read_dir(&scratch)?.flatten().collect();
            if left.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the migration left {left:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// `hetckpt migrate` of process `pid` to `node`, with the certificate of `files`.
pub fn migrate(sandbox: &Sandbox, pid: i32, node: &Node<'_>, files: &Files) -> Result<Command> {
    let mut command = hetckpt::command(sandbox, ["migrate", "--pid", &pid.to_string(), "--to"]);
    command.arg(node.address()).args(files.options());
    let scratch = scratch(sandbox);
    fs::create_dir_all(&scratch)?;
    sandbox.give(&scratch)?;
    command.arg("--scratch").arg(scratch);
    Ok(command)
}

fn scratch(sandbox: &Sandbox) -> PathBuf {
    sandbox.path("scratch")
}

/// Runs `migrate`, which is to fail as `code`, in words that have all `parts`, with the program running on.
pub fn ensure_fails(command: Command, code: &str, parts: &[&str]) -> Result<()> {
    let outcome = Running::run(command, PATIENCE)?;
    ensure!(
        outcome.code != 0 && outcome.stderr.contains(&format!("error[{code}]")),
        "the failure was to be {code}: {}",
        outcome.text()
    );
    for part in parts.iter().chain(&["runs on here"]) {
        ensure!(
            outcome.stderr.contains(part),
            "`{part}` was to be said: {}",
            outcome.text()
        );
    }
    Ok(())
}

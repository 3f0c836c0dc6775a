//! The trees under test: how each is started, how long it runs by itself and what it then prints.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::executable;
use hetckpt_e2e::hetckpt;
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::job::{Job, POLL_INTERVAL};
use hetckpt_e2e::once_per_key::OncePerKey;
use hetckpt_e2e::process::Outcome;
use hetckpt_e2e::sandbox::Sandbox;
use serde_json::Value;

/// What a run is to take beside its start, so that a random moment lies within its kernels.
const WANTED: Duration = Duration::from_millis(4000);
/// Steps of a run that is measured first.
const SHORT: u64 = 4;
/// Steps of the longest.
const MOST_STEPS: u64 = 4000;

/// A tree of processes.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    /// For the tests' names.
    pub name: &'static str,
    /// What is started.
    start: Start,
    /// Processes with a device server while all are at work; 0 if that cannot be told.
    pub num_servers: usize,
}

#[derive(Clone, Copy, Debug)]
enum Start {
    /// A test program with these arguments; its length is `--iterations`.
    Program(&'static str, &'static [&'static str]),
    /// A shell script; `PROGRAMS` stands for the folder of the programs, `LENGTH` for the length.
    Script(&'static str),
}

/// Parent and workers, all with kernels, and processes that hold the library and do not use it.
pub const WORKERS: Tree = Tree {
    name: "parent_and_workers",
    start: Start::Program("worker_tree", &["--workers", "2", "--idle", "2"]),
    num_servers: 3,
};

/// Its root adopts orphans, so the device servers belong to it.
pub const ADOPTS: Tree = Tree {
    name: "root_adopts_orphans",
    start: Start::Program("worker_tree", &["--workers", "1", "--adopts", "1"]),
    num_servers: 2,
};

/// Only grandchildren and children work, not the root.
pub const CHILDREN_ONLY: Tree = Tree {
    name: "children_only",
    start: Start::Program("worker_tree", &["--parent", "0", "--workers", "2", "--depth", "2"]),
    num_servers: 4,
};

/// A shell that starts one program after another, and two side by side.
pub const SHELL: Tree = Tree {
    name: "shell_script",
    start: Start::Script(
        "PROGRAMS/paced --iterations LENGTH || exit\n\
         PROGRAMS/worker_tree --workers 1 --launches 2 --iterations LENGTH >/dev/null & side=$!\n\
         PROGRAMS/matmul --n 64 --iterations 2 || exit\n\
         PROGRAMS/paced --iterations LENGTH --blocks 32 || exit\n\
         wait $side && echo side PASS",
    ),
    num_servers: 0,
};

/// Forks when the device is in use; the children's calls are refused.
pub const FORKS_LATE: Tree = Tree {
    name: "fork_after_init",
    start: Start::Program("fork_after_init", &[]),
    num_servers: 1,
};

/// The same, and the children then become CUDA programs.
pub const FORKS_LATE_AND_EXECS: Tree = Tree {
    name: "fork_after_init_then_exec",
    start: Start::Program("fork_after_init", &["--exec", "1", "--child-ms", "100"]),
    num_servers: 0,
};

/// One process that becomes another CUDA program when its kernel is done.
pub const EXECS: Tree = Tree {
    name: "exec_of_the_next_program",
    start: Start::Program("exec_chain", &["--execs", "3"]),
    num_servers: 1,
};

/// The same without waiting for the kernel.
pub const EXECS_AMID_KERNELS: Tree = Tree {
    name: "exec_amid_kernels",
    start: Start::Program("exec_chain", &["--execs", "8", "--wait", "0"]),
    num_servers: 1,
};

/// Threads in all calls that wait.
pub const THREADS: Tree = Tree {
    name: "threads_blocked_in_calls",
    start: Start::Program("blocked_threads", &["--threads", "18", "--send-mib", "24"]),
    num_servers: 1,
};

/// All of them.
pub const ALL: [Tree; 8] = [
    WORKERS,
    CHILDREN_ONLY,
    SHELL,
    FORKS_LATE,
    FORKS_LATE_AND_EXECS,
    EXECS,
    EXECS_AMID_KERNELS,
    THREADS,
];

/// An uninterrupted run.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// The length.
    pub length: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub duration: Duration,
}

impl Tree {
    /// The command line that starts it.
    ///
    /// # Errors
    /// If its script cannot be written into the sandbox.
    pub fn command(&self, sandbox: &Sandbox, length: u64) -> Result<Vec<OsString>> {
        let programs = &Installation::get().programs;
        match self.start {
            Start::Program(name, arguments) => {
                let mut command = vec![programs.join(name).into_os_string()];
                command.extend(arguments.iter().map(OsString::from));
                command.extend(["--iterations".into(), length.to_string().into()]);
                Ok(command)
            }
            Start::Script(text) => {
                let programs = programs.display().to_string();
                let text = text
                    .replace("PROGRAMS", &programs)
                    .replace("LENGTH", &length.to_string());
                let path = script(sandbox, "tree.sh", &text)?;
                Ok(vec![path.into_os_string()])
            }
        }
    }

    /// Starts it under `hetckpt run`.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start<'a>(&self, sandbox: &'a Sandbox, length: u64) -> Result<Job<'a>> {
        Job::start(sandbox, &self.command(sandbox, length)?)
    }

    /// Runs it uninterrupted, as long as the tests want it to; once for each tree.
    ///
    /// # Errors
    /// If it does not end well.
    pub fn baseline(&self) -> Result<Baseline> {
        static BASELINES: OncePerKey<Baseline> = OncePerKey::new();
        BASELINES.get_or_try(self.name, || {
            // Much of a run is its start, which other work makes longer: only what each step adds is in proportion.
            let [short, long] = [SHORT, SHORT * 8].map(|length| self.uninterrupted(length));
            let (short, long) = (short?, long?);
            let added = long
                .duration
                .saturating_sub(short.duration)
                .max(Duration::from_millis(50));
            let steps = WANTED.as_secs_f64() / added.as_secs_f64() * (long.length - short.length) as f64;
            self.uninterrupted((steps as u64).clamp(SHORT, MOST_STEPS))
        })
    }

    /// As [`Tree::baseline`], of a run several times as long.
    ///
    /// # Errors
    /// If it does not end well.
    pub fn longer_baseline(&self, times: u64) -> Result<Baseline> {
        let one = self.baseline()?;
        let times = u32::try_from(times)?;
        let length = one.length * u64::from(times);
        // What it prints is what one prints that hurries.
        let (outcome, _) = self.run_to_end(length, |job| job.finish())?;
        Ok(Baseline {
            length,
            outcome,
            duration: one.duration * times,
        })
    }

    fn uninterrupted(&self, length: u64) -> Result<Baseline> {
        let (outcome, duration) = self.run_to_end(length, |job| job.finish_unhurried())?;
        Ok(Baseline {
            length,
            outcome,
            duration,
        })
    }

    fn run_to_end(&self, length: u64, finish: impl FnOnce(Job<'_>) -> Result<Outcome>) -> Result<(Outcome, Duration)> {
        let sandbox = Sandbox::new()?;
        let started = Instant::now();
        let outcome = finish(self.start(&sandbox, length)?)?;
        ensure!(
            outcome.code == 0 && outcome.stdout.ends_with("PASS\n") && outcome.stderr.is_empty(),
            "an uninterrupted run of {} (length {length}): {}\n{}",
            self.name,
            outcome.text(),
            sandbox.logs()
        );
        Ok((outcome, started.elapsed()))
    }
}

/// Rows of `hetckpt ps --json`.
///
/// # Errors
/// If it fails.
pub fn rows(sandbox: &Sandbox) -> Result<Vec<Value>> {
    let outcome = hetckpt::run(sandbox, ["ps", "--json"])?.success("ps")?;
    serde_json::from_str(&outcome.stdout).context("ps --json prints no JSON list")
}

/// Waits until `count` processes have a kernel in flight at the same time; gives their rows.
///
/// # Errors
/// If that does not come.
pub fn wait_for_kernels(sandbox: &Sandbox, count: usize) -> Result<Vec<Value>> {
    let deadline = Instant::now() + hetckpt::PATIENCE;
    loop {
        let rows = rows(sandbox)?;
        let busy = rows
            .iter()
            .filter(|row| row["running_kernels"].as_u64().is_some_and(|n| n > 0));
        if busy.count() >= count {
            return Ok(rows);
        }
        ensure!(
            Instant::now() < deadline,
            "{count} processes were to have kernels in flight; `hetckpt ps` has {rows:?}"
        );
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A shell script in the sandbox.
///
/// # Errors
/// If it cannot be written.
pub fn script(sandbox: &Sandbox, name: &str, text: &str) -> Result<PathBuf> {
    let path = sandbox.path(name);
    let text = format!("#!/bin/sh\n{text}\n");
    // Not written anew while a shell reads it.
    if fs::read_to_string(&path).is_ok_and(|old| old == text) {
        return Ok(path);
    }
    executable::write(&path, &text)?;
    Ok(path)
}

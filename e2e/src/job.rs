//! A program under test on its way: run, dumped, restored, ended. Each step consumes the one before it.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::hetckpt::{self, PATIENCE};
use crate::installation::Installation;
use crate::process::{Outcome, Running};
use crate::sandbox::{Sandbox, is_gone};

/// Between two looks at what `hetckpt ps` says: each is a process.
pub const POLL_INTERVAL: Duration = Duration::from_millis(40);

/// A program that runs, under `hetckpt run` or `hetckpt restore`.
pub struct Job<'a> {
    sandbox: &'a Sandbox,
    /// The `hetckpt` that stands in for it.
    supervisor: Running,
    pid: i32,
    /// What it printed before it was dumped, if it was.
    printed: String,
    num_dumps: u32,
}

/// A program that is nothing but an archive.
pub struct Dumped<'a> {
    sandbox: &'a Sandbox,
    /// The archive.
    pub archive: PathBuf,
    /// What `dump --json` said.
    pub report: Value,
    /// What the program had printed by then, since its very start.
    pub printed: String,
    num_dumps: u32,
}

/// What became of an attempt to dump a program that may have come to its end meanwhile.
pub enum Attempt<'a> {
    /// It was dumped.
    Dumped(Dumped<'a>),
    /// It had ended by itself, so.
    Ended(Outcome),
}

impl<'a> Job<'a> {
    /// Starts `program` (its file and arguments) under `hetckpt run` and waits until it has a process id.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(sandbox: &'a Sandbox, program: &[OsString]) -> Result<Self> {
        Self::start_with(sandbox, program, &Installation::from_device(), |_| ())
    }

    /// As [`Job::start`], on `device`, with a chance to change the command's environment.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start_with(
        sandbox: &'a Sandbox,
        program: &[OsString],
        device: &str,
        change: impl FnOnce(&mut Command),
    ) -> Result<Self> {
        let pid_file = sandbox.path("pid");
        // Left by an earlier program of this test.
        let _ = fs::remove_file(&pid_file);
        let mut command = hetckpt::command(sandbox, ["run", "--device", device, "--pid-file"]);
        command.arg(&pid_file).arg("--").args(program);
        change(&mut command);
        let mut supervisor = Running::start(command)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = fs::read_to_string(&pid_file).unwrap_or_default();
            // With its line end, or it may not be all of the number.
            if let Some(pid) = text.strip_suffix('\n').and_then(|digits| digits.parse().ok()) {
                return Ok(Self {
                    sandbox,
                    supervisor,
                    pid,
                    printed: String::new(),
                    num_dumps: 0,
                });
            }
            if supervisor.has_ended()? || Instant::now() > deadline {
                bail!(
                    "`hetckpt run` did not start {program:?}: {}",
                    supervisor.wait(PATIENCE)?.text()
                );
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The program's process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The `hetckpt run` or `hetckpt restore` that stands in for it.
    #[must_use]
    pub fn supervisor(&self) -> &Running {
        &self.supervisor
    }

    /// True once it has ended.
    ///
    /// # Errors
    /// If the system cannot tell.
    pub fn has_ended(&mut self) -> Result<bool> {
        self.supervisor.has_ended()
    }

    /// Waits until the program has said `part` on standard error.
    ///
    /// # Errors
    /// If it does not.
    pub fn wait_for_stderr(&self, part: &str) -> Result<()> {
        self.supervisor.wait_for_stderr(part, PATIENCE)
    }

    /// Waits until `is_met` holds for its row of `hetckpt ps`; gives that row.
    ///
    /// # Errors
    /// If it ends before, or does not get there in time.
    pub fn wait_for_row(&mut self, what: &str, is_met: impl Fn(&Value) -> bool) -> Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        let mut last = None;
        while Instant::now() < deadline {
            if let Some(row) = hetckpt::ps_row(self.sandbox, self.pid)? {
                if is_met(&row) {
                    return Ok(row);
                }
                last = Some(row);
            }
            ensure!(
                !self.supervisor.has_ended()?,
                "the program ended before it had {what}\n{}",
                self.supervisor.said()
            );
            std::thread::sleep(POLL_INTERVAL);
        }
        bail!("the program did not get to have {what}; `hetckpt ps` has {last:?}")
    }

    /// Watches it until it ends; gives the time from the first to the last sight of a kernel in flight.
    ///
    /// # Errors
    /// If it does not end.
    pub fn watch_kernels(&mut self) -> Result<Duration> {
        let deadline = Instant::now() + PATIENCE;
        let mut seen: Option<(Instant, Instant)> = None;
        while !self.supervisor.has_ended()? {
            ensure!(Instant::now() < deadline, "the program does not end");
            let row = hetckpt::ps_row(self.sandbox, self.pid)?;
            if row.is_some_and(|row| row["running_kernels"].as_u64().is_some_and(|n| n > 0)) {
                let now = Instant::now();
                seen = Some((seen.map_or(now, |(first, _)| first), now));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(seen.map_or(Duration::ZERO, |(first, last)| last - first))
    }

    /// Waits until a kernel runs, and has run for a moment.
    ///
    /// # Errors
    /// If the program ends before.
    pub fn wait_for_kernel(&mut self) -> Result<()> {
        self.wait_for_row("a kernel in flight", |row| {
            row["running_kernels"].as_u64().is_some_and(|n| n > 0)
        })?;
        std::thread::sleep(Duration::from_millis(150));
        Ok(())
    }

    /// Dumps it and proves that nothing of it is left running.
    ///
    /// # Errors
    /// If the dump fails or leaves something behind.
    pub fn dump(self) -> Result<Dumped<'a>> {
        match self.try_dump()? {
            Attempt::Dumped(dumped) => Ok(dumped),
            Attempt::Ended(outcome) => bail!("the program ended before it could be dumped: {}", outcome.text()),
        }
    }

    /// As [`Job::dump`], once a kernel is in flight, which must be caught in the middle of its work; gives nothing if
    /// the program has come to its end before, or was between two kernels.
    ///
    /// # Errors
    /// If the dump fails although the program did not end by itself, or a kernel in flight was not caught part-way.
    pub fn try_dump_in_mid_kernel(self) -> Result<Option<Dumped<'a>>> {
        let dumped = match self.try_dump_at_kernel()? {
            Attempt::Dumped(dumped) => dumped,
            Attempt::Ended(outcome) => {
                ensure!(outcome.code == 0, "{}", outcome.text());
                return Ok(None);
            }
        };
        let kernels = kernels_in_flight(&dumped.inspect()?);
        if kernels.is_empty() {
            return Ok(None);
        }
        ensure!(
            kernels.iter().any(is_mid_flight),
            "no kernel was caught part-way: {kernels:?}"
        );
        Ok(Some(dumped))
    }

    /// As [`Job::try_dump`], once a kernel is in flight. Where kernels are too short to be seen, the program may end
    /// first.
    ///
    /// # Errors
    /// As there, and if no kernel is seen although the program runs on.
    pub fn try_dump_at_kernel(mut self) -> Result<Attempt<'a>> {
        match self.wait_for_kernel() {
            Ok(()) => self.try_dump(),
            Err(error) if !self.has_ended()? => Err(error),
            Err(_) => self.finish().map(Attempt::Ended),
        }
    }

    /// As [`Job::dump`], for a program that may end meanwhile.
    ///
    /// # Errors
    /// If the dump fails although the program did not end by itself.
    pub fn try_dump(mut self) -> Result<Attempt<'a>> {
        let archive = self.sandbox.path(&format!("{}-{}.hetsnap", self.pid, self.num_dumps));
        let outcome = hetckpt::dump(self.sandbox, self.pid, &archive, false)?;
        if outcome.code != 0 {
            // A program that had ended by then was not there to be dumped; one that ends later was.
            // The dump may have noticed first: the end of a job with namespaces takes longer than its program's.
            let is_said = outcome.stderr.contains("error[HK0801]");
            let deadline = Instant::now() + Duration::from_millis(if is_said { 3000 } else { 100 });
            while !self.supervisor.has_ended()? && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            let has_ended = self.supervisor.has_ended()?;
            let ended = self.supervisor.wait(PATIENCE);
            let ended = ended.with_context(|| format!("the dump failed: {}", outcome.text()))?;
            let is_too_late = has_ended && ended.code == 0 && !archive.exists();
            ensure!(
                is_too_late,
                "the dump failed: {}\nand the program ended: {}",
                outcome.text(),
                ended.text()
            );
            let stdout = self.printed + &ended.stdout;
            return Ok(Attempt::Ended(Outcome { stdout, ..ended }));
        }
        let ended = self.supervisor.wait(PATIENCE);
        let ended = ended.context("`hetckpt run` outlasts the program it stands in for")?;
        ensure!(
            ended.code == 128 + 9,
            "a dumped program counts as killed, but: {}",
            ended.text()
        );
        ensure!(is_gone(self.pid), "process {} still runs after the dump", self.pid);
        self.sandbox
            .wait_until_empty(Duration::from_secs(10))
            .context("after the dump")?;
        let report = serde_json::from_str(&outcome.stdout)
            .with_context(|| format!("dump --json prints no JSON: {}", outcome.text()))?;
        Ok(Attempt::Dumped(Dumped {
            sandbox: self.sandbox,
            archive,
            report,
            printed: self.printed + &ended.stdout,
            num_dumps: self.num_dumps + 1,
        }))
    }

    /// Dumps it with `--leave-running` into the archive returned.
    ///
    /// # Errors
    /// If the dump fails or the program is gone after it.
    pub fn dump_and_leave_running(&mut self) -> Result<PathBuf> {
        let archive = self
            .sandbox
            .path(&format!("{}-{}-left.hetsnap", self.pid, self.num_dumps));
        self.num_dumps += 1;
        hetckpt::dump(self.sandbox, self.pid, &archive, true)?.success("dump --leave-running")?;
        ensure!(
            !is_gone(self.pid),
            "the program is gone although it was to be left running"
        );
        Ok(archive)
    }

    /// Waits for its end, to which it may hurry; the outcome holds all that it printed, since its very start.
    ///
    /// # Errors
    /// If it does not end, or leaves something running.
    pub fn finish(self) -> Result<Outcome> {
        self.end_with(Running::wait)
    }

    /// As [`Job::finish`], of a run that is measured.
    ///
    /// # Errors
    /// As there.
    pub fn finish_unhurried(self) -> Result<Outcome> {
        self.end_with(Running::wait_unhurried)
    }

    fn end_with(self, wait: impl FnOnce(Running, Duration) -> Result<Outcome>) -> Result<Outcome> {
        let outcome = wait(self.supervisor, PATIENCE)?;
        self.sandbox
            .wait_until_empty(Duration::from_secs(10))
            .context("after the program's end")?;
        Ok(Outcome {
            stdout: self.printed + &outcome.stdout,
            ..outcome
        })
    }

    /// Kills it; what stood in for it and served it must leave by itself.
    ///
    /// # Errors
    /// If something stays.
    pub fn kill(self) -> Result<()> {
        kill(Pid::from_raw(self.pid), Signal::SIGKILL).context("the program to be killed is gone")?;
        self.finish().map(drop)
    }
}

impl<'a> Dumped<'a> {
    /// What `hetckpt inspect --json` says of it.
    ///
    /// # Errors
    /// If it fails.
    pub fn inspect(&self) -> Result<Value> {
        hetckpt::inspect(self.sandbox, &self.archive)
    }

    /// Seconds that a step of the dump took.
    #[must_use]
    pub fn seconds(&self, step: &str) -> Duration {
        Duration::from_secs_f64(self.report["seconds"][step].as_f64().unwrap_or_default().max(0.0))
    }

    /// Restores it on the device that `HETCKPT_E2E_TO` names, and waits until it runs.
    ///
    /// # Errors
    /// If it does not come to run.
    pub fn restore(self) -> Result<Job<'a>> {
        self.restore_on(&Installation::to_device())
    }

    /// As [`Dumped::restore`], on `device`.
    ///
    /// # Errors
    /// If it does not come to run.
    pub fn restore_on(self, device: &str) -> Result<Job<'a>> {
        let [timings, pid_file] = ["timings.json", "pid"].map(|name| self.sandbox.path(name));
        // Left by an earlier restore of this test.
        let _ = (fs::remove_file(&timings), fs::remove_file(&pid_file));
        let mut supervisor = hetckpt::restore(self.sandbox, &self.archive, device)?;
        let deadline = Instant::now() + PATIENCE;
        let pid = loop {
            let text = fs::read_to_string(&pid_file).unwrap_or_default();
            match text.strip_suffix('\n').and_then(|digits| digits.parse().ok()) {
                Some(pid) if timings.exists() => break pid,
                _ => {}
            }
            if supervisor.has_ended()? || Instant::now() > deadline {
                bail!("the restore failed: {}", supervisor.wait(PATIENCE)?.text());
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        Ok(Job {
            sandbox: self.sandbox,
            supervisor,
            pid,
            printed: self.printed,
            num_dumps: self.num_dumps,
        })
    }
}

/// Kernels in flight in what `inspect --json` says, of all processes.
#[must_use]
pub fn kernels_in_flight(inspected: &Value) -> Vec<Value> {
    let processes = inspected["processes"].as_array().cloned().unwrap_or_default();
    processes
        .iter()
        .flat_map(|process| process["kernels_in_flight"].as_array().cloned().unwrap_or_default())
        .collect()
}

/// True if `kernel` was caught part-way: some of its blocks stopped inside, or some had finished and others not
/// started.
#[must_use]
pub fn is_mid_flight(kernel: &Value) -> bool {
    let count = |key: &str| kernel[key].as_u64().unwrap_or(0);
    count("blocks_paused") > 0 || (count("blocks_finished") > 0 && count("blocks_not_started") > 0)
}

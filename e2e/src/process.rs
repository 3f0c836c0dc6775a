//! A child process whose output is collected while it runs, and which cannot outlast its limit.

use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use std::os::unix::process::ExitStatusExt;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::{Condvar, Mutex};

use crate::{actors, early_end};

/// How a command ended, and what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Exit code; 128 + the signal's number if a signal ended it, as shells have it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Outcome {
    /// Both outputs, for messages.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "exit code {}\nstdout: {}\nstderr: {}",
            self.code,
            self.stdout.trim_end(),
            self.stderr.trim_end()
        )
    }

    /// Itself if it succeeded.
    ///
    /// # Errors
    /// If the exit code is not 0.
    pub fn success(self, what: &str) -> Result<Self> {
        if self.code != 0 {
            bail!("{what} failed: {}", self.text());
        }
        Ok(self)
    }
}

/// A stream of a child, as far as it has come.
#[derive(Default)]
struct Collected {
    state: Mutex<(Vec<u8>, bool)>,
    changed: Condvar,
}

impl Collected {
    fn collect(&self, mut source: impl Read) {
        let mut bytes = vec![0; 1 << 14];
        while let Ok(count @ 1..) = source.read(&mut bytes) {
            self.state.lock().0.extend_from_slice(&bytes[..count]);
            self.changed.notify_all();
        }
        self.state.lock().1 = true;
        self.changed.notify_all();
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.state.lock().0).into_owned()
    }

    /// Waits until the stream holds `part`, or has ended. Tells whether it holds it.
    fn wait_for(&self, part: &str, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        loop {
            if String::from_utf8_lossy(&state.0).contains(part) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.1 || left.is_zero() {
                return false;
            }
            self.changed.wait_for(&mut state, left);
        }
    }

    /// Waits until every writer has closed the stream, or will write no more: a helper that a killed CRIU has left
    /// holds the stream, and is stopped.
    ///
    /// # Errors
    /// If that is not so at `deadline`; who holds the stream is named.
    fn wait_for_writers(&self, pipe: Option<&Path>, deadline: Instant) -> Result<()> {
        const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
        loop {
            let now = Instant::now();
            if self.wait_for_end(deadline.min(now + BETWEEN_LOOKS)) {
                return Ok(());
            }
            let holders = pipe.map(holders).unwrap_or_default();
            let are_left = |pid: &i32| actors::is_left_by_criu(*pid, &holders);
            if !holders.is_empty() && holders.iter().all(are_left) {
                return Ok(());
            }
            if now > deadline {
                let stat = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                bail!("held by {:?}", holders.iter().map(stat).collect::<Vec<_>>());
            }
        }
    }

    /// Waits until every writer has closed the stream.
    fn wait_for_end(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.1 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.changed.wait_for(&mut state, left);
        }
        true
    }
}

fn pipe_of(stream: Option<&impl AsRawFd>) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", stream?.as_raw_fd())).ok()
}

/// The processes that have `pipe` open, but for this one.
fn holders(pipe: &Path) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let holds = |pid: i32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .map(|file| fs::read_link(file.path()))
            .any(|link| link.is_ok_and(|link| link == pipe))
    };
    let this = std::process::id().cast_signed();
    pids.filter(|&pid| pid != this && holds(pid)).collect()
}

/// A running child.
pub struct Running {
    child: Child,
    what: String,
    stdout: Arc<Collected>,
    stderr: Arc<Collected>,
    /// What `/proc` calls the pipes of both.
    pipes: [Option<PathBuf>; 2],
    started: Instant,
    /// It is `hetckpt run` or `hetckpt restore`.
    stands_in: bool,
    // They end with the last writer of the pipes, which may outlast the child.
    _pumps: [JoinHandle<()>; 2],
}

impl Running {
    /// Starts `command` with its output collected and nothing to read.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: Command) -> Result<Self> {
        Self::start_with_input(command, Stdio::null())
    }

    /// As [`Self::start`], with `input` as its standard input.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_with_input(mut command: Command, input: Stdio) -> Result<Self> {
        let is_hetckpt = Path::new(command.get_program()).ends_with("hetckpt");
        let stands_in = is_hetckpt && command.get_args().any(|word| word == "run" || word == "restore");
        let what = format!("{command:?}");
        let what = what.rsplit('/').next().unwrap_or(&what).replace('"', "");
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        drop(command);
        let (stdout, stderr) = (Arc::new(Collected::default()), Arc::new(Collected::default()));
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let pipes = [pipe_of(out.as_ref()), pipe_of(err.as_ref())];
        let pumps = [
            std::thread::spawn({
                let stdout = Arc::clone(&stdout);
                move || out.map_or((), |source| stdout.collect(source))
            }),
            std::thread::spawn({
                let stderr = Arc::clone(&stderr);
                move || err.map_or((), |source| stderr.collect(source))
            }),
        ];
        Ok(Self {
            child,
            what,
            stdout,
            stderr,
            pipes,
            started,
            stands_in,
            _pumps: pumps,
        })
    }

    /// Starts `command` and waits for its end.
    ///
    /// # Errors
    /// If it cannot be started or outlasts `limit`.
    pub fn run(command: Command, limit: Duration) -> Result<Outcome> {
        Self::start(command)?.wait(limit)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(-1)
    }

    /// Since when it runs.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// If it is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.pid()), signal).with_context(|| format!("cannot send {signal} to {}", self.what))
    }

    /// What it has written to standard error so far.
    #[must_use]
    pub fn stderr_so_far(&self) -> String {
        self.stderr.text()
    }

    /// True once it has ended.
    ///
    /// # Errors
    /// If the system cannot tell.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// What it has printed so far, for messages.
    #[must_use]
    pub fn said(&self) -> String {
        format!(
            "stdout: {}\nstderr: {}",
            self.stdout.text().trim_end(),
            self.stderr.text().trim_end()
        )
    }

    /// Waits until its standard error holds `part`.
    ///
    /// # Errors
    /// If it does not before `limit` is over or the stream ends.
    pub fn wait_for_stderr(&self, part: &str, limit: Duration) -> Result<()> {
        if self.stderr.wait_for(part, Instant::now() + limit) {
            return Ok(());
        }
        bail!(
            "{} did not say `{part}` on stderr within {limit:?}; it said: {}",
            self.what,
            self.stderr.text()
        )
    }

    /// Waits until it has ended and all its output is there. If it stands in for a program, that may hurry.
    ///
    /// # Errors
    /// If that takes longer than `limit`; it is killed then.
    pub fn wait(self, limit: Duration) -> Result<Outcome> {
        let hurries = self.stands_in;
        self.wait_for_exit(limit, hurries)
    }

    /// As [`Running::wait`], of something else that started a program, which may hurry. It is told again and again: a
    /// signal that comes while CRIU lets a program go on has no effect at times.
    ///
    /// # Errors
    /// As there.
    pub fn wait_hurrying(self, limit: Duration) -> Result<Outcome> {
        self.wait_for_exit(limit, true)
    }

    /// As [`Running::wait`], of a program that is measured.
    ///
    /// # Errors
    /// As there.
    pub fn wait_unhurried(self, limit: Duration) -> Result<Outcome> {
        self.wait_for_exit(limit, false)
    }

    fn wait_for_exit(mut self, limit: Duration, hurries: bool) -> Result<Outcome> {
        const BETWEEN_SIGNALS: Duration = Duration::from_millis(250);
        let deadline = Instant::now() + limit;
        let mut signal_at = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                // It may have ended just now, which is as well.
                let _ = self.child.kill();
                let _ = self.child.wait();
                bail!(
                    "{} did not end within {limit:?}; stderr: {}",
                    self.what,
                    self.stderr.text()
                );
            }
            if hurries && Instant::now() > signal_at {
                // Again and again: of what is being restored nothing may be there yet.
                early_end::descendants(self.pid());
                signal_at = Instant::now() + BETWEEN_SIGNALS;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let streams = [("stdout", &self.stdout), ("stderr", &self.stderr)];
        for ((name, stream), pipe) in streams.into_iter().zip(&self.pipes) {
            stream
                .wait_for_writers(pipe.as_deref(), deadline.max(Instant::now() + Duration::from_secs(2)))
                .with_context(|| format!("{} has ended, but not its {name}", self.what))?;
        }
        Ok(Outcome {
            code: exit_code(status),
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that failed half-way must not leave a zombie whose id a restore needs.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The exit code; 128 + the signal's number if a signal ended it.
#[must_use]
pub fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn names_who_holds_the_output_of_what_has_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 5 & :"]);
        let error = format!("{:#}", Running::run(command, Duration::from_secs(1)).unwrap_err());
        assert!(error.contains("(sleep)") && error.matches(") ").count() == 1, "{error}");
    }

    #[test]
    fn what_a_killed_criu_has_left_does_not_hold_its_output() {
        let mut command = Command::new("sh");
        // The inner shell is, by its arguments, a CRIU that restores, and its child the helper that has stopped itself.
        let helper = "(sh -c 'kill -STOP $PPID'; :) & sleep 0.2; echo $!; kill -9 $PPID $$";
        command.args(["-c", "sh -c \"$0\" criu restore; :", helper]);
        let outcome = Running::run(command, Duration::from_secs(20)).unwrap();
        let left = outcome.stdout.trim().parse().unwrap();
        kill(Pid::from_raw(left), Signal::SIGKILL).unwrap();
        assert_eq!(outcome.code, 128 + 9);
    }
}

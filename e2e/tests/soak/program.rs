//! A program that is dumped and restored, with folders of its own for archives and for temporary files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hetckpt_e2e::hetckpt;
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::MEMORY_HOG;
use hetckpt_e2e::sandbox::Sandbox;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::resources::{self, Resources};

/// Limit for each step. Eight programs share the machine.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// Limit for what a program still has to do after its last restore.
const END: Duration = Duration::from_secs(1200);
/// The archive's name.
const ARCHIVE: &str = "x.hetsnap";

/// Where a program's files are.
#[derive(Clone)]
struct Place<'a> {
    sandbox: &'a Sandbox,
    /// Its folder: `tmp` in it is for temporary files, `archives` for the archive.
    folder: PathBuf,
}

/// It runs.
pub struct Soaked<'a> {
    place: Place<'a>,
    supervisor: Running,
    pid: i32,
    printed: String,
}

/// It is an archive.
pub struct Stored<'a> {
    place: Place<'a>,
    pid: i32,
    printed: String,
}

/// What became of an attempt to dump it.
pub enum Attempt<'a> {
    /// It was dumped.
    Stored(Stored<'a>),
    /// It had ended by itself.
    Ended(Ran),
}

/// It has ended.
pub struct Ran {
    folder: PathBuf,
    /// How.
    pub outcome: Outcome,
}

impl Place<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = hetckpt::command(self.sandbox, arguments);
        command.env("TMPDIR", self.folder.join("tmp"));
        command
    }

    fn archive(&self) -> PathBuf {
        self.folder.join("archives").join(ARCHIVE)
    }
}

impl<'a> Soaked<'a> {
    /// Starts a program of so many steps, in the folder `name`, and waits until its kernel runs.
    pub fn start(sandbox: &'a Sandbox, name: &str, steps: u64) -> Result<Self> {
        let folder = sandbox.path(name);
        for part in ["tmp", "archives"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let place = Place { sandbox, folder };
        let pid_file = place.folder.join("pid");
        // Of the program before.
        let _ = fs::remove_file(&pid_file);
        let mut command = place.command(&["run", "--device", &Installation::from_device(), "--pid-file"]);
        command.arg(&pid_file).arg("--").args(MEMORY_HOG.command(steps));
        let supervisor = Running::start(command)?;
        let mut started = Self {
            place,
            supervisor,
            pid: 0,
            printed: String::new(),
        };
        let text = || fs::read_to_string(&pid_file).unwrap_or_default();
        started.wait("its process id", || Ok(text().ends_with('\n')))?;
        started.pid = text().trim().parse()?;
        started.wait_for_kernel()?;
        Ok(started)
    }

    fn wait(&mut self, what: &str, is_there: impl Fn() -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_there()? {
            if self.supervisor.has_ended()? || Instant::now() > deadline {
                bail!("the program did not get to {what}: {}", self.supervisor.said());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Until the long kernel runs, which is the one at which all memory is filled.
    fn wait_for_kernel(&mut self) -> Result<()> {
        let (sandbox, pid) = (self.place.sandbox, self.pid);
        self.wait("a kernel in flight", || {
            let row = hetckpt::ps_row(sandbox, pid)?;
            Ok(row.is_some_and(|row| row["running_kernels"].as_u64().is_some_and(|count| count > 0)))
        })
    }

    /// Dumps it, which it must not have come to its end for.
    pub fn dump(self) -> Result<Stored<'a>> {
        match self.try_dump()? {
            Attempt::Stored(stored) => Ok(stored),
            Attempt::Ended(ran) => bail!("it ended before it was dumped: {}", ran.outcome.text()),
        }
    }

    /// Dumps it, unless it has come to its right end by itself.
    pub fn try_dump(self) -> Result<Attempt<'a>> {
        let mut command = self
            .place
            .command(&["dump", "--force", "--pid", &self.pid.to_string(), "-o"]);
        command.arg(self.place.archive());
        let dump = Running::run(command, PATIENCE)?;
        let ended = self.supervisor.wait(PATIENCE);
        let ended = ended.with_context(|| format!("the dump: {}", dump.text()))?;
        if dump.code != 0 && ended.code == 0 {
            return Ok(Attempt::Ended(Ran {
                folder: self.place.folder,
                outcome: Outcome {
                    stdout: self.printed + &ended.stdout,
                    ..ended
                },
            }));
        }
        dump.success("dump")
            .with_context(|| format!("the program: {}", ended.text()))?;
        ensure!(
            ended.code == 128 + 9,
            "a dumped program counts as killed: {}",
            ended.text()
        );
        Ok(Attempt::Stored(Stored {
            place: self.place,
            pid: self.pid,
            printed: self.printed + &ended.stdout,
        }))
    }

    /// What it, its device server and who stands in for it hold.
    pub fn resources(&self) -> Result<Resources> {
        let row = hetckpt::ps_row(self.place.sandbox, self.pid)?.context("it has no device server")?;
        let server = i32::try_from(row["server_pid"].as_i64().context("`ps` names no device server")?)?;
        let archive = fs::metadata(self.place.archive())?.len();
        // Until the server has noticed that `ps` is gone.
        std::thread::sleep(Duration::from_millis(300));
        resources::ensure_nothing_in(&self.place.folder.join("tmp"), &[])?;
        resources::ensure_no_mounts_in(&self.place.folder)?;
        Resources::of(self.place.sandbox, self.pid, server, self.supervisor.pid(), archive)
    }

    /// Ends it.
    pub fn kill(self) -> Result<Ran> {
        kill(Pid::from_raw(self.pid), Signal::SIGKILL).context("the program to be killed is gone")?;
        self.finish()
    }

    /// Waits for its end.
    fn finish(self) -> Result<Ran> {
        let outcome = self.supervisor.wait(END)?;
        Ok(Ran {
            folder: self.place.folder,
            outcome: Outcome {
                stdout: self.printed + &outcome.stdout,
                ..outcome
            },
        })
    }
}

impl<'a> Stored<'a> {
    /// Neither beside the archive nor among temporary files is anything else.
    pub fn ensure_nothing_but_the_archive(&self) -> Result<()> {
        ensure_nothing_but_the_archive(&self.place.folder)
    }

    /// Restores it and waits until its kernel runs; `None` if it comes to its right end before that is seen.
    pub fn restore(self) -> Result<Option<Soaked<'a>>> {
        let timings = self.place.folder.join("timings");
        // Left by the restore before.
        let _ = fs::remove_file(&timings);
        let mut command = self
            .place
            .command(&["restore", "--device", &Installation::to_device(), "--timings"]);
        command.arg(&timings).arg(self.place.archive());
        let supervisor = Running::start(command)?;
        let mut restored = Soaked {
            place: self.place,
            supervisor,
            pid: self.pid,
            printed: self.printed,
        };
        restored.wait("run again", || Ok(timings.exists()))?;
        match restored.wait_for_kernel() {
            Ok(()) => Ok(Some(restored)),
            Err(error) => match restored.finish()?.is_right() {
                true => Ok(None),
                false => Err(error),
            },
        }
    }
}

impl Ran {
    /// True if it ended well and found its own result right, or was ended.
    pub fn is_right(&self) -> bool {
        let is_right = self.outcome.code == 0 && self.outcome.stdout.ends_with("PASS\n");
        is_right || self.outcome.code == 128 + 9
    }

    /// As for one that is stored.
    pub fn ensure_nothing_but_the_archive(&self) -> Result<()> {
        ensure_nothing_but_the_archive(&self.folder)
    }
}

fn ensure_nothing_but_the_archive(folder: &Path) -> Result<()> {
    resources::ensure_nothing_in(&folder.join("tmp"), &[])?;
    resources::ensure_nothing_in(&folder.join("archives"), &[ARCHIVE])
}

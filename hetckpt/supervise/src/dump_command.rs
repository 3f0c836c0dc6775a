//! A dump of a program that is under way: `hetckpt dump`, as a process of its own.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use tempfile::NamedTempFile;

use hetckpt_ring::failure_code::Code;

/// Why a dump did not come about.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// It could not be started, or not be waited for.
    #[error("cannot run `hetckpt dump`: {0}")]
    NotRun(#[from] io::Error),
    /// It failed and said why.
    #[error("[{}] {}{}", .0.code, .0.message, .0.notes.iter().map(|note| format!("; {note}")).collect::<String>())]
    Failed(Told),
    /// It failed and did not say why.
    #[error("`hetckpt dump` ended with status {0}")]
    Silent(u8),
}

impl DumpError {
    /// True if somebody else has the program just then, as a dump or a suspension does: it may be tried again.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Failed(told) if told.code == Code::BeingDumped.as_str())
    }
}

/// A failure as `--json` tells it.
#[derive(Debug, Deserialize)]
pub struct Told {
    code: String,
    message: String,
    notes: Vec<String>,
}

/// What `--json` says.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Said {
    Done {
        #[expect(dead_code, reason = "what tells it from a failure")]
        archive_bytes: u64,
        label: String,
        borrows_from: Vec<String>,
    },
    Failed {
        error: Told,
    },
}

/// How to dump.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The archive that the new one borrows from, if it is to.
    pub parent: Option<&'a Path>,
    /// The program runs on after the dump.
    pub leave_running: bool,
    /// A regular file that has the archive's name is replaced.
    pub force: bool,
    /// Longest time to wait for kernels to stop, in seconds.
    pub pause_timeout: u32,
}

/// What a dump came to.
#[derive(Clone, Debug)]
pub struct Dumped {
    /// From its start to its end.
    pub time: Duration,
    /// What the program called its state; empty if it said nothing.
    pub label: String,
    /// The files of the archives that the new one borrows from.
    pub borrows_from: Vec<String>,
}

/// A dump under way.
#[derive(Debug)]
pub struct Dump {
    child: Child,
    said: NamedTempFile,
    started: Instant,
}

impl Dump {
    /// Starts one of process `pid` into the file `archive`.
    pub fn start(pid: i32, archive: &Path, options: Options<'_>) -> Result<Self, DumpError> {
        let said = NamedTempFile::with_prefix("hetckpt-dump-")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["dump", "--json", "--pid", &pid.to_string()]);
        command.args(["--pause-timeout", &options.pause_timeout.to_string()]);
        if options.leave_running {
            command.arg("--leave-running");
            // A store takes bytes in their order only.
            if !archive.to_string_lossy().contains("://") {
                command.arg("--live");
            }
        }
        if options.force {
            command.arg("--force");
        }
        if let Some(parent) = options.parent {
            command.arg("--parent").arg(parent);
        }
        command.arg("--output").arg(archive);
        command
            .stdin(Stdio::null())
            .stdout(File::create(said.path())?)
            .stderr(Stdio::null());
        Ok(Self {
            child: command.process_group(0).spawn()?,
            said,
            started: Instant::now(),
        })
    }

    /// What it came to, if it has ended.
    pub fn result(&mut self) -> Option<Result<Dumped, DumpError>> {
        let status = match self.child.try_wait() {
            Ok(status) => status?,
            Err(e) => return Some(Err(e.into())),
        };
        Some(self.result_of(status))
    }

    /// Waits for what it comes to.
    pub fn wait(mut self) -> Result<Dumped, DumpError> {
        let status = self.child.wait()?;
        self.result_of(status)
    }

    fn result_of(&self, status: ExitStatus) -> Result<Dumped, DumpError> {
        let text = fs::read(self.said.path()).unwrap_or_default();
        match serde_json::from_slice(&text) {
            Ok(Said::Done {
                label, borrows_from, ..
            }) if status.success() => Ok(Dumped {
                time: self.started.elapsed(),
                label,
                borrows_from,
            }),
            Ok(Said::Failed { error }) => Err(DumpError::Failed(error)),
            _ => Err(DumpError::Silent(hetckpt_report::exit::code_of(status))),
        }
    }

    /// Gives it up; the program runs on. What it came to is still to be asked for: it may have been done.
    pub fn give_up(&self) {
        let pid = i32::try_from(self.child.id()).unwrap_or(-1);
        // SIGTERM may be ignored.
        let _ = kill(Pid::from_raw(pid), Signal::SIGINT);
    }
}

//! A dump of the program that is under way: `hetckpt dump`, as a process of its own.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use tempfile::NamedTempFile;

use crate::options::Options;

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
    },
    Failed {
        error: Told,
    },
}

/// What a dump came to.
#[derive(Clone, Copy, Debug)]
pub struct Dumped {
    /// From its start to its end.
    pub time: Duration,
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
    pub fn start(options: &Options, pid: i32, archive: &Path, leave_running: bool) -> Result<Self, DumpError> {
        let said = NamedTempFile::with_prefix("hetckpt-job-")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["dump", "--json", "--pid", &pid.to_string()]);
        command.args(["--pause-timeout", &options.pause_timeout.to_string()]);
        if leave_running {
            command.arg("--leave-running");
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
        let text = fs::read(self.said.path()).unwrap_or_default();
        Some(match serde_json::from_slice(&text) {
            Ok(Said::Done { .. }) if status.success() => Ok(Dumped {
                time: self.started.elapsed(),
            }),
            Ok(Said::Failed { error }) => Err(DumpError::Failed(error)),
            _ => Err(DumpError::Silent(hetckpt_report::exit::code_of(status))),
        })
    }

    /// Gives it up; the program runs on. What it came to is still to be asked for: it may have been done.
    pub fn give_up(&self) {
        let pid = i32::try_from(self.child.id()).unwrap_or(-1);
        // SIGTERM may be ignored.
        let _ = kill(Pid::from_raw(pid), Signal::SIGINT);
    }
}

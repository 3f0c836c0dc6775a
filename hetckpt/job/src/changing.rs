//! Taking the program off its device, or putting it back, as it is under way: `hetckpt suspend` or `resume`, as a
//! process of its own.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use crate::options::Options;

/// What is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Off the device.
    Suspended,
    /// On it.
    Running,
}

/// A change under way.
#[derive(Debug)]
pub struct Change {
    /// What it brings about.
    pub to: Wanted,
    child: Child,
    said: NamedTempFile,
    started: Instant,
}

impl Change {
    /// Starts one of process `pid`.
    pub fn start(options: &Options, pid: i32, to: Wanted) -> io::Result<Self> {
        let said = NamedTempFile::with_prefix("hetckpt-job-")?;
        let mut command = Command::new(std::env::current_exe()?);
        match to {
            Wanted::Suspended => command.args(["suspend", "--pause-timeout", &options.pause_timeout.to_string()]),
            Wanted::Running => command.arg("resume"),
        };
        command.args(["--pid", &pid.to_string()]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(said.path())?);
        Ok(Self {
            to,
            child: command.process_group(0).spawn()?,
            said,
            started: Instant::now(),
        })
    }

    /// How long it took, or why it failed, if it has ended.
    pub fn result(&mut self) -> Option<Result<Duration, String>> {
        let status = match self.child.try_wait() {
            Ok(status) => status?,
            Err(e) => return Some(Err(e.to_string())),
        };
        Some(match status.success() {
            true => Ok(self.started.elapsed()),
            false => Err(fs::read_to_string(self.said.path())
                .unwrap_or_default()
                .trim()
                .to_owned()),
        })
    }

    /// Waits for its end, for `limit` at most.
    pub fn wait(&mut self, limit: Duration) -> Option<Result<Duration, String>> {
        let until = Instant::now() + limit;
        loop {
            match self.result() {
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                result => return result,
            }
        }
    }
}

//! Who takes part in a dump, a restore or a migration, where it is to be found, and how it is broken.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::program::PACED;
use crate::sandbox::{Sandbox, is_gone};

/// Exit codes of a program that a killed CRIU has left in code that it had injected: a trap, a fault, or a broken
/// pipe, by which that code hands pages to CRIU.
pub const INJECTED: [i32; 3] = [128 + 5, 128 + 11, 128 + 13];

/// Who.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// `hetckpt dump` or `hetckpt restore`.
    Cli,
    /// CRIU, with the plugin in it.
    Criu,
    /// The program's device server.
    Server,
    /// The program.
    Program,
}

impl Actor {
    /// Its process id, if it is there: among `processes`, or `command` if it is the command line, `program` if it is
    /// the program.
    #[must_use]
    pub fn find(self, processes: &[i32], command: i32, program: i32) -> Option<i32> {
        match self {
            Self::Cli => (!is_gone(command)).then_some(command),
            // In namespaces of its own a restored program is called otherwise than before.
            Self::Program => match is_gone(program) {
                false => Some(program),
                true => spinning(processes),
            },
            Self::Criu => working_criu(processes),
            Self::Server => server(processes),
        }
    }
}

/// Those of `actors` that are there, as [`Actor::find`] finds each.
#[must_use]
pub fn find(actors: &[Actor], processes: &[i32], command: i32, program: i32) -> Vec<i32> {
    let found = actors
        .iter()
        .filter_map(|actor| actor.find(processes, command, program));
    found.collect()
}

/// CRIU, of `processes`, as it dumps or restores: not when it is asked for its version, and not a process that it
/// rebuilds.
#[must_use]
pub fn working_criu(processes: &[i32]) -> Option<i32> {
    let mut there = processes.iter().copied();
    there.find(|&pid| is_criu(pid) && !is_criu(parent_of(pid)) && !is_left_by_criu(pid, processes))
}

/// True if `pid` is CRIU at its work, or a process that CRIU has not rebuilt yet.
///
/// By its arguments: it may be started by way of a script or a loader, and then has another name.
fn is_criu(pid: i32) -> bool {
    is_call(pid, "criu", &["dump", "restore"])
}

/// True if `pid` is a call of `program` with one of `verbs` first.
#[must_use]
pub fn is_call(pid: i32, program: &str, verbs: &[&str]) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = words.split(|&byte| byte == 0).collect();
    let is_verb = |word: &[u8]| verbs.iter().any(|verb| verb.as_bytes() == word);
    words
        .windows(2)
        .any(|pair| pair[0].ends_with(program.as_bytes()) && is_verb(pair[1]))
}

/// True if `pid` is a helper that has stopped itself until CRIU goes on with it, and that CRIU is gone: the next
/// command of ours that makes such a folder as it has ends it.
#[must_use]
pub fn is_left_by_criu(pid: i32, processes: &[i32]) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_stopped = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
    is_stopped && is_criu(pid) && !processes.contains(&parent_of(pid))
}

/// Waits until nothing of a test runs but what commands that were killed together with their CRIU have left of that.
///
/// # Errors
/// If something still does after `limit`; it is named.
pub fn wait_until_only_left_by_criu(sandbox: &Sandbox, limit: Duration) -> Result<()> {
    sandbox.wait_until_none(limit, |pid, all| !is_left_by_criu(pid, all))
}

/// The program that all of this is tried on.
fn spinning(processes: &[i32]) -> Option<i32> {
    let mut there = processes.iter().copied();
    there.find(|&pid| has_name(pid, PACED.name) && !is_gone(pid))
}

/// Of several, the one that was started last.
fn server(processes: &[i32]) -> Option<i32> {
    let found = processes.iter().copied();
    found
        .filter(|&pid| has_name(pid, "hetckpt-server") && !is_gone(pid))
        .max()
}

/// `processes`, zombies aside, with their names; CRIU is called `criu`.
#[must_use]
pub fn names(processes: &[i32]) -> Vec<(i32, String)> {
    let name = |pid: i32| match is_criu(pid) {
        true => "criu".to_owned(),
        false => fs::read_to_string(format!("/proc/{pid}/comm"))
            .unwrap_or_default()
            .trim()
            .to_owned(),
    };
    let there = processes.iter().copied().filter(|&pid| !is_gone(pid));
    there.map(|pid| (pid, name(pid))).collect()
}

/// True if process `pid` is called `name`.
#[must_use]
pub fn has_name(pid: i32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
}

fn parent_of(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    after_name
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}

/// Kills `found`, or stops them for as long as `hang` says. False if none was there any more.
#[must_use]
pub fn strike(found: &[i32], hang: Option<Duration>) -> bool {
    // Each may have ended by itself meanwhile.
    let reach = |&pid: &i32, signal: Signal| kill(Pid::from_raw(pid), signal).is_ok();
    let send = |signal: Signal| found.iter().filter(|pid| reach(pid, signal)).count() > 0;
    let Some(time) = hang else {
        return send(Signal::SIGKILL);
    };
    let has_hit = send(Signal::SIGSTOP);
    std::thread::sleep(time);
    send(Signal::SIGCONT);
    has_hit
}

/// A small disk. It is gone when this is dropped, unless somebody else has mounted it.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    is_ours: bool,
}

impl Disk {
    /// Mounts one at `folder`.
    ///
    /// # Errors
    /// If nothing can be mounted there.
    pub fn mount(folder: &Path) -> Result<Self> {
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", "size=96m,mode=700", "hetckpt-e2e"])
            .arg(folder);
        let mounted = command.output()?;
        ensure!(
            mounted.status.success(),
            "cannot mount: {}",
            String::from_utf8_lossy(&mounted.stderr).trim()
        );
        Ok(Self {
            folder: folder.to_owned(),
            is_ours: true,
        })
    }

    /// The one that somebody has mounted at `folder`.
    #[must_use]
    pub fn mounted_at(folder: PathBuf) -> Self {
        Self { folder, is_ours: false }
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }

    /// Waits, and leaves no byte free.
    ///
    /// # Errors
    /// If no file can be made there.
    pub fn fill_after(&self, delay: Duration) -> Result<()> {
        std::thread::sleep(delay);
        let mut file = File::create(self.filler())?;
        for size in [1 << 20, 4096, 1] {
            let bytes = vec![1; size];
            while file.write_all(&bytes).is_ok() {}
        }
        Ok(())
    }

    /// Removes what it was filled with.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn empty(&self) -> Result<()> {
        Ok(fs::remove_file(self.filler())?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_ours {
            // What still uses it keeps it, unseen.
            let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
        }
    }
}

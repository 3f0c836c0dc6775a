//! Who takes part in a dump or a restore, where it is to be found, and how it is broken.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use hetckpt_e2e::sandbox::{Sandbox, is_gone};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Exit codes of a program that a killed CRIU has left in code that it had injected: a trap, a fault.
pub const INJECTED: [i32; 2] = [128 + 5, 128 + 11];

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
    /// Its process id, if it is there; `command` is the command line's, `program` the program's.
    pub fn find(self, sandbox: &Sandbox, command: i32, program: i32) -> Option<i32> {
        match self {
            Self::Cli => (!is_gone(command)).then_some(command),
            Self::Program => (!is_gone(program)).then_some(program),
            Self::Criu => working_criu(sandbox),
            Self::Server => server(sandbox),
        }
    }
}

/// CRIU as it dumps or restores: not when it is asked for its version, and not a process that it rebuilds.
pub fn working_criu(sandbox: &Sandbox) -> Option<i32> {
    let mut there = sandbox.processes().into_iter();
    there.find(|&pid| is_criu(pid) && !is_criu(parent_of(pid)))
}

/// True if `pid` is CRIU at its work, or a process that CRIU has not rebuilt yet.
///
/// By its arguments: it may be started by way of a script or a loader, and then has another name.
fn is_criu(pid: i32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = words.split(|&byte| byte == 0).collect();
    let is_call = |pair: &[&[u8]]| pair[0].ends_with(b"criu") && matches!(pair[1], b"dump" | b"restore");
    words.windows(2).any(is_call)
}

/// Of several, the one that was started last.
fn server(sandbox: &Sandbox) -> Option<i32> {
    let found = sandbox.processes().into_iter();
    found
        .filter(|&pid| has_name(pid, "hetckpt-server") && !is_gone(pid))
        .max()
}

/// Processes of the sandbox, zombies aside, with their names; CRIU is called `criu`.
pub fn names(sandbox: &Sandbox) -> Vec<(i32, String)> {
    let name = |pid: i32| match is_criu(pid) {
        true => "criu".to_owned(),
        false => fs::read_to_string(format!("/proc/{pid}/comm"))
            .unwrap_or_default()
            .trim()
            .to_owned(),
    };
    let there = sandbox.processes().into_iter().filter(|&pid| !is_gone(pid));
    there.map(|pid| (pid, name(pid))).collect()
}

fn has_name(pid: i32, name: &str) -> bool {
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

/// Kills those of `actors` that are there, or stops them for as long as `hang` says. False if none was there.
pub fn strike(sandbox: &Sandbox, actors: &[Actor], command: i32, program: i32, hang: Option<Duration>) -> bool {
    let found: Vec<Pid> = actors
        .iter()
        .filter_map(|actor| actor.find(sandbox, command, program))
        .map(Pid::from_raw)
        .collect();
    // Each may have ended by itself meanwhile.
    let send = |signal: Signal| found.iter().filter(|&&pid| kill(pid, signal).is_ok()).count() > 0;
    let Some(time) = hang else {
        return send(Signal::SIGKILL);
    };
    let has_hit = send(Signal::SIGSTOP);
    std::thread::sleep(time);
    send(Signal::SIGCONT);
    has_hit
}

/// A small disk. It is gone when this is dropped.
pub struct Disk(PathBuf);

impl Disk {
    /// Mounts one at `folder`.
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
        Ok(Self(folder.to_owned()))
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Waits, and leaves no byte free.
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
    pub fn empty(&self) -> Result<()> {
        Ok(fs::remove_file(self.filler())?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What still uses it keeps it, unseen.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

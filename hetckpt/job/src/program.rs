//! A job's program while it runs: the command that stands in for it, its process, its device servers.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use procfs::process::Process;
use tempfile::TempDir;

use hetckpt_report::exit;
use hetckpt_report::failure::Failure;
use hetckpt_ring::failure_code::Code;
use hetckpt_supervise::namespaces::Choice;
use hetckpt_supervise::{process_tree, server_list};

use crate::options::Options;

/// How often device servers are looked for: until there is one, and afterwards.
const LOOKS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// How long a program has to end by itself when its device server is gone.
const LOST_LIMIT: Duration = Duration::from_secs(5);

/// A device server of the program.
#[derive(Clone, Debug)]
struct Server {
    app: i32,
    pid: i32,
    device: String,
    memory_bytes: u64,
}

/// The program.
#[derive(Debug)]
pub struct Program {
    /// `hetckpt run` or `restore`.
    child: Child,
    /// With the file that gets the process id.
    scratch: TempDir,
    pid: Option<i32>,
    servers: Vec<Server>,
    looked: Option<Instant>,
    lost_since: Option<Instant>,
}

impl Program {
    /// Starts the job's command, by `hetckpt run`.
    pub fn start(options: &Options, device: &str) -> Result<Self, Failure> {
        let arguments = std::iter::once("--".into()).chain(options.command.iter().cloned());
        Self::spawn("run", options, device, arguments.collect())
    }

    /// Goes on from an archive, by `hetckpt restore`. Files that the program has written since are cut back if
    /// `is_periodic`.
    pub fn go_on(options: &Options, device: &str, archive: &Path, is_periodic: bool) -> Result<Self, Failure> {
        let mut arguments: Vec<OsString> = vec![];
        if is_periodic {
            arguments.push("--rewind-outputs".into());
        }
        arguments.push(archive.into());
        Self::spawn("restore", options, device, arguments)
    }

    fn spawn(verb: &str, options: &Options, device: &str, arguments: Vec<OsString>) -> Result<Self, Failure> {
        let cannot =
            |e: io::Error| Failure::new(Code::StandIn, format!("cannot start `hetckpt {verb}`")).note(e.to_string());
        let scratch = TempDir::with_prefix("hetckpt-job-").map_err(cannot)?;
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        command.args([verb, "--device", device, "--namespaces", namespaces(options.namespaces)]);
        command
            .arg("--pid-file")
            .arg(scratch.path().join("pid"))
            .args(arguments);
        // What is sent to our whole group is passed on once.
        let child = command.process_group(0).spawn().map_err(cannot)?;
        Ok(Self {
            child,
            scratch,
            pid: None,
            servers: vec![],
            looked: None,
            lost_since: None,
        })
    }

    /// The program's process id, once it runs.
    pub fn pid(&mut self) -> Option<i32> {
        if self.pid.is_none() {
            let text = fs::read_to_string(self.scratch.path().join("pid"));
            self.pid = text.ok().and_then(|text| text.trim().parse().ok());
        }
        self.pid
    }

    /// True if its process id was told: it runs, or has run.
    pub fn has_begun(&self) -> bool {
        self.pid.is_some()
            || self
                .scratch
                .path()
                .join("pid")
                .metadata()
                .is_ok_and(|file| file.len() > 0)
    }

    /// The exit code of the command that stands in for it, if it has ended.
    pub fn exit_code(&mut self) -> Option<u8> {
        let status = self.child.try_wait().ok()??;
        Some(exit::code_of(status))
    }

    /// Passes a signal on, by the command that stands in for it.
    pub fn pass_on(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).unwrap_or(-1);
        // It may have ended just now.
        let _ = kill(Pid::from_raw(pid), signal);
    }

    /// Ends it as SIGTERM would: it may have a handler for that, else it is killed.
    pub fn terminate(&mut self) {
        let Some(pid) = self.pid() else {
            // The command has not begun: nothing is lost by its end.
            let _ = self.child.kill();
            return;
        };
        let caught = Process::new(pid)
            .and_then(|process| process.status())
            .map_or(0, |status| status.sigcgt);
        let has_handler = caught >> (Signal::SIGTERM as u32 - 1) & 1 == 1;
        let signal = if has_handler { Signal::SIGTERM } else { Signal::SIGKILL };
        let _ = kill(Pid::from_raw(pid), signal);
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        } else {
            let _ = self.child.kill();
        }
    }

    /// Looks after its device servers. A program whose server is gone is ended after a while, if it does not end by
    /// itself: it cannot go on.
    pub fn look_after_servers(&mut self) {
        let Some(root) = self.pid() else { return };
        let interval = LOOKS[usize::from(!self.servers.is_empty())];
        if self.looked.is_none_or(|looked| looked.elapsed() > interval) {
            self.looked = Some(Instant::now());
            self.find_servers(root);
        }
        let is_lost = |server: &Server| process_tree::is_gone(server.pid) && !process_tree::is_gone(server.app);
        if self.servers.iter().any(is_lost) {
            let since = *self.lost_since.get_or_insert_with(Instant::now);
            if since.elapsed() > LOST_LIMIT {
                self.kill();
            }
        }
    }

    fn find_servers(&mut self, root: i32) {
        let tree = process_tree::tree(root);
        // One that does not answer is found the next time.
        let rows = server_list::all().unwrap_or_default();
        for row in rows {
            let (Ok(app), Ok(pid)) = (i32::try_from(row.pid), i32::try_from(row.server_pid)) else {
                continue;
            };
            if !tree.contains(&app) {
                continue;
            }
            self.servers.retain(|known| known.app != app);
            self.servers.push(Server {
                app,
                pid,
                device: row.device,
                memory_bytes: row.memory_bytes,
            });
        }
    }

    /// The device whose server was gone while the program was not, if one was.
    pub fn lost_device(&self) -> Option<&str> {
        self.lost_since?;
        let gone = self.servers.iter().find(|server| process_tree::is_gone(server.pid));
        gone.map(|server| &*server.device)
    }

    /// The device that it uses, as far as is known.
    pub fn device(&self) -> &str {
        self.servers.first().map_or("", |server| &server.device)
    }

    /// Memory of its processes and its devices, bytes.
    pub fn memory_bytes(&mut self) -> u64 {
        let Some(root) = self.pid() else { return 0 };
        if let Some(looked) = &mut self.looked {
            // It may have asked for much meanwhile.
            if looked.elapsed() > LOOKS[0] {
                *looked = Instant::now();
                self.find_servers(root);
            }
        }
        let resident = |pid: i32| {
            let stat = Process::new(pid).and_then(|process| process.stat()).ok()?;
            Some(stat.rss.saturating_mul(procfs::page_size()))
        };
        let of_processes: u64 = process_tree::tree(root).into_iter().filter_map(resident).sum();
        of_processes.saturating_add(self.servers.iter().map(|server| server.memory_bytes).sum())
    }
}

/// Process ids may be taken on the next node, so root has namespaces too; other users have them where they can.
fn namespaces(wanted: Option<Choice>) -> &'static str {
    match wanted {
        Some(Choice::Always) => "always",
        Some(Choice::Never) => "never",
        Some(Choice::Auto) => "auto",
        None if geteuid().is_root() => "always",
        None => "auto",
    }
}

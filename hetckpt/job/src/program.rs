//! A job's program while it runs: the command that stands in for it, its process, its device servers.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use procfs::process::Process;
use rustix::process::{PidfdFlags, pidfd_open};
use tempfile::TempDir;

use hetckpt_report::failure::Failure;
use hetckpt_report::{exit, remark};
use hetckpt_ring::failure_code::Code;
use hetckpt_supervise::namespaces::Choice;
use hetckpt_supervise::{process_tree, server_list};

use crate::asked::{Asked, Requests};
use crate::options::Options;

/// How often device servers are looked for: until there is one, and afterwards.
const LOOKS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// How long a program has to end by itself when its device server is gone.
const LOST_LIMIT: Duration = Duration::from_secs(5);

/// A device server of the program.
#[derive(Clone, Debug)]
struct Server {
    pid: i32,
    device: String,
    memory_bytes: u64,
    /// It was gone while its process was not.
    is_lost: Arc<AtomicBool>,
}

/// The program.
#[derive(Debug)]
pub struct Program {
    /// `hetckpt run` or `restore`.
    child: Child,
    /// With the file that gets the process id, and the socket of `requests`.
    scratch: TempDir,
    /// Where the program asks for checkpoints, if it can.
    requests: Option<Requests>,
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

    /// Goes on from an archive, a file or in a store, by `hetckpt restore`. Files that the program has written since
    /// are cut back if `is_periodic`.
    pub fn go_on(options: &Options, device: &str, archive: &Path, is_periodic: bool) -> Result<Self, Failure> {
        let mut arguments: Vec<OsString> = vec![];
        if is_periodic {
            arguments.push("--rewind-outputs".into());
        }
        if let Some(folder) = &options.cwd {
            arguments.extend(["--cwd".into(), folder.into()]);
        }
        if let Some(file) = &options.key_file {
            arguments.extend(["--key-file".into(), file.into()]);
        }
        arguments.push(archive.into());
        Self::spawn("restore", options, device, arguments)
    }

    fn spawn(verb: &str, options: &Options, device: &str, arguments: Vec<OsString>) -> Result<Self, Failure> {
        let cannot =
            |e: io::Error| Failure::new(Code::StandIn, format!("cannot start `hetckpt {verb}`")).note(e.to_string());
        let scratch = TempDir::with_prefix("hetckpt-job-").map_err(cannot)?;
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        command.args([
            verb,
            "--end-with-starter",
            "--device",
            device,
            "--namespaces",
            namespaces(options.namespaces),
        ]);
        command.arg("--pid-file").arg(scratch.path().join("pid"));
        let socket = scratch.path().join("job.sock");
        let requests = Requests::listen(&socket)
            .inspect_err(|e| remark::note(format!("the program cannot ask for checkpoints: {e}")))
            .ok();
        if requests.is_some() {
            command.arg("--job").arg(socket);
        }
        command.args(arguments);
        // What is sent to our whole group is passed on once.
        let child = command.process_group(0).spawn().map_err(cannot)?;
        Ok(Self {
            child,
            scratch,
            requests,
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

    /// A checkpoint that the program asks for, if it has asked.
    pub fn asked(&self) -> Option<Asked> {
        self.requests.as_ref()?.next()
    }

    /// The exit code of the command that stands in for it, if it has ended.
    pub fn exit_code(&mut self) -> Option<u8> {
        let status = self.child.try_wait().ok()??;
        Some(exit::code_of(status))
    }

    /// True if the program has ended, even if what stands in for it has not.
    pub fn is_over(&mut self) -> bool {
        self.exit_code().is_some() || self.pid().is_some_and(process_tree::is_gone)
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
        if self.lost_device().is_some() {
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
            if let Some(known) = self.servers.iter_mut().find(|known| known.pid == pid) {
                (known.device, known.memory_bytes) = (row.device, row.memory_bytes);
                continue;
            }
            self.servers.push(Server {
                pid,
                device: row.device,
                memory_bytes: row.memory_bytes,
                is_lost: watch(app, pid),
            });
        }
    }

    /// The device whose server was gone while the program was not, if one was.
    pub fn lost_device(&self) -> Option<&str> {
        let lost = self
            .servers
            .iter()
            .find(|server| server.is_lost.load(Ordering::Acquire));
        lost.map(|server| &*server.device)
    }

    /// The device that it uses, as far as is known.
    pub fn device(&self) -> &str {
        self.servers.first().map_or("", |server| &server.device)
    }

    /// Memory of its processes and its devices, bytes. Its device servers are asked anew.
    pub fn memory_bytes(&mut self) -> u64 {
        let Some(root) = self.pid() else { return 0 };
        self.looked = Some(Instant::now());
        self.find_servers(root);
        let resident = |pid: i32| {
            let stat = Process::new(pid).and_then(|process| process.stat()).ok()?;
            Some(stat.rss.saturating_mul(procfs::page_size()))
        };
        let of_processes: u64 = process_tree::tree(root).into_iter().filter_map(resident).sum();
        of_processes.saturating_add(self.servers.iter().map(|server| server.memory_bytes).sum())
    }
}

/// Waits beside all else for the end of the server `pid`, and looks at once whether its process `app` is still there:
/// that one may end a moment later, for want of the server.
fn watch(app: i32, pid: i32) -> Arc<AtomicBool> {
    let is_lost = Arc::new(AtomicBool::new(false));
    let server = rustix::process::Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // One that cannot be had is gone already, and nobody knows what was first.
    let Some(server) = server else { return is_lost };
    let found = Arc::clone(&is_lost);
    std::thread::spawn(move || {
        let mut awaited = [PollFd::new(server.as_fd(), PollFlags::POLLIN)];
        while let Err(nix::Error::EINTR) = poll(&mut awaited, PollTimeout::NONE) {}
        found.store(!process_tree::has_ended_or_ends(app), Ordering::Release);
    });
    is_lost
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

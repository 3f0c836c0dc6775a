//! The process to be dumped: is it there, is it ours, what belongs to it.

use hetckpt_ring::failure_code::Code;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use procfs::process::Process;

use hetckpt_report::failure::Failure;

use crate::namespaces::pids;
use crate::process_tree::{is_ending, link_target, tree};

/// How long a process may be in the midst of becoming another program. A busy machine may leave it there for seconds.
const EXEC_LIMIT: Duration = Duration::from_secs(10);

/// How often a process that has arguments, but no environment, is looked at: an exec may just have begun, and a busy
/// machine lets nobody go on for a while.
const LOOKS: u32 = 1500;

/// A process and its descendants.
#[derive(Debug)]
pub struct Target {
    /// The root.
    pub pid: i32,
    /// Command line of the root.
    pub command: Vec<String>,
    /// What stdin, stdout and stderr are open on.
    pub stdio: Vec<String>,
    /// True if CRIU needs `--shell-job`: the root does not lead its session, or has a terminal.
    pub is_shell_job: bool,
}

impl Target {
    /// Looks `pid` up and makes sure that it runs under hetckpt.
    pub fn find(pid: i32) -> Result<Self, Failure> {
        let process = Process::new(pid).map_err(|_| no_such(pid))?;
        let stat = process.stat().map_err(|_| no_such(pid))?;
        if matches!(stat.state, 'Z' | 'X') {
            return Err(no_such(pid).note("it has ended and waits for its parent to notice"));
        }
        ensure_is_ours(&process)?;
        if !runs_under_shim(&process) {
            // One that has no memory any more has no environment that would tell.
            if process.stat().map_or(true, |stat| is_ending(&stat)) {
                return Err(no_such(pid).note("it is just ending"));
            }
            let pid = pids::called(pid);
            return Err(Failure::new(
                Code::NotUnderHetckpt,
                format!("process {pid} was not started under hetckpt"),
            )
            .note("its CUDA calls go to a driver, or it makes none; the device state cannot be reached from outside")
            .state(format!("the program (pid {pid}) runs on; no archive was written"))
            .help(format!("start it as `hetckpt run -- {}`", stat.comm)));
        }
        let stdio: Vec<String> = (0..3).map(|fd| link_target(pid, fd)).collect();
        let has_terminal = stdio
            .iter()
            .any(|name| name.starts_with("/dev/pts/") || name.starts_with("/dev/tty"));
        Ok(Self {
            pid,
            command: process.cmdline().unwrap_or_default(),
            stdio,
            is_shell_job: has_terminal || stat.session != pid,
        })
    }

    /// The root's process id for whoever gave the command.
    pub fn called(&self) -> i32 {
        pids::called(self.pid)
    }

    /// The root and all its descendants, parents first.
    pub fn tree(&self) -> Vec<i32> {
        tree(self.pid)
    }
}

fn no_such(pid: i32) -> Failure {
    Failure::new(
        Code::NoSuchProcess,
        format!("there is no process {}", pids::called(pid)),
    )
    .help("`hetckpt ps` lists programs that can be dumped")
}

/// Fails if only others may look into the process.
fn ensure_is_ours(process: &Process) -> Result<(), Failure> {
    let own = geteuid();
    let owner = process.status().map_or(own.as_raw(), |status| status.euid);
    if own.is_root() || owner == own.as_raw() {
        return Ok(());
    }
    let pid = pids::called(process.pid);
    Err(
        Failure::new(Code::OtherUser, format!("process {pid} is of user {owner}"))
            .state(format!("the program (pid {pid}) runs on"))
            .help("do it as that user, or as root"),
    )
}

/// True if `process` was started so that it loads our `libcuda.so.1` at its first CUDA call, or one of its tree has a
/// server.
fn runs_under_shim(process: &Process) -> bool {
    let mark = std::ffi::OsStr::new(crate::launch::MARK);
    let deadline = Instant::now() + EXEC_LIMIT;
    let mut looks = 0;
    loop {
        // Asked before the environment: an exec that ends in between shows its environment at the next look.
        let has_arguments = process.cmdline().is_ok_and(|arguments| !arguments.is_empty());
        let environment = process.environ().unwrap_or_default();
        if environment.contains_key(mark) || tree(process.pid).into_iter().any(crate::server_client::has_server) {
            return true;
        }
        // Amid an execve(2), as at a program's start, it has memory, but no environment and no arguments.
        let may_be_in_exec =
            environment.is_empty() && process.stat().is_ok_and(|stat| stat.vsize != 0 && !is_ending(&stat));
        looks += u32::from(has_arguments);
        if !may_be_in_exec || looks > LOOKS || Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

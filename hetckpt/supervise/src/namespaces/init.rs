//! Process 1 of a job: starts the command within, takes care of orphans, and goes last.

use hetckpt_ring::failure_code::Code;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use hetckpt_report::failure::Failure;
use hetckpt_report::remark;
use hetckpt_ring::runtime_dir::runtime_dir;

use crate::namespaces::{INSIDE, KNOWN_ROOT_PID};
use crate::signals::HeldSignals;

/// File in the job's folder that is locked for as long as the init lives.
pub const LOCK: &str = "lock";

/// The way out where there can be no namespaces, or no /proc in them.
const HELP: &str = "in a container, have it started with all of /proc (podman run --security-opt unmask=ALL); or say \
                    --namespaces never; dumps and restores then need root";

/// How long device servers have to leave.
const LIMIT: Duration = Duration::from_secs(2);

/// What a mount has not.
const NONE: Option<&str> = None;

const INTERVAL: Duration = Duration::from_millis(2);

/// The init's work.
pub fn init(options: &Init) -> Result<ExitCode, Failure> {
    let cannot = |what: &str, why: String| {
        Failure::new(Code::NoNamespaces, format!("cannot {what}"))
            .note(why)
            .help(HELP)
    };
    // What is typed at a terminal reaches whoever stands in for the job, and is passed on once.
    nix::unistd::setsid().map_err(|e| cannot("start a session", e.to_string()))?;
    if !options.detach {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| cannot("end with its starter", e.to_string()))?;
    }
    let held = HeldSignals::hold()?;
    let lock = File::create(options.folder.join(LOCK)).and_then(|file| file.lock().map(|()| file));
    let _lock = lock.map_err(|e| cannot("lock the job's folder", e.to_string()))?;
    isolate(&options.folder).map_err(|(what, e)| cannot(what, e.to_string()))?;
    let inner = std::env::current_exe()
        .and_then(|program| Command::new(program).args(&options.command).env(INSIDE, "1").spawn());
    let inner = inner.map_err(|e| cannot("start the command", e.to_string()))?;
    let inner = i32::try_from(inner.id()).unwrap_or(-1);
    held.pass_to(inner);
    let code = wait_for(inner);
    if options.detach && code == 0 {
        stay_behind();
    }
    end_all();
    // From now on there is the user's runtime directory again.
    let _ = umount2(&runtime_dir(), MntFlags::MNT_DETACH);
    keep_logs(&options.folder);
    let _ = fs::remove_dir_all(&options.folder);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Own mounts: process ids as they are here, and the job's folder as the runtime directory.
fn isolate(folder: &Path) -> Result<(), (&'static str, Errno)> {
    let os = |what| move |e| (what, e);
    unshare(CloneFlags::CLONE_NEWNS).map_err(os("make a mount namespace"))?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE).map_err(os("keep the job's mounts to itself"))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, NONE).map_err(os("mount /proc"))?;
    bind(folder, &runtime_dir()).map_err(os("mount the job's runtime directory"))?;
    number_terminals_anew();
    Ok(())
}

/// Gives the job pseudo-terminals of its own, so that all their numbers are free. Linux lets root alone do so: else the
/// machine's stay.
fn number_terminals_anew() {
    const FOLDER: &str = "/dev/pts";
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let options = "newinstance,mode=0620,ptmxmode=0666";
    if mount(Some("devpts"), FOLDER, Some("devpts"), flags, Some(options)).is_ok()
        && !Path::new("/dev/ptmx").is_symlink()
        && bind(Path::new("/dev/pts/ptmx"), Path::new("/dev/ptmx")).is_err()
    {
        // Opened there, a terminal would be one of the machine's, and its other end here missing.
        let _ = umount2(FOLDER, MntFlags::MNT_DETACH);
    }
}

/// Makes what lies at `from` appear at `at` too.
fn bind(from: &Path, at: &Path) -> nix::Result<()> {
    mount(Some(from), at, NONE, MsFlags::MS_BIND, NONE)
}

/// Moves what device servers had to say from the job's folder to the user's runtime directory: process ids within are
/// the same in every job, so the folder's name goes in front.
fn keep_logs(folder: &Path) {
    let job = folder.file_name().unwrap_or_default().to_string_lossy();
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    for log in files.filter(|file| file.path().extension().is_some_and(|extension| extension == "log")) {
        // If it cannot be kept it goes the way of the folder.
        let name = format!("{job}-{}", log.file_name().to_string_lossy());
        let _ = fs::rename(log.path(), runtime_dir().join(name));
    }
}

/// Waits for process `pid` and gives its exit status as a shell does; orphans that end meanwhile are let go.
fn wait_for(pid: i32) -> i32 {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(ended, code)) if ended.as_raw() == pid => return code,
            Ok(WaitStatus::Signaled(ended, signal, _)) if ended.as_raw() == pid => return 128 + signal as i32,
            // It is gone without a trace.
            Err(Errno::ECHILD) => return 1,
            _ => {}
        }
    }
}

/// Lets go of the terminal or pipe of whoever restored a detached program, and waits for that one's end.
fn stay_behind() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdin(&null);
        let _ = nix::unistd::dup2_stdout(&null);
        let _ = nix::unistd::dup2_stderr(&null);
    }
    let root = fs::read_to_string(runtime_dir().join(KNOWN_ROOT_PID)).ok();
    if let Some(root) = root.and_then(|text| text.trim().parse().ok()) {
        wait_for(root);
    }
}

/// What a process in the job is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// This program: a dump, or its guardian.
    Command,
    /// This program, removing files that were laid out, once nobody uses them.
    Keeper,
    /// A device server.
    Server,
    /// All else.
    Program,
}

/// Ends what is left: nothing outlives the job. Dumps, and what they have left unfinished, come to their end first.
fn end_all() {
    while processes().values().any(|&kind| kind == Kind::Command) {
        let_go();
        std::thread::sleep(INTERVAL);
    }
    let started = Instant::now();
    loop {
        let left = processes();
        if left.is_empty() || started.elapsed() > LIMIT {
            return;
        }
        for (&pid, _) in left.iter().filter(|&(_, &kind)| kind == Kind::Program) {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let_go();
        std::thread::sleep(INTERVAL);
    }
}

/// Lets go of orphans that have ended.
fn let_go() {
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            return;
        }
    }
}

/// All other processes of the job that run.
fn processes() -> BTreeMap<i32, Kind> {
    let own = fs::metadata("/proc/self/exe").map(|file| (file.dev(), file.ino())).ok();
    let kind = |pid: i32| -> Option<Kind> {
        let file = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
        if Some((file.dev(), file.ino())) == own {
            let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let first = command.split(|&byte| byte == 0).nth(1);
            let is_keeper = first == Some(crate::hidden_verbs::KEEP.as_bytes());
            return Some(if is_keeper { Kind::Keeper } else { Kind::Command });
        }
        let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let is_server = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("hetckpt-server"));
        Some(if is_server { Kind::Server } else { Kind::Program })
    };
    let all = match procfs::process::all_processes() {
        Ok(all) => all,
        Err(e) => {
            remark::note(format!("cannot list the job's processes: {e}"));
            return BTreeMap::new();
        }
    };
    let pids = all.flatten().map(|process| process.pid).filter(|&pid| pid != 1);
    // Those that have ended, and wait for someone to notice, have no file.
    pids.filter_map(|pid| Some((pid, kind(pid)?))).collect()
}

/// Process 1 of a job.
#[derive(Debug, Args)]
pub struct Init {
    /// The command leaves before the program does.
    #[arg(long)]
    pub detach: bool,
    /// The job's runtime directory.
    pub folder: PathBuf,
    /// The arguments of the command to run within.
    #[arg(last = true, required = true, num_args = 1..)]
    pub command: Vec<OsString>,
}

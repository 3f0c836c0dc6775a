//! Going into a job's namespaces: where its processes have their own names, and CRIU the privileges that it needs.

use hetckpt_ring::failure_code::Code;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, geteuid, getppid, setgroups, setresgid, setresuid};
use procfs::ProcError;
use procfs::process::Process;

use hetckpt_report::exit;
use hetckpt_report::failure::Failure;

use crate::hidden_verbs::INIT;
use crate::namespaces::clocks::ClockError;
use crate::namespaces::{INSIDE, away, clocks, pids, privileges};
use crate::runtime_folder;
use crate::signals::HeldSignals;

/// What tells where the runtime directory is (`hetckpt_ring::runtime_dir`): within, as the job's init has them, whoever
/// comes from outside.
const RUNTIME_DIR_VARIABLES: [&str; 2] = ["HETCKPT_RUNTIME_DIR", "XDG_RUNTIME_DIR"];

/// If process `pid` belongs to a job with namespaces of its own, runs this very command again there and gives its exit
/// status; else it is run again only if the program's runtime directory is not ours.
pub fn run_where(pid: i32) -> Result<Option<ExitCode>, Failure> {
    if super::is_inside() || away::is_away() {
        end_with_caller();
    }
    let Some((inner, process, init)) = find(pid) else {
        runtime_folder::follow(pid)?;
        return Ok(None);
    };
    let cannot = |why: String| {
        Failure::new(Code::OtherUser, format!("cannot enter the namespaces of process {pid}"))
            .note(why)
            .help("do it as the user who runs it, or as root")
    };
    let becomes_user = becomes_user(&process).map_err(|e| cannot(e.to_string()))?;
    if becomes_user && !away::is_away() {
        return away::run_again().map(Some);
    }
    if becomes_user {
        away::leave().map_err(|e| cannot(e.to_string()))?;
    }
    let program = std::env::current_exe().map_err(|e| cannot(e.to_string()))?;
    let folder = std::env::current_dir().map_err(|e| cannot(e.to_string()))?;
    let held = HeldSignals::hold()?;
    let environment = init.environ().map_err(|e| cannot(e.to_string()))?;
    let (caller, files) = (getppid(), files_of(&program));
    enter(&process).map_err(|e| cannot(e.to_string()))?;
    // What is run there has our privileges. In a job it is what we are; whoever is first in a container may call itself
    // a job's init.
    if !becomes_user && files_of(&program) != files {
        let what = format!("process {pid} is in a container, which has files of its own");
        return Err(Failure::new(Code::OtherUser, what)
            .help("use the hetckpt in the container, by the process id that it has there"));
    }
    if becomes_user {
        // Whoever becomes another user is told no more of who has started them (prctl(2)).
        end_with_caller();
        if getppid() != caller {
            return Err(cannot("the command that was given has been killed".to_owned()));
        }
    }
    std::env::set_current_dir(&folder).map_err(|e| cannot(format!("{}: {e}", folder.display())))?;
    let mut command = Command::new(program);
    command
        .args(with_pid(std::env::args_os().skip(1), pid, inner))
        .env_remove(away::AWAY)
        .env(INSIDE, "1")
        .env(pids::CALLED, format!("{inner} {pid}"));
    if becomes_user {
        command.env(super::AS_ANOTHER, "1");
    }
    for name in RUNTIME_DIR_VARIABLES {
        match environment.get(OsStr::new(name)) {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut child = command.spawn().map_err(|e| cannot(e.to_string()))?;
    held.pass_until_end(&child, None)?;
    let status = child.wait().map_err(|e| cannot(e.to_string()))?;
    Ok(Some(exit::from_wait_status(status)))
}

/// Whoever kills the command that was given means this one.
fn end_with_caller() {
    // A failure would mean that this one does its work to the end.
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
}

/// What process `pid` is called in its job, if it belongs to one with namespaces of its own, the process, and the job's
/// init: what calls itself so, as may whoever is first in a container.
fn find(pid: i32) -> Option<(i32, Process, Process)> {
    let namespace = pids::namespace(pid)?;
    let own = i32::try_from(std::process::id()).ok().and_then(pids::namespace)?;
    if namespace == own {
        return None;
    }
    // A container's are no concern of ours: there may be neither CRIU nor hetckpt in it.
    let init = Process::new(pids::find(&namespace, 1)?).ok()?;
    let is_job = init.cmdline().ok()?.get(1).is_some_and(|argument| argument == INIT);
    is_job.then_some((pids::own_name(pid)?, Process::new(pid).ok()?, init))
}

/// What tells whether a mount namespace shows the files that we see: its root, and what is at the path of `program`.
fn files_of(program: &Path) -> [Option<(u64, u64)>; 2] {
    [Path::new("/"), program].map(|path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino())))
}

fn is_of_other_namespace(process: &Process) -> bool {
    let link = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user")).ok();
    link("self") != link(&process.pid.to_string())
}

/// Why namespaces cannot be entered (host).
#[derive(Debug, thiserror::Error)]
enum EnterError {
    /// The process cannot be looked at.
    #[error("{0}")]
    Process(ProcError),
    /// A namespace cannot be opened.
    #[error("its {name} namespace: {source}")]
    Open {
        /// Which.
        name: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// A namespace cannot be joined.
    #[error("its {name} namespace: {}", errno.desc())]
    Join {
        /// Which.
        name: &'static str,
        /// Cause.
        errno: Errno,
    },
    /// Linux does not let this process have the user's groups.
    #[error("cannot take on its groups: {}", .0.desc())]
    Groups(Errno),
    /// Linux does not let this process become the user.
    #[error("cannot become its user: {}", .0.desc())]
    User(Errno),
    /// Its clocks cannot be joined.
    #[error("{0}")]
    Clocks(ClockError),
    /// Privileges cannot be handed on.
    #[error("{0}")]
    Privileges(rustix::io::Errno),
}

/// True if this is root, and the job another user's: who is root here is nobody there.
fn becomes_user(process: &Process) -> Result<bool, EnterError> {
    let status = process.status().map_err(EnterError::Process)?;
    Ok(geteuid().is_root() && status.euid != 0 && is_of_other_namespace(process))
}

/// Joins the namespaces of `process`. That of process ids is for what is started from now on.
fn enter(process: &Process) -> Result<(), EnterError> {
    let pid = process.pid;
    let open = |name: &'static str| {
        File::open(format!("/proc/{pid}/ns/{name}")).map_err(|source| EnterError::Open { name, source })
    };
    let is_other_user = is_of_other_namespace(process);
    let becomes_user = becomes_user(process)?;
    let status = process.status().map_err(EnterError::Process)?;
    let (user, ids, mounts) = (open("user")?, open("pid")?, open("mnt")?);
    let join = |file: File, kind, name| setns(file, kind).map_err(|errno| EnterError::Join { name, errno });
    if is_other_user {
        // Within there is no way to change them.
        if becomes_user {
            let groups: Vec<Gid> = status.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
            setgroups(&groups).map_err(EnterError::Groups)?;
        }
        join(user, CloneFlags::CLONE_NEWUSER, "user")?;
        if becomes_user {
            let (uid, gid) = (Uid::from_raw(status.euid), Gid::from_raw(status.egid));
            setresgid(gid, gid, gid)
                .and_then(|()| setresuid(uid, uid, uid))
                .map_err(EnterError::User)?;
        }
    }
    if is_other_user {
        // A dump notes what its clocks show. As root CRIU does, which must stay outside for that.
        clocks::join(process).map_err(EnterError::Clocks)?;
    }
    join(ids, CloneFlags::CLONE_NEWPID, "pid")?;
    join(mounts, CloneFlags::CLONE_NEWNS, "mount")?;
    if is_other_user {
        privileges::hand_on().map_err(EnterError::Privileges)?;
    }
    Ok(())
}

/// The command line `arguments` with `inner` for the process id `pid`.
fn with_pid(arguments: impl Iterator<Item = OsString>, pid: i32, inner: i32) -> Vec<OsString> {
    let (option, named) = (OsString::from("--pid"), OsString::from(format!("--pid={pid}")));
    let mut follows = false;
    let replace = |argument: OsString| {
        let is_value = std::mem::replace(&mut follows, argument == option);
        if is_value && argument == *pid.to_string() {
            inner.to_string().into()
        } else if argument == named {
            format!("--pid={inner}").into()
        } else {
            argument
        }
    };
    arguments.map(replace).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_id_and_nothing_else_is_replaced() {
        let replaced = |line: &str| {
            let arguments = line.split(' ').map(OsString::from);
            let replaced = with_pid(arguments, 77, 1004);
            replaced
                .join(std::ffi::OsStr::new(" "))
                .into_string()
                .unwrap_or_default()
        };
        assert_eq!(replaced("dump --pid 77 -o 77"), "dump --pid 1004 -o 77");
        assert_eq!(replaced("dump -o 77 --pid=77"), "dump -o 77 --pid=1004");
        assert_eq!(replaced("migrate --to n:77 --pid 77"), "migrate --to n:77 --pid 1004");
    }
}

//! Making a job's namespaces, and standing in for it from without.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, SystemTime};

use hetckpt_ring::runtime_dir::ensure_runtime_dir;
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, getegid, geteuid};
use tempfile::TempDir;

use super::init::{INIT, LOCK};
use super::{Choice, KNOWN_ROOT_PID, ROOT_PID, pids, privileges};
use crate::diagnostic::Failure;
use crate::result_file::ResultFile;
use crate::supervise::HeldSignals;
use crate::{exit, output};

/// Folder of the jobs in the runtime directory.
pub const JOBS: &str = "jobs";
/// How old a job's folder is at least that nobody seems to use.
const STALE: Duration = Duration::from_secs(60);
/// The way out where there can be no namespaces.
const HELP: &str = "allow them (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone; on Ubuntu \
                    kernel.apparmor_restrict_unprivileged_userns=0), or go without: --namespaces never";
/// How often the program's process id is looked for.
const INTERVAL: Duration = Duration::from_millis(2);

/// What the command is that is run again within.
#[derive(Debug, Default)]
pub struct Job<'a> {
    /// It leaves as soon as the program runs.
    pub detach: bool,
    /// Takes the program's process id, as it is called here.
    pub pid_file: Option<&'a Path>,
}

/// Runs this very command again in namespaces of its own, and gives its exit status. `None` if there are to be none: whether they are
/// just not to be had is said.
pub fn run_inside(choice: Choice, job: &Job<'_>) -> Result<Option<ExitCode>, Failure> {
    if !choice.is_wanted() {
        return Ok(None);
    }
    let cannot = |what: &str, why: String| Failure::new("HK0810", format!("cannot {what}")).note(why);
    let pid_file = job.pid_file.map(|path| ResultFile::open(path, "HK0804")).transpose()?;
    let folder = job_folder().map_err(|why| cannot("make a folder for the job", why))?;
    let program = std::env::current_exe().map_err(|e| cannot("find this program", e.to_string()))?;
    // Before the first thread: a user namespace is for processes with one.
    let held = HeldSignals::hold()?;
    let (user, group) = (geteuid(), getegid());
    if let Err(errno) = unshare(flags()) {
        let failure = cannot("make namespaces for the job", reason(errno)).help(HELP);
        if choice == Choice::Always {
            return Err(failure);
        }
        output::note(format!(
            "{failure} ({}): going without, so CRIU will need root",
            failure.notes.join("; ")
        ));
        return Ok(None);
    }
    // From here on there is no way back.
    map_user(user, group).map_err(|e| cannot("take the user into the job's namespaces", e.to_string()).help(HELP))?;
    let mut init = Command::new(program);
    init.arg(INIT);
    if job.detach {
        init.arg("--detach");
    }
    init.arg(folder.path()).arg("--").args(std::env::args_os().skip(1));
    let init = init.spawn().map_err(|e| cannot("start the job", e.to_string()))?;
    stand_in(init, folder, job.detach, pid_file, &held).map(Some)
}

/// Waits for the job's end, or for a detached one's start.
fn stand_in(
    mut init: Child,
    folder: TempDir,
    detach: bool,
    mut pid_file: Option<ResultFile>,
    held: &HeldSignals,
) -> Result<ExitCode, Failure> {
    let lost = |e: std::io::Error| Failure::new("HK0810", "cannot wait for the job").note(e.to_string());
    let root_pid = folder.path().join(ROOT_PID);
    let mut is_known = false;
    while !is_known {
        if let Some(inner) = fs::read_to_string(&root_pid)
            .ok()
            .and_then(|text| text.trim().parse().ok())
        {
            let init = i32::try_from(init.id()).unwrap_or(-1);
            let pid = pids::namespace(init).and_then(|namespace| pids::find(&namespace, inner));
            // Before the command within goes on, and says by other files that the program runs.
            if let (Some(pid), Some(file)) = (pid, pid_file.take()) {
                file.write(&format!("{pid}\n"));
            }
            // It stays as it is only where the job's folder is gone, and so the job.
            let _ = fs::rename(&root_pid, folder.path().join(KNOWN_ROOT_PID));
            if detach {
                // The init removes it.
                let _ = folder.keep();
                output::line(pid.unwrap_or(inner).to_string());
                return Ok(ExitCode::SUCCESS);
            }
            is_known = true;
        }
        if let Some(status) = init.try_wait().map_err(lost)? {
            return Ok(exit::from_wait_status(status));
        }
        held.pass_until_end(&init, Some(INTERVAL))?;
    }
    held.pass_until_end(&init, None)?;
    let status = init.wait().map_err(lost)?;
    Ok(exit::from_wait_status(status))
}

/// New namespaces: a user's, if this is not root, and of process ids for what is started from now on. The init makes that of mounts,
/// so that this process sees the runtime directory as before.
fn flags() -> CloneFlags {
    match geteuid().is_root() {
        true => CloneFlags::CLONE_NEWPID,
        false => CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID,
    }
}

/// Makes the user the same within as without, and hands on what privileges there are within.
fn map_user(user: Uid, group: Gid) -> io::Result<()> {
    if user.is_root() {
        return Ok(());
    }
    let write = |file: &str, text: String| fs::write(Path::new("/proc/self").join(file), text);
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{user} {user} 1"))?;
    write("gid_map", format!("{group} {group} 1"))?;
    Ok(privileges::hand_on()?)
}

fn reason(errno: Errno) -> String {
    match errno {
        Errno::EPERM => "users may not make namespaces here".to_owned(),
        Errno::ENOSPC => "there are as many namespaces as are allowed (user.max_user_namespaces)".to_owned(),
        other => other.desc().to_owned(),
    }
}

/// A new folder in the runtime directory.
fn job_folder() -> Result<TempDir, String> {
    let jobs = ensure_runtime_dir().map_err(|e| e.to_string())?.join(JOBS);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&jobs)
        .map_err(|e| format!("{}: {e}", jobs.display()))?;
    for folder in folders(&jobs) {
        remove_if_stale(&folder);
    }
    tempfile::Builder::new()
        .prefix("job-")
        .tempdir_in(&jobs)
        .map_err(|e| format!("{}: {e}", jobs.display()))
}

/// The folders of jobs in `jobs`.
pub fn folders(jobs: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(jobs).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Removes the folder of a job that was killed along with its init.
fn remove_if_stale(folder: &Path) {
    let made = fs::metadata(folder).and_then(|metadata| metadata.modified());
    let is_old = made.is_ok_and(|made| SystemTime::now().duration_since(made).is_ok_and(|age| age > STALE));
    let is_used = File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock_shared().is_err());
    if is_old && !is_used {
        // Whoever else does the same may be faster.
        let _ = fs::remove_dir_all(folder);
    }
}

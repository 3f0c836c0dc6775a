//! Making a job's namespaces, and standing in for it from without.

use hetckpt_ring::failure_code::Code;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;
use std::{fs, io};

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, getegid, geteuid};
use tempfile::TempDir;

use hetckpt_report::failure::Failure;
use hetckpt_report::{exit, remark};

use crate::hidden_verbs::INIT;
use crate::namespaces::job_folders::job_folder;
use crate::namespaces::{Choice, KNOWN_ROOT_PID, ROOT_PID, pids, privileges};
use crate::outcome::Outcome;
use crate::result_file::ResultFile;
use crate::signals::HeldSignals;

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

/// Runs this very command again in namespaces of its own, and gives its exit status. `None` if there are to be none:
/// whether they are just not to be had is said.
pub fn run_inside(choice: Choice, job: &Job<'_>) -> Result<Option<Outcome>, Failure> {
    if !choice.is_wanted() {
        return Ok(None);
    }
    let cannot = |what: &str, why: String| Failure::new(Code::NoNamespaces, format!("cannot {what}")).note(why);
    let pid_file = job
        .pid_file
        .map(|path| ResultFile::open(path, Code::StandIn))
        .transpose()?;
    let folder = job_folder().map_err(|why| cannot("make a folder for the job", why.to_string()))?;
    let program = std::env::current_exe().map_err(|e| cannot("find this program", e.to_string()))?;
    // Before the first thread: a user namespace is for processes with one.
    let held = HeldSignals::hold()?;
    let (user, group) = (geteuid(), getegid());
    if let Err(errno) = unshare(flags()) {
        let failure = cannot("make namespaces for the job", reason(errno)).help(HELP);
        if choice == Choice::Always {
            return Err(failure);
        }
        remark::note(format!(
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
) -> Result<Outcome, Failure> {
    let lost = |e: std::io::Error| Failure::new(Code::NoNamespaces, "cannot wait for the job").note(e.to_string());
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
                return Ok(Outcome::Detached(pid.unwrap_or(inner)));
            }
            is_known = true;
        }
        if let Some(status) = init.try_wait().map_err(lost)? {
            return Ok(Outcome::Ended(exit::from_wait_status(status)));
        }
        held.pass_until_end(&init, Some(INTERVAL))?;
    }
    held.pass_until_end(&init, None)?;
    let status = init.wait().map_err(lost)?;
    Ok(Outcome::Ended(exit::from_wait_status(status)))
}

/// New namespaces: a user's, if this is not root, and of process ids for what is started from now on. The init makes
/// that of mounts, so that this process sees the runtime directory as before.
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

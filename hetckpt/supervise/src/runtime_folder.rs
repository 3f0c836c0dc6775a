//! The runtime directory of a program that somebody else has started, or ourselves with another environment.
//!
//! Where it is the program's environment tells (`hetckpt_ring::runtime_dir`), not ours. CRIU's plugin, the guardian and
//! all else that a dump starts must look there too, so this very command is run again, with that directory named.

use hetckpt_ring::failure_code::Code;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use procfs::process::Process;

use hetckpt_report::failure::Failure;
use hetckpt_ring::control_socket::ControlSocket;
use hetckpt_ring::runtime_dir::{runtime_dir, runtime_dir_of, socket_path};

use crate::{process_tree, server_client};

/// Names the runtime directory, for us and for whoever we start.
pub const VARIABLE: &str = "HETCKPT_RUNTIME_DIR";

/// Runs this command again with the runtime directory of the tree of `pid`, if that is not ours.
///
/// What has been restored has the environment of its first start, and its server where the restore's was: so our own
/// directory is it if a server of the tree answers there.
pub fn follow(pid: i32) -> Result<(), Failure> {
    let tree = process_tree::tree(pid);
    if tree.iter().any(|&pid| server_client::has_server(pid)) {
        return Ok(());
    }
    let named = |&pid: &i32| Some((pid, named_by(pid)?));
    let all: Vec<(i32, PathBuf)> = tree.iter().filter_map(named).collect();
    let first = all.first().cloned();
    // A session may have begun or ended since.
    let earlier = tree.iter().filter_map(|&pid| {
        let user = Process::new(pid).and_then(|process| process.status()).ok()?.euid;
        let folder = PathBuf::from(format!("/tmp/hetckpt-{user}"));
        let found = fs::symlink_metadata(&folder).ok()?;
        // Anybody may have made it.
        (found.is_dir() && found.uid() == user).then_some((pid, folder))
    });
    let serving = all
        .into_iter()
        .chain(earlier)
        .find(|(pid, folder)| is_served(*pid, folder));
    // Without a server yet: where the root would start one.
    match serving.or(first) {
        Some((_, folder)) if folder != runtime_dir() => Err(run_again(&folder)),
        _ => Ok(()),
    }
}

/// Gives the reason if that cannot be done.
fn run_again(folder: &Path) -> Failure {
    let cannot = |e: std::io::Error| Failure::new(Code::StandIn, "cannot run this command again").note(e.to_string());
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(e) => return cannot(e),
    };
    let mut command = Command::new(program);
    cannot(command.args(std::env::args_os().skip(1)).env(VARIABLE, folder).exec())
}

/// The runtime directory as process `pid` finds it; `None` if we may not look.
fn named_by(pid: i32) -> Option<PathBuf> {
    let process = Process::new(pid).ok()?;
    let uid = process.status().ok()?.euid;
    let environment = process.environ().ok()?;
    Some(runtime_dir_of(uid, |name| environment.get(OsStr::new(name)).cloned()))
}

/// The runtime directories of other users' device servers, and of such as have been started with others than `own`. A
/// folder is a server's only if it is the same user's: what calls itself a server may name any.
pub fn of_others(own: &Path) -> BTreeSet<PathBuf> {
    const SERVER: &str = "hetckpt-server";
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    // Linux keeps 15 bytes of a name.
    let servers = processes.filter(|process| {
        process
            .stat()
            .is_ok_and(|stat| SERVER.starts_with(&stat.comm) || stat.comm.starts_with(SERVER))
    });
    let folder_of = |process: Process| {
        let folder = named_by(process.pid)?;
        let (found, user) = (fs::symlink_metadata(&folder).ok()?, process.status().ok()?.euid);
        (found.is_dir() && found.uid() == user && folder != own).then_some(folder)
    };
    servers.filter_map(folder_of).collect()
}

fn is_served(pid: i32, folder: &Path) -> bool {
    let path = u32::try_from(pid).ok().map(|pid| socket_path(folder, pid));
    path.is_some_and(|path| ControlSocket::connect(&path).is_ok())
}

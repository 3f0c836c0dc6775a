//! A device server that root restores becomes its program's user first. Only then does it read what the program, or the
//! device, has left in a snapshot. Who that user is stands in a file of whoever dumped it.
#![allow(unsafe_code, reason = "fork has no safe wrapper")]

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use hetckpt_state::summary::ServerUser;
use nix::errno::Errno;
use nix::sys::socket::Backlog;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Gid, Uid, User, fork, getegid, geteuid, getgrouplist, setgroups, setresgid, setresuid};
use procfs::process::Process;

use crate::error::ServerError;
use crate::own_files::{SocketFile, remove_empty_log};
use crate::process;

/// As whom this process runs.
#[must_use]
pub fn own_user() -> ServerUser {
    ServerUser {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
    }
}

/// As whom a server is to run whose state names `recorded`, if not as this process does: root becomes whom that server
/// was.
#[must_use]
pub fn other_user(recorded: Option<ServerUser>) -> Option<ServerUser> {
    recorded.filter(|user| geteuid().is_root() && user.uid != 0)
}

/// Where that user's caches are.
#[must_use]
pub fn home(user: ServerUser) -> Option<PathBuf> {
    User::from_uid(Uid::from_raw(user.uid))
        .ok()
        .flatten()
        .map(|entry| entry.dir)
}

/// Becomes `user`, in the groups that they are in on this machine, for good, and is known as them to whoever connects
/// to `listener`.
///
/// # Errors
/// [`ServerError::Os`].
pub fn become_user(user: ServerUser, listener: &UnixListener) -> Result<(), ServerError> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let os = |call| {
        move |errno: Errno| ServerError::Os {
            call,
            source: errno.into(),
        }
    };
    setgroups(&groups_of(uid, gid)).map_err(os("setgroups"))?;
    setresgid(gid, gid, gid).map_err(os("setresgid"))?;
    setresuid(uid, uid, uid).map_err(os("setresuid"))?;
    // Who connects is told who listened last (`unix_listen` in Linux's net/unix/af_unix.c).
    nix::sys::socket::listen(&listener.as_fd(), Backlog::MAXCONN).map_err(os("listen"))
}

/// Makes sure that a server of root's serves only a program of root's: `pid` is there by now, so that nobody has to be
/// believed.
///
/// # Errors
/// [`ServerError::NotItsUser`], [`ServerError::Os`].
pub fn ensure_may_serve(pid: u32) -> Result<(), ServerError> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let status = i32::try_from(pid).map_err(|_| ServerError::NotItsUser { pid, uid: 0 });
    let status = Process::new(status?).and_then(|process| process.status());
    let status = status.map_err(|error| ServerError::Os {
        call: "reading the application's user",
        source: std::io::Error::other(error),
    })?;
    match [status.ruid, status.euid, status.suid].contains(&0) {
        true => Ok(()),
        false => Err(ServerError::NotItsUser { pid, uid: status.ruid }),
    }
}

fn groups_of(uid: Uid, gid: Gid) -> Vec<Gid> {
    let name = User::from_uid(uid)
        .ok()
        .flatten()
        .and_then(|entry| std::ffi::CString::new(entry.name).ok());
    name.and_then(|name| getgrouplist(&name, gid).ok())
        .unwrap_or_else(|| vec![gid])
}

/// Goes on in a child. This process stays as root, holds nothing, and removes, once the child has ended, what that one
/// may not: the socket's file, and `log` if there is nothing in it.
///
/// # Errors
/// [`ServerError::Os`].
pub fn go_on_in_child(socket: &SocketFile, log: &Path) -> Result<(), ServerError> {
    // SAFETY: this process has not started a thread yet, so the child has all there was.
    let forked = unsafe { fork() };
    let parent_of = forked.map_err(|errno| ServerError::Os {
        call: "fork",
        source: errno.into(),
    })?;
    let ForkResult::Parent { child } = parent_of else {
        return Ok(());
    };
    process::to_dev_null(0);
    process::to_dev_null(1);
    process::close_all_but_standard();
    while waitpid(child, None) == Err(Errno::EINTR) {}
    remove_empty_log(log);
    socket.remove();
    std::process::exit(0)
}

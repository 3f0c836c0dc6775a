//! A process tree that CRIU leaves stopped, and the promise that it does not stay so: not if the dump fails, and not if
//! this program or CRIU is killed.
//!
//! The promise is kept by a guardian, this program again, at the other end of a pipe. It gets a byte when all is well.
//! If the pipe closes without, nobody is left who would bring the dump to its end, so the guardian does: the archive is
//! complete if the file that was written has its name, and then the tree is ended, as it would have been; else it runs
//! on. CRIU holds the pipe too: as long as it works on the tree, which it does even when we are gone, nobody else may.
//! So do helpers of its, which stop themselves and would stay so for ever if both it and we were killed: then the
//! guardian ends them.
//!
//! Where the tree moves to another node, the file that is or is not there is the decision to release it, and the
//! guardian also tells that node of it (`migration/handover.rs`).

use hetckpt_ring::failure_code::Code;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use clap::Args;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::getppid;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use hetckpt_archive::file_id::FileId;
use hetckpt_criu::run;
use hetckpt_criu::tcp_lock::{self, UndoError};
use hetckpt_report::failure::Failure;
use hetckpt_report::remark;

use crate::hidden_verbs::GUARD;
use crate::target::Target;
use crate::{dump_lock, process_tree};

/// How often a guardian looks whether it has been left, and how often in a row it must be so.
const LOOK_INTERVAL_MS: u8 = 200;

const LOOKS_AT_STOPPED: u32 = 10;

/// What a dump writes.
pub struct Output<'a> {
    /// Folder of the images and of the unfinished archive: nobody needs it when the dump is over.
    pub images: &'a Path,
    /// The archive, if the tree is to be ended once it is there.
    pub archive: Option<&'a Path>,
    /// What tells another node whether the tree is its own now, if it moves.
    pub handover: Option<&'a Path>,
    /// Folder of CRIU's images, if CRIU takes the tree's TCP connections.
    pub tcp_in: Option<&'a Path>,
}

/// A tree that is going to be stopped. When this is dropped it runs on, but for processes that were stopped before.
pub struct StoppedTree<'a> {
    target: &'a Target,
    stopped_before: BTreeSet<i32>,
    tcp_in: Option<&'a Path>,
    guardian: Child,
    /// Our end of the pipe.
    pipe: Option<ChildStdin>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It stands still, or will soon.
    Stopped,
    GoesOn,
    Ended,
}

impl<'a> StoppedTree<'a> {
    /// Notes who is stopped already, and starts the guardian. Programs started from now on hold its pipe.
    pub fn prepare(target: &'a Target, output: &Output<'a>) -> Result<Self, Failure> {
        let cannot = |why: String| Failure::new(Code::StandIn, "cannot start the guardian of the program").note(why);
        let stopped_before = process_tree::stopped(target.pid);
        let program = std::env::current_exe().map_err(|e| cannot(e.to_string()))?;
        let mut command = Command::new(program);
        command.args([GUARD, &target.pid.to_string()]);
        command.args(["--parent", &std::process::id().to_string()]);
        command.arg("--images").arg(output.images);
        if let Some(archive) = output.archive {
            let archive = std::path::absolute(archive).map_err(|e| cannot(e.to_string()))?;
            command.arg("--archive").arg(archive);
        }
        if let Some(handover) = output.handover {
            command.arg("--handover").arg(handover);
        }
        if let Some(images) = output.tcp_in {
            command.arg("--tcp-in").arg(images);
        }
        let mut guardian = command
            .args(stopped_before.iter().map(i32::to_string))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What is sent to our whole group is not to reach it.
            .process_group(0)
            .spawn()
            .map_err(|e| cannot(e.to_string()))?;
        let pipe = guardian.stdin.take();
        let tree = Self {
            target,
            stopped_before,
            tcp_in: output.tcp_in,
            guardian,
            pipe,
            state: State::Stopped,
        };
        if let Some(pipe) = &tree.pipe {
            fcntl(pipe, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|e| cannot(e.to_string()))?;
        }
        Ok(tree)
    }

    /// Lets the tree run on. The guardian leaves when this is dropped.
    pub fn go_on(&mut self) {
        self.state = State::GoesOn;
        let left = resume(self.target.pid, &self.stopped_before, self.tcp_in);
        left.unwrap_or_else(|why| remark::note(format!("the program's TCP connections may not go on: {why}")));
    }

    /// Ends the tree: there is nothing to run on. The guardian leaves when this is dropped.
    pub fn end(&mut self) -> bool {
        self.state = State::Ended;
        let has_ended = process_tree::end(self.target.pid);
        if let Some(remark) = self.tcp_in.and_then(tcp_lock::leave) {
            remark::note(remark);
        }
        has_ended
    }
}

impl Drop for StoppedTree<'_> {
    fn drop(&mut self) {
        if self.state == State::Stopped {
            self.go_on();
        }
        if let Some(mut pipe) = self.pipe.take() {
            // A guardian that is gone needs no word.
            let _ = pipe.write_all(b".");
        }
        let _ = self.guardian.wait();
    }
}

/// The guardian: waits for the word on stdin that all is well. If it does not come, ends what was begun. `conclude`
/// tells another node, by what lies at [`Guard::handover`], whether the tree is its own now.
pub fn guard(guarded: &Guard, conclude: impl FnOnce(&Path, bool)) {
    // Should the process end and its id be given to another, that is not to be taken for it.
    let process = Pid::from_raw(guarded.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    if is_told_that_all_is_well(guarded) {
        return;
    }
    let is_released = match (&guarded.archive, &guarded.handover) {
        (None, _) => false,
        // The decision lies in a folder of ours.
        (Some(decision), Some(_)) => decision.exists(),
        (Some(archive), None) => has_its_name(archive, &guarded.images),
    };
    if process.is_some_and(|process| !has_ended(&process)) {
        if is_released {
            process_tree::end(guarded.pid);
            // There is nobody to tell.
            let _ = guarded.tcp_in.as_deref().and_then(tcp_lock::leave);
        } else {
            let stopped = guarded.stopped.iter().copied().collect();
            // There is nobody to tell what does not go on.
            let _ = resume(guarded.pid, &stopped, guarded.tcp_in.as_deref());
        }
    }
    if let Some(handover) = &guarded.handover {
        conclude(handover, is_released);
    }
    let _ = fs::remove_dir_all(&guarded.images);
    dump_lock::sweep_all();
}

/// Lets the tree of `root` run on, but for those `stopped_before`, with the connections that CRIU has taken. Says what
/// could not be undone of that.
fn resume(root: i32, stopped_before: &BTreeSet<i32>, tcp_in: Option<&Path>) -> Result<(), UndoError> {
    let undone = tcp_in.map_or(Ok(()), |images| tcp_lock::undo(images, &process_tree::tree(root)));
    process_tree::resume(root, stopped_before);
    undone
}

/// Waits for the word. False if nobody is left who could give it: the pipe closes, or all that is left of CRIU are
/// helpers that wait for it, when we have been left as well.
fn is_told_that_all_is_well(guarded: &Guard) -> bool {
    let mut stdin = std::io::stdin();
    let mut looks = 0;
    loop {
        let polled = poll(&mut [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)], LOOK_INTERVAL_MS);
        if !matches!(polled, Ok(0) | Err(Errno::EINTR)) {
            return stdin.read_exact(&mut [0]).is_ok();
        }
        looks = match getppid().as_raw() != guarded.parent && run::has_only_left_stopped(&guarded.images) {
            true => looks + 1,
            false => 0,
        };
        // One that is found stopped now and then may be about to be set going.
        if looks == LOOKS_AT_STOPPED {
            run::end_left(&guarded.images);
            looks = 0;
        }
    }
}

/// True if the process is gone, or a zombie.
fn has_ended(process: &OwnedFd) -> bool {
    let awaited = PollFd::new(process.as_fd(), PollFlags::POLLIN);
    matches!(poll(&mut [awaited], PollTimeout::ZERO), Ok(1..))
}

/// The file among the images that tells which file the archive is, as soon as it may have its name.
pub fn id_file(images: &Path) -> PathBuf {
    images.join("hetckpt-archive-id")
}

/// True if the archive that was written has its name, which it gets when it is complete, on disk and verified. A file
/// of that name may be anybody's.
fn has_its_name(archive: &Path, images: &Path) -> bool {
    let written = fs::read_to_string(id_file(images));
    FileId::at(archive).is_some_and(|found| written.is_ok_and(|written| written == found.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_the_file_that_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let (archive, written) = (folder.path().join("job.hetsnap"), folder.path().join("temporary"));
        fs::write(&archive, "somebody else's").unwrap();
        assert!(!has_its_name(&archive, folder.path()));
        fs::write(&written, "ours").unwrap();
        fs::write(id_file(folder.path()), FileId::at(&written).unwrap().to_string()).unwrap();
        assert!(!has_its_name(&archive, folder.path()));
        fs::rename(&written, &archive).unwrap();
        assert!(has_its_name(&archive, folder.path()));
    }
}

/// What a `hetckpt dump` leaves behind if it is killed.
#[derive(Debug, Args)]
pub struct Guard {
    /// The program.
    pub pid: i32,
    /// Who started this: that one may be gone before this could ask.
    #[arg(long)]
    pub parent: i32,
    /// Folder with what is unfinished.
    #[arg(long)]
    pub images: PathBuf,
    /// Archive with which the program is to end.
    #[arg(long)]
    pub archive: Option<PathBuf>,
    /// What tells another node whether the program is its own now.
    #[arg(long)]
    pub handover: Option<PathBuf>,
    /// Folder of CRIU's images, if it takes TCP connections.
    #[arg(long)]
    pub tcp_in: Option<PathBuf>,
    /// Processes of its tree that are to stay stopped.
    pub stopped: Vec<i32>,
}

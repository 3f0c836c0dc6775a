//! Keeps what a restore has laid out for as long as a process maps it: this program again, which waits for the restored
//! program's end and then removes the folder.
//!
//! It outlives the restore, which may leave before the program does (`--detach`) or be killed.

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use clap::Args;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use hetckpt_report::remark;
use hetckpt_supervise::hidden_verbs::KEEP;
use hetckpt_supervise::mapped_files::is_mapped;

use crate::carried::layout::Layout;

/// How often children that outlive the root are looked for.
const INTERVAL: Duration = Duration::from_secs(1);

/// For how long [`Keeper::finish`] waits.
const LIMIT: Duration = Duration::from_secs(2);

/// The keeper of a folder.
pub struct Keeper(Child);

impl Keeper {
    /// Hands the folder over to a keeper, until process `pid` and all others that map files in it are gone.
    pub fn start(layout: Layout, pid: i32) -> Option<Self> {
        let folder = layout.keep();
        let spawn = || -> io::Result<Child> {
            Command::new(std::env::current_exe()?)
                .arg(KEEP)
                .arg(pid.to_string())
                .arg(&folder)
                .current_dir("/")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                // What is sent to our whole group is not to reach it.
                .process_group(0)
                .spawn()
        };
        match spawn() {
            Ok(child) => Some(Self(child)),
            Err(e) => {
                remark::note(format!(
                    "cannot start the process that cleans up {} ({e}): remove that folder when the program has ended",
                    folder.display()
                ));
                None
            }
        }
    }

    /// Waits a moment for the keeper of a program that has ended, so that the folder is gone with it.
    pub fn finish(mut self) {
        let deadline = Instant::now() + LIMIT;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The keeper's work.
pub fn keep(options: &Keep) {
    wait_for_end_of(options.pid);
    while is_mapped(&options.folder) {
        std::thread::sleep(INTERVAL);
    }
    // Whatever stays, there is nobody to tell.
    let _ = fs::remove_dir_all(&options.folder);
}

fn wait_for_end_of(pid: i32) {
    // One that cannot be had has ended.
    let Some(process) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return;
    };
    let mut awaited = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    while let Err(Errno::EINTR) = poll(&mut awaited, PollTimeout::NONE) {}
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stays_while_a_program_of_it_runs() {
        let folder = tempfile::tempdir().unwrap().keep();
        let program = folder.join("sleep");
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = Command::new(&program).arg("1000").spawn().unwrap();
        // Until it has become the program.
        while !is_mapped(&folder) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let options = Keep {
            pid: i32::try_from(child.id()).unwrap(),
            folder: folder.clone(),
        };
        let keeper = std::thread::spawn(move || keep(&options));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!keeper.is_finished() && folder.exists());
        child.kill().unwrap();
        child.wait().unwrap();
        keeper.join().unwrap();
        assert!(!folder.exists());
    }
}

/// What `hetckpt restore` leaves behind where it has laid files out.
#[derive(Debug, Args)]
pub struct Keep {
    /// The program.
    pub pid: i32,
    /// The folder of the files.
    pub folder: PathBuf,
}

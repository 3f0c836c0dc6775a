//! Runs CRIU and finds the reason in its log when it fails.

use hetckpt_ring::failure_code::Code;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, umask};
use nix::unistd::Pid;
use procfs::process::{Process, Stat};
use rustix::process::{PidfdFlags, pidfd_open};

use hetckpt_report::failure::Failure;
use hetckpt_report::file_size;

use crate::locate::Criu;
use crate::log_advice;
use crate::lost_program::ProgramWatch;

/// Times that what a killed CRIU has left is looked for.
const MAX_LOOKS: usize = 1000;

/// Longer than CRIU takes to end a restore after the program has gone on and come to its end at once.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// Between looks for the program that CRIU restores, in milliseconds.
const LOOK_INTERVAL_MS: u16 = 1000;

/// What CRIU is to do.
pub struct Call<'a> {
    /// `dump`, `restore`.
    pub verb: &'a str,
    /// The folder of the images.
    pub images: &'a Path,
    /// An [`crate::image_streamer::ImageStreamer`] has the images.
    pub are_streamed: bool,
    /// Where CRIU puts its log, `VERB.log`, and its statistics.
    pub work_folder: &'a Path,
    /// More arguments.
    pub arguments: &'a [OsString],
    /// Added to our environment; a shim that this process may itself run under is kept away from CRIU.
    pub environment: &'a [(&'a str, OsString)],
    /// Our stdin, a terminal, is handed on.
    pub needs_terminal: bool,
    /// CRIU starts the program, and is ended if it waits for one that has been killed.
    pub starts_program: bool,
    /// Code of the failure, if it fails.
    pub failure_code: Code,
}

/// Runs CRIU and waits for it.
pub fn run(criu: &Criu, call: &Call<'_>) -> Result<(), Failure> {
    let log = call.work_folder.join(format!("{}.log", call.verb));
    let mut command = Command::new(&criu.program);
    command
        .arg(call.verb)
        .arg("-D")
        .arg(match call.are_streamed {
            // In the address of a socket there is no room for a long path.
            true => Path::new("."),
            false => call.images,
        })
        .arg("-W")
        .arg(call.work_folder)
        .arg("-o")
        .arg(&log)
        .args(call.arguments);
    if call.are_streamed {
        command.arg("--stream").current_dir(call.images);
    }
    if !nix::unistd::geteuid().is_root() {
        command.arg("--unprivileged");
    }
    command
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD")
        .stdin(if call.needs_terminal {
            Stdio::inherit()
        } else {
            Stdio::null()
        });
    for (name, value) in call.environment {
        command.env(name, value);
    }
    let failed = |reason: &str| log_advice::failure(call.failure_code, call.verb, reason);
    let watch = call.starts_program.then(|| ProgramWatch::new(LOST_AFTER));
    let Ended {
        status,
        said,
        has_lost_program,
    } = run_to_end(command, call.work_folder, watch).map_err(|e| failed(&e.to_string()))?;
    if has_lost_program {
        return Err(failed("the program was killed as CRIU let it go on"));
    }
    if status.success() {
        return Ok(());
    }
    let reason = first_error(&log).unwrap_or_else(|| match file_size::is_limited() {
        true => format!("{status}, without a word in its log (File too large?)"),
        false => format!("{status}"),
    });
    let mut failure = failed(&reason);
    for line in said.lines().filter(|l| l.contains("hetgpu")).take(4) {
        failure = failure.note(line.trim().to_owned());
    }
    Err(failure)
}

/// How a CRIU has ended.
struct Ended {
    status: ExitStatus,
    /// What it has said on standard error.
    said: String,
    /// It waited for a program that is no more, and was ended.
    has_lost_program: bool,
}

/// Runs CRIU to its end, which may be a violent one.
///
/// It has helpers that stop themselves until it goes on with them. If it is killed they stay, with all that it had
/// open, so that a pipe of ours would never end.
fn run_to_end(mut command: Command, work_folder: &Path, watch: Option<ProgramWatch>) -> io::Result<Ended> {
    let mut said = File::from(memfd_create(c"hetckpt-criu-stderr", MFdFlags::MFD_CLOEXEC)?);
    command.stdout(Stdio::null()).stderr(said.try_clone()?);
    // CRIU makes images, which hold the memory of programs, readable for all whom the umask lets. What a restored
    // program has is its own.
    let before = umask(Mode::S_IRWXG | Mode::S_IRWXO);
    let started = command.spawn();
    umask(before);
    let mut criu = started?;
    let has_lost_program = watch.is_some_and(|watch| ends_for_lost_program(&mut criu, work_folder, watch));
    let status = criu.wait()?;
    if !status.success() {
        end_left(work_folder);
    }
    let mut text = vec![];
    said.rewind()?;
    said.read_to_end(&mut text)?;
    Ok(Ended {
        status,
        said: String::from_utf8_lossy(&text).into_owned(),
        has_lost_program,
    })
}

/// Waits until CRIU has ended, or ends it because it waits for a program that is no more: then true.
fn ends_for_lost_program(criu: &mut Child, work_folder: &Path, mut watch: ProgramWatch) -> bool {
    let Ok(process) = pidfd_open(rustix::process::Pid::from_child(criu), PidfdFlags::empty()) else {
        return false;
    };
    // What it answers to an interruption by a signal serves as well as a look.
    while !matches!(
        poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], LOOK_INTERVAL_MS),
        Ok(1..)
    ) {
        let at_work: BTreeSet<i32> = at_work(work_folder).iter().map(|process| process.pid).collect();
        if watch.is_lost(&at_work) {
            end_left(work_folder);
            // Also one with other arguments.
            return criu.kill().is_ok();
        }
    }
    false
}

/// Ends what a CRIU that was killed has left of a work in `folder`. What one of them starts while it is looked for is
/// found the next time.
pub fn end_left(folder: &Path) {
    for _ in 0..MAX_LOOKS {
        let left = at_work(folder);
        if left.is_empty() {
            return;
        }
        for process in left {
            // One that has ended meanwhile needs no signal.
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// True if only such are left of a work in `folder` as have stopped themselves, which nobody will set going again.
pub fn has_only_left_stopped(folder: &Path) -> bool {
    has_only(&at_work(folder), is_stopped)
}

/// As [`has_only_left_stopped`], for those who do not know whether a command of ours still waits for that CRIU: then
/// its parent has our name, and whoever is left has been adopted.
pub fn has_only_left_orphans(folder: &Path) -> bool {
    let Ok(own) = Process::myself().and_then(|process| process.stat()) else {
        return false;
    };
    let left = at_work(folder);
    let is_adopted = |stat: &Stat| {
        let parent = Process::new(stat.ppid).and_then(|process| process.stat());
        parent.is_ok_and(|parent| parent.comm != own.comm && left.iter().all(|process| process.pid != parent.pid))
    };
    has_only(&left, |stat| is_stopped(stat) && is_adopted(stat))
}

/// True if `processes` are such, and there is one.
fn has_only(processes: &[Process], such: impl Fn(&Stat) -> bool) -> bool {
    !processes.is_empty()
        && processes
            .iter()
            .all(|process| process.stat().is_ok_and(|stat| such(&stat)))
}

fn is_stopped(stat: &Stat) -> bool {
    matches!(stat.state, 'T' | 't')
}

/// CRIU and its helpers, which have its very arguments, with a work folder that is `folder` or in it. It is no other's.
fn at_work(folder: &Path) -> Vec<Process> {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    let is_at_work = |process: &Process| {
        let arguments = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        let words: Vec<&[u8]> = arguments.split(|&byte| byte == 0).collect();
        let is_folder = |word: &[u8]| Path::new(OsStr::from_bytes(word)).starts_with(folder);
        words.windows(2).any(|pair| pair[0] == b"-W" && is_folder(pair[1]))
    };
    processes.filter(is_at_work).collect()
}

/// The first line in a CRIU log that tells what went wrong: our plugin's words before CRIU's own.
fn first_error(log: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&fs::read(log).ok()?).into_owned();
    let errors: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("Error (") || line.contains("hetgpu: error:"))
        // CRIU says these at level Error and carries on.
        .filter(|line| {
            !["Unable to set", "RLIMIT_NOFILE", "): tun:", "): net:"]
                .iter()
                .any(|harmless| line.contains(harmless))
        })
        .collect();
    let line = errors
        .iter()
        .find(|line| line.contains("hetgpu: error:"))
        .or(errors.first())?;
    // `(00.012345) Error (criu/files.c:12): message` → message
    let message = line
        .split_once("hetgpu: error: ")
        .map(|(_, m)| m)
        .or_else(|| line.split_once("): ").map(|(_, m)| m));
    Some(message.unwrap_or(line).trim().to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn images_are_for_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("pages-1.img");
        let mut command = Command::new("touch");
        command.arg(&image);
        assert!(run_to_end(command, folder.path(), None).unwrap().status.success());
        assert_eq!(fs::metadata(&image).unwrap().permissions().mode() & 0o777, 0o600);
    }

    /// A CRIU that has lost its program: it waits for ever, and what it has started is gone.
    #[test]
    fn a_restore_without_its_program_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        // The program is seen at two looks.
        command.args([
            "-c",
            "sleep 2.5 & wait; while :; do read never; done <> \"$0\"",
            "fifo",
            "-W",
        ]);
        nix::unistd::mkfifo(&folder.path().join("fifo"), Mode::S_IRWXU).unwrap();
        command.arg(folder.path()).current_dir(folder.path());
        let ended = run_to_end(command, folder.path(), Some(ProgramWatch::new(Duration::ZERO))).unwrap();
        assert!(ended.has_lost_program && !ended.status.success());
    }
}

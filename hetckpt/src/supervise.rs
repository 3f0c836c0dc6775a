//! Standing in for a program: starting it in a session of its own, passing on its output, signals and exit status.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::diagnostic::Failure;
use crate::file_size;
use crate::install::Installation;
use crate::namespaces::{self, descriptors, privileges};
use crate::result_file::ResultFile;
use crate::{exit, output};

/// Environment variable that tells a process, and `dump`, that it was started under hetckpt: the shim's path.
pub const MARK: &str = "HETCKPT_SHIM";
/// First argument with which this program turns itself into the one to run.
pub const LAUNCH: &str = "__launch";

/// Between two looks whether a relay has come to its end.
const RELAY_INTERVAL: Duration = Duration::from_millis(2);

/// Signals that are passed on to the program.
const PASSED_ON: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGQUIT,
    Signal::SIGWINCH,
];

/// Holds back the signals that are to be passed on, so that none is lost before there is someone to pass it to.
pub struct HeldSignals(SigSet);

impl HeldSignals {
    /// Starts holding. Threads made from now on hold them too.
    pub fn hold() -> Result<Self, Failure> {
        let set: SigSet = PASSED_ON.into_iter().collect();
        set.thread_block()
            .map_err(|e| Failure::new("HK0804", "cannot hold signals back").note(e.to_string()))?;
        Ok(Self(set))
    }

    /// The first signal held back so far that is to end us, if there is one.
    pub fn ending(&self) -> Option<Signal> {
        let arrived = SignalFd::with_flags(&self.0, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).ok()?;
        while let Ok(Some(info)) = arrived.read_signal() {
            let signal = i32::try_from(info.ssi_signo)
                .ok()
                .and_then(|number| Signal::try_from(number).ok());
            // That a window has changed its size ends nobody.
            if signal.is_some() && signal != Some(Signal::SIGWINCH) {
                return signal;
            }
        }
        None
    }

    /// Passes every signal, held or to come, to `child` until it has ended or for `limit`, without a thread: whose children are to have
    /// other process ids can have none.
    pub fn pass_until_end(&self, child: &Child, limit: Option<Duration>) -> Result<(), Failure> {
        let cannot = |e: io::Error| Failure::new("HK0804", "cannot wait for a process").note(e.to_string());
        let pid = i32::try_from(child.id()).unwrap_or(-1);
        let arrived = SignalFd::with_flags(&self.0, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .map_err(|e| cannot(e.into()))?;
        let process = rustix::process::Pid::from_child(child);
        let process = pidfd_open(process, PidfdFlags::empty()).map_err(|e| cannot(e.into()))?;
        let until = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut awaited = [
                PollFd::new(&arrived, PollFlags::IN),
                PollFd::new(&process, PollFlags::IN),
            ];
            match poll(&mut awaited, timeout.as_ref()) {
                Ok(0) => return Ok(()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(cannot(e.into())),
            }
            let has_ended = !awaited[1].revents().is_empty();
            while let Ok(Some(info)) = arrived.read_signal() {
                let number = i32::try_from(info.ssi_signo).unwrap_or(0);
                if let Ok(signal) = Signal::try_from(number) {
                    // It may have ended: then there is nobody to tell.
                    let _ = kill(Pid::from_raw(pid), signal);
                }
            }
            if has_ended {
                return Ok(());
            }
        }
    }

    /// Passes every signal, held or to come, to `pid`, from a thread that lives as long as we do.
    pub fn pass_to(self, pid: i32) {
        std::thread::spawn(move || {
            while let Ok(signal) = self.0.wait() {
                // The program may have ended: then there is nobody to tell.
                let _ = kill(Pid::from_raw(pid), signal);
            }
        });
    }
}

/// Nobody has said anything to who waits for the program here. Not into a file, which the program may share: a restore would find it
/// longer than it was.
fn remark_on_kill(pid: i32) {
    let is_file =
        fstat(io::stderr()).is_ok_and(|found| SFlag::from_bits_truncate(found.st_mode).contains(SFlag::S_IFREG));
    if is_file {
        return;
    }
    output::note(format!(
        "process {pid} was killed, as a dump does with a program that it has stored"
    ));
}

/// Waits for a child of ours and gives the exit status a shell would.
pub fn wait_for(pid: i32) -> Result<ExitCode, Failure> {
    loop {
        match waitpid(Pid::from_raw(pid), None) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
            Ok(WaitStatus::Signaled(_, signal, _)) => {
                if signal == Signal::SIGKILL {
                    remark_on_kill(pid);
                }
                return Ok(ExitCode::from(u8::try_from(128 + signal as i32).unwrap_or(1)));
            }
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(Failure::new("HK0804", format!("cannot wait for process {pid}")).note(e.to_string())),
        }
    }
}

/// Copies what comes out of a pipe to one of our own streams until its last writer is gone.
pub struct Relay(JoinHandle<()>);

/// What a [`Relay`] does to what it copies.
pub type Filter = fn(&mut [u8]);

impl Relay {
    /// Starts copying from `source`, through `filter`, to stdout, or to stderr.
    pub fn start(source: OwnedFd, to_stderr: bool, filter: Filter) -> Self {
        Self(std::thread::spawn(move || {
            let mut source = File::from(source);
            let mut bytes = vec![0; 1 << 16];
            while let Ok(n @ 1..) = source.read(&mut bytes) {
                filter(&mut bytes[..n]);
                let written = match to_stderr {
                    false => io::stdout().write_all(&bytes[..n]).and_then(|()| io::stdout().flush()),
                    true => io::stderr().write_all(&bytes[..n]),
                };
                if written.is_err() {
                    return; // nobody reads us any more: closing the pipe tells the program
                }
            }
        }))
    }

    /// Waits until all is copied.
    pub fn finish(self) {
        // A relay that panicked has nothing left to copy.
        let _ = self.0.join();
    }

    /// Waits until all is copied, but no longer than `limit`: whoever has the pipe may keep it.
    pub fn finish_within(self, limit: Duration) {
        let until = Instant::now() + limit;
        while !self.0.is_finished() && Instant::now() < until {
            std::thread::sleep(RELAY_INTERVAL);
        }
    }
}

/// True if a program in the namespaces that we are in could not keep our stream number `fd` when it is dumped and restored: it is a file
/// that was opened without, or anything else but a pipe of our user.
pub fn is_foreign(fd: usize) -> bool {
    namespaces::is_inside() && i32::try_from(fd).is_ok_and(|fd| !descriptors::is_own_pipe(fd))
}

/// A pipe for the program where it cannot have our own stream, a terminal say, with the relay that empties it; `None` where the program
/// can have our stream itself.
pub fn copied_pipe(is_needed: bool, to_stderr: bool) -> Result<Option<(OwnedFd, Relay)>, Failure> {
    is_needed.then(|| pipe_through(to_stderr, |_| {})).transpose()
}

/// A pipe, with the relay that empties it through `filter`.
pub fn pipe_through(to_stderr: bool, filter: Filter) -> Result<(OwnedFd, Relay), Failure> {
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)
        .map_err(|e| Failure::new("HK0804", "cannot make a pipe").note(e.to_string()))?;
    Ok((write, Relay::start(read, to_stderr, filter)))
}

/// Starts `command` under the shim, stands in for it until it ends, and gives its exit status.
pub fn run(
    installation: &Installation,
    device: &str,
    command: &[OsString],
    pid_file: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let shim = installation.require(installation.shim())?;
    installation.require(installation.server.clone())?;
    let cannot = |e: io::Error| {
        let name = command
            .first()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        Failure::new("HK0804", format!("cannot run {name}")).note(e.to_string())
    };
    let is_inside = namespaces::is_inside();
    // Within, the process id is another than the one to be told.
    let pid_file = pid_file.filter(|_| !is_inside);
    let pid_file = pid_file.map(|path| ResultFile::open(path, "HK0804")).transpose()?;
    let held = HeldSignals::hold()?;
    let out = copied_pipe(io::stdout().is_terminal() || is_foreign(1), false)?;
    let err = copied_pipe(io::stderr().is_terminal() || is_foreign(2), true)?;

    let mut launch = Command::new(std::env::current_exe().map_err(cannot)?);
    launch.arg(LAUNCH);
    if is_inside {
        launch.arg("--inside");
    }
    launch.arg("--").args(command);
    launch.env("HETCKPT_DEVICE", device).env(MARK, &shim);
    launch.env_remove(namespaces::INSIDE);
    launch.env(
        "LD_LIBRARY_PATH",
        prepend(
            &installation.library_folder,
            std::env::var_os("LD_LIBRARY_PATH").as_deref(),
        ),
    );
    show_opencl(&mut launch, installation);
    if io::stdin().is_terminal() {
        launch.stdin(Stdio::null());
    }
    let mut relays = vec![];
    if let Some((pipe, relay)) = out {
        launch.stdout(pipe);
        relays.push(relay);
    }
    if let Some((pipe, relay)) = err {
        launch.stderr(pipe);
        relays.push(relay);
    }
    if is_inside {
        namespaces::leave_ids_to_program();
    }
    let mut child = launch.spawn().map_err(cannot)?;
    drop(launch); // with our ends of the pipes
    let pid = i32::try_from(child.id()).unwrap_or(-1);
    if let Some(file) = pid_file {
        file.write(&format!("{pid}\n"));
    }
    if is_inside {
        namespaces::tell_root_pid(pid);
    }
    held.pass_to(pid);
    let status = child.wait().map_err(cannot)?;
    relays.into_iter().for_each(Relay::finish);
    if status.signal() == Some(Signal::SIGKILL as i32) {
        remark_on_kill(pid);
    }
    Ok(exit::from_wait_status(status))
}

/// Has the OpenCL loader find our ICD and no other: a vendor's driver in the program could not be dumped.
///
/// `OCL_ICD_VENDORS` is the folder of ICDs for both loaders in use, ocl-icd and Khronos's; with a slash at its end, because
/// the older ones of Khronos's append names as they are. What the user had set goes under another name, for the device
/// server: its OpenCL devices are the user's.
fn show_opencl(launch: &mut Command, installation: &Installation) {
    let Some(folder) = installation.opencl_vendors() else {
        return;
    };
    for name in ["OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"] {
        if let Some(value) = std::env::var_os(name) {
            launch.env(format!("HETCKPT_{name}"), value).env_remove(name);
        }
    }
    let mut vendors = folder.into_os_string();
    vendors.push("/");
    launch.env("OCL_ICD_VENDORS", vendors);
}

/// Turns this process into the program to run, as the leader of a session of its own: CRIU then needs no terminal. In namespaces of its
/// own it has neither our privileges nor files from without.
pub fn launch(command: &[OsString], is_inside: bool) -> Failure {
    let Some((program, arguments)) = command.split_first() else {
        return Failure::new("HK0804", "no program given");
    };
    // The supervisor holds these back for itself; the program starts with them as any other program does.
    let passed_on: SigSet = PASSED_ON.into_iter().collect();
    if let Err(e) = passed_on.thread_unblock() {
        return Failure::new("HK0804", "cannot let signals through").note(e.to_string());
    }
    file_size::end_past_the_limit();
    if let Err(e) = nix::unistd::setsid() {
        return Failure::new("HK0804", "cannot start a session").note(e.to_string());
    }
    let prepared = match is_inside {
        true => descriptors::leave_behind().and_then(|()| Ok(privileges::keep()?)),
        false => Ok(()),
    };
    if let Err(e) = prepared {
        return Failure::new("HK0804", "cannot prepare the program for its namespaces").note(e.to_string());
    }
    let error = Command::new(program).args(arguments).exec();
    let failure = Failure::new("HK0804", format!("cannot run {}", program.to_string_lossy())).note(error.to_string());
    match error.kind() {
        io::ErrorKind::NotFound => failure.exit(exit::NOT_FOUND),
        _ => failure.exit(exit::NOT_RUN),
    }
}

fn prepend(folder: &Path, path: Option<&OsStr>) -> OsString {
    let mut result = folder.as_os_str().to_owned();
    if let Some(path) = path.filter(|p| !p.is_empty()) {
        result.push(":");
        result.push(path);
    }
    result
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_somebody_keeps_is_not_waited_for() {
        let (pipe, relay) = pipe_through(false, |_| {}).unwrap();
        let started = Instant::now();
        relay.finish_within(Duration::from_millis(20));
        assert!(started.elapsed() >= Duration::from_millis(20));
        drop(pipe);
    }
}

//! Processes: watching the application, becoming a daemon.
#![allow(unsafe_code, reason = "pidfds and descriptor ranges have no safe wrappers here")]

use std::convert::Infallible;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, execv};
use procfs::ProcResult;
use procfs::process::Process;

/// Files that a server may want to have open.
const DESCRIPTORS: u64 = 1 << 16;

/// A descriptor that becomes readable when process `pid` ends; `None` if there is none to be had.
#[must_use]
pub fn open_pidfd(pid: u32) -> Option<OwnedFd> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    // SAFETY: takes two integers, touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = RawFd::try_from(fd).ok().filter(|&fd| fd >= 0)?;
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The process that process `pid` is a child of.
#[must_use]
pub fn parent(pid: u32) -> Option<u32> {
    let status = procfs::process::Process::new(libc::pid_t::try_from(pid).ok()?).and_then(|process| process.status());
    u32::try_from(status.ok()?.ppid).ok()
}

/// True unless there is no process `pid`.
#[must_use]
pub fn is_there(pid: u32) -> bool {
    as_pid(pid).is_some_and(|pid| kill(pid, None) != Err(Errno::ESRCH))
}

/// Ends process `pid` if it was started after this one; true if it was told to. An older one is somebody else's.
#[must_use]
pub fn end_younger(pid: u32) -> bool {
    let Some(pid) = as_pid(pid) else { return false };
    let start_time = |process: ProcResult<Process>| process.and_then(|p| p.stat()).map(|stat| stat.starttime);
    let is_younger = match (start_time(Process::myself()), start_time(Process::new(pid.as_raw()))) {
        (Ok(own), Ok(other)) => other >= own,
        _ => false,
    };
    is_younger && kill(pid, Signal::SIGKILL).is_ok()
}

fn as_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().map(Pid::from_raw)
}

/// Lets this process have more files open, if the system allows it: areas of pinned memory come as descriptors, and
/// drivers take some. Not as many as it allows, which can be a thousand million: there are programs that close each of
/// them when they start others.
pub fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        let wanted = soft.max(hard.min(DESCRIPTORS));
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit for open files stays as it is");
    }
}

/// Holds back what asks processes to end: batch schedulers send that to every process of a job, and the application
/// may have to be dumped then. A server ends with its application.
pub fn outlive_signals() {
    const ASKING: [Signal; 6] = [
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ];
    let asking: SigSet = ASKING.into_iter().collect();
    if let Err(error) = asking.thread_block() {
        tracing::warn!(%error, "signals are not held back");
    }
}

/// Waits until the process has ended.
pub fn wait_pidfd(pidfd: &OwnedFd) {
    loop {
        let mut polled = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        match nix::poll::poll(&mut polled, PollTimeout::NONE) {
            Err(nix::errno::Errno::EINTR) | Ok(0) => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Takes over a descriptor that the process was started with; `None` if it is not open.
#[must_use]
pub fn take_descriptor(fd: RawFd) -> Option<File> {
    // SAFETY: asks for flags only.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    if flags < 0 {
        return None;
    }
    // SAFETY: open, as just seen; it was given to this process by number for this use alone.
    Some(unsafe { File::from_raw_fd(fd) })
}

/// Leaves the session of whoever started this process, and closes what it left open beyond the standard descriptors. To
/// be called before anything else is opened.
pub fn detach() {
    // A failure means that the process leads a session already.
    let _ = nix::unistd::setsid();
    close_all_but_standard();
}

/// Closes all but the standard descriptors. Whoever owns one of the others in this process must not use it any more.
pub fn close_all_but_standard() {
    // SAFETY: closes descriptors, and touches no memory.
    unsafe { libc::close_range(3, u32::MAX, 0) };
}

/// Becomes this program anew, in the same process, with `arguments`. Of the descriptors it has the standard ones and
/// `kept`.
///
/// # Errors
/// What the system says. Then nothing has changed, but that programs started by this one get none of the descriptors.
pub fn become_anew(arguments: &[&str], kept: &[RawFd]) -> io::Result<Infallible> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::other);
    let program = own_program()?;
    let program = text(program.as_os_str().as_bytes())?;
    let mut all = vec![program.clone()];
    for argument in arguments {
        all.push(text(argument.as_bytes())?);
    }
    for entry in std::fs::read_dir("/proc/self/fd")?.flatten() {
        let fd = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(fd) = fd.filter(|&fd| fd > 2) {
            // What the list itself was read from is closed by now.
            let _ = close_on_exec(fd, true);
        }
    }
    let became = kept
        .iter()
        .try_for_each(|&fd| close_on_exec(fd, false))
        .and_then(|()| execv(&program, &all).map_err(Into::into));
    for &fd in kept {
        let _ = close_on_exec(fd, true);
    }
    became
}

/// The file of this program: by its name where that is still its, so that the process is called as before.
fn own_program() -> io::Result<PathBuf> {
    let same = Path::new("/proc/self/exe");
    let identity = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let named = std::env::current_exe()?;
    let is_named_so = identity(&named).ok().is_some_and(|it| identity(same).ok() == Some(it));
    Ok(if is_named_so { named } else { same.to_owned() })
}

fn close_on_exec(fd: RawFd, closes: bool) -> io::Result<()> {
    let flag = if closes { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: sets a flag of a descriptor, and touches no memory.
    match unsafe { libc::fcntl(fd, libc::F_SETFD, flag) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes descriptor `fd` (0 or 1) `/dev/null`; where there is none, closes it.
pub fn to_dev_null(fd: RawFd) {
    let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") else {
        // SAFETY: a standard descriptor, which no owned type holds.
        unsafe { libc::close(fd) };
        return;
    };
    let null = null.into_raw_fd();
    // SAFETY: both are open descriptors; `fd` is a standard one, which no owned type holds.
    unsafe { libc::dup2(null, fd) };
    if null > 2 {
        // SAFETY: `null` was made above and is used no more.
        unsafe { libc::close(null) };
    }
}

/// Processor time that this process has used.
#[must_use]
pub fn processor_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return Duration::ZERO;
    };
    let time = |value: nix::sys::time::TimeVal| {
        let seconds = u64::try_from(value.tv_sec()).unwrap_or(0);
        Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(value.tv_usec()).unwrap_or(0))
    };
    time(usage.user_time()) + time(usage.system_time())
}
/// Ends this process without running what libraries have registered for its end: a thread may be in the compiler then,
/// which does not expect its data to go.
pub fn end_at_once() -> ! {
    // SAFETY: takes a number and does not return.
    unsafe { libc::_exit(0) }
}

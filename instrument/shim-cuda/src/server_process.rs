//! Starts the device server: outside the program's process tree, with a clean environment, and waits until it listens.
#![allow(unsafe_code, reason = "fork and exec by system calls")]

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hetckpt_ring::error::RingError;
use hetckpt_ring::runtime_dir;

/// How long a server may take to come up (it may have to start a driver).
const PATIENCE: Duration = Duration::from_secs(120);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program file is nowhere.
    #[error("the device server is not installed (looked for {}); set HETCKPT_SERVER to its path", tried.display())]
    NotInstalled {
        /// Where it should be.
        tried: PathBuf,
    },
    /// A system call failed.
    #[error("the device server could not be started: {call}: {source}")]
    Os {
        /// The call.
        call: &'static str,
        /// Cause.
        source: std::io::Error,
    },
    /// It said why it cannot work.
    #[error("the device server refused to start: {0}")]
    Refused(String),
    /// It ended, or did not come up in time.
    #[error("the device server did not come up; see {}", log.display())]
    Silent {
        /// Its log.
        log: PathBuf,
    },
    /// Ring or runtime directory.
    #[error(transparent)]
    Ring(#[from] RingError),
}

/// Starts the server for process `pid`; returns its socket's path once it listens.
pub fn spawn(pid: u32) -> Result<PathBuf, SpawnError> {
    let dir = runtime_dir::ensure_runtime_dir()?;
    let program = find_server()?;
    let log_path = runtime_dir::log_path(&dir, pid);
    let log = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&log_path)
        .map_err(|source| SpawnError::Os {
            call: "open log",
            source,
        })?;
    let (ready, ready_end) = pipe()?;
    let plan = ExecPlan::new(&program, pid, log.as_raw_fd(), ready_end.as_raw_fd());
    start_detached(&plan)?;
    drop(ready_end);
    let said = read_until_end(ready);
    if said.starts_with("ready") {
        return Ok(runtime_dir::socket_path(&dir, pid));
    }
    match said.strip_prefix("error:") {
        Some(reason) => Err(SpawnError::Refused(reason.trim().to_owned())),
        None => Err(SpawnError::Silent { log: log_path }),
    }
}

/// Everything the new process needs, made before the fork: after it nothing may allocate.
struct ExecPlan {
    program: CString,
    _arguments: Vec<CString>,
    argument_pointers: Vec<*const c_char>,
    _environment: Vec<CString>,
    environment_pointers: Vec<*const c_char>,
    null_device: CString,
    log: RawFd,
    ready: RawFd,
}

impl ExecPlan {
    fn new(program: &Path, pid: u32, log: RawFd, ready: RawFd) -> Self {
        let text = |bytes: &[u8]| CString::new(bytes).unwrap_or_default();
        let program = text(program.as_os_str().as_bytes());
        let pid = pid.to_string();
        let mut arguments = vec![program.clone()];
        arguments.extend(["--pid", &pid, "--ready-fd", "3"].map(|argument| text(argument.as_bytes())));
        let environment: Vec<CString> = clean_environment(std::env::vars_os(), own_path().as_deref())
            .into_iter()
            .map(|entry| text(entry.as_bytes()))
            .collect();
        let pointers = |list: &[CString]| {
            list.iter()
                .map(|entry| entry.as_ptr())
                .chain(std::iter::once(std::ptr::null()))
                .collect::<Vec<_>>()
        };
        Self {
            argument_pointers: pointers(&arguments),
            environment_pointers: pointers(&environment),
            program,
            _arguments: arguments,
            _environment: environment,
            null_device: text(b"/dev/null"),
            log,
            ready,
        }
    }
}

/// The environment without what would load the shim into the server: its directory in `LD_LIBRARY_PATH`, itself in
/// `LD_PRELOAD`, and the folder of our OpenCL ICD; the user's own folder of ICDs, kept under another name, comes back.
pub fn clean_environment(variables: impl Iterator<Item = (OsString, OsString)>, own: Option<&Path>) -> Vec<OsString> {
    let own_dir = own.and_then(Path::parent);
    let is_own = |entry: &OsStr| {
        let path = Path::new(entry).canonicalize().unwrap_or_else(|_| PathBuf::from(entry));
        Some(path.as_path()) == own || Some(path.as_path()) == own_dir
    };
    let mut kept = Vec::new();
    for (name, value) in variables {
        let name = match name.as_bytes() {
            b"OCL_ICD_VENDORS" if own_dir.is_some_and(|dir| Path::new(&value).starts_with(dir)) => continue,
            b"HETCKPT_OCL_ICD_VENDORS" | b"HETCKPT_OCL_ICD_FILENAMES" => {
                OsString::from_vec(name.as_bytes()["HETCKPT_".len()..].to_vec())
            }
            _ => name,
        };
        let separators: &[u8] = match name.as_bytes() {
            b"LD_LIBRARY_PATH" => b":;",
            b"LD_PRELOAD" => b": ",
            _ => b"",
        };
        let value = if separators.is_empty() {
            value
        } else {
            let entries = value.as_bytes().split(|byte| separators.contains(byte));
            let rest: Vec<&[u8]> = entries
                .filter(|entry| !entry.is_empty() && !is_own(OsStr::from_bytes(entry)))
                .collect();
            if rest.is_empty() {
                continue;
            }
            OsString::from_vec(rest.join(&b':'))
        };
        let mut entry = name;
        entry.push("=");
        entry.push(value);
        kept.push(entry);
    }
    kept
}

/// The server's program file: `HETCKPT_SERVER`, or beside this library in the installation, or on `PATH`.
fn find_server() -> Result<PathBuf, SpawnError> {
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    if let Some(path) = std::env::var_os("HETCKPT_SERVER").filter(|value| !value.is_empty()) {
        let path = absolute(PathBuf::from(path));
        return if path.is_file() {
            Ok(path)
        } else {
            Err(SpawnError::NotInstalled { tried: path })
        };
    }
    let name = "hetckpt-server";
    find_program(name).ok_or_else(|| SpawnError::NotInstalled {
        tried: installed(name).unwrap_or_else(|| PathBuf::from(name)),
    })
}

fn installed(name: &str) -> Option<PathBuf> {
    Some(own_path()?.parent()?.parent()?.parent()?.join("bin").join(name))
}

/// A program of hetckpt's: beside this library in the installation, or on `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if let Some(path) = installed(name).filter(|path| path.is_file()) {
        return Some(path);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter_map(|dir| std::path::absolute(dir.join(name)).ok())
        .find(|path| path.is_file())
}

/// This library's own file, without links.
pub fn own_path() -> Option<PathBuf> {
    // SAFETY: an all-zero Dl_info is a valid value: pointers and numbers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here = own_path as *const c_void;
    // SAFETY: `info` is a valid place for the answer.
    if unsafe { libc::dladdr(here, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's NUL-terminated name of a loaded object.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Path::new(OsStr::from_bytes(name.to_bytes())).canonicalize().ok()
}

fn pipe() -> Result<(OwnedFd, OwnedFd), SpawnError> {
    nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|errno| SpawnError::Os {
        call: "pipe",
        source: errno.into(),
    })
}

/// Clones twice, so that the server becomes nobody's child here, without exit signals, so that a program that waits for
/// its children or handles SIGCHLD notices nothing.
fn start_detached(plan: &ExecPlan) -> Result<(), SpawnError> {
    let os = |call| SpawnError::Os {
        call,
        source: std::io::Error::last_os_error(),
    };
    match raw_clone() {
        ..0 => Err(os("clone")),
        0 => {
            // SAFETY: in the child: plain system call.
            unsafe { libc::setsid() };
            if raw_clone() == 0 {
                become_server(plan);
            }
            // SAFETY: in the child: ends it without running the program's exit handlers.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for the child just made, into a local.
            while unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) } < 0 {
                if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                    return Err(os("waitpid"));
                }
            }
            Ok(())
        }
    }
}

/// Fork without exit signal and without the C library's fork handlers.
fn raw_clone() -> libc::pid_t {
    // SAFETY: like fork; the child uses only system calls on memory prepared before.
    let result = unsafe { libc::syscall(libc::SYS_clone, 0_usize, 0_usize, 0_usize, 0_usize, 0_usize) };
    libc::pid_t::try_from(result).unwrap_or(-1)
}

/// In the grandchild: only system calls from here on.
fn become_server(plan: &ExecPlan) -> ! {
    #[allow(
        clippy::multiple_unsafe_ops_per_block,
        reason = "one sequence of system calls, none of which can fail safely"
    )]
    // SAFETY: in the child: descriptors and paths were made before the fork; dup2 onto 0 to 3 affects this process
    // only. `ready` and `log` are moved out of the way first, as they may have the numbers 0 to 3 themselves.
    unsafe {
        let high = |fd: c_int| libc::fcntl(fd, libc::F_DUPFD, 16);
        let (log, ready) = (high(plan.log), high(plan.ready));
        let null = high(libc::open(plan.null_device.as_ptr(), libc::O_RDWR));
        for (from, to) in [(null, 0), (null, 1), (log, 2), (ready, 3)] {
            libc::dup2(from, to);
        }
        libc::syscall(libc::SYS_close_range, 4_u32, u32::MAX, 0_u32);
        for signal in 1..32 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::chdir(c"/".as_ptr());
        libc::execve(
            plan.program.as_ptr(),
            plan.argument_pointers.as_ptr(),
            plan.environment_pointers.as_ptr(),
        );
        let message = c"error: it cannot be executed\n";
        libc::write(3, message.as_ptr().cast(), message.count_bytes());
        libc::_exit(127)
    }
}

fn read_until_end(ready: OwnedFd) -> String {
    let start = Instant::now();
    let mut file = std::fs::File::from(ready);
    let mut said = Vec::new();
    let mut buffer = [0; 512];
    while let Some(left) = PATIENCE.checked_sub(start.elapsed()) {
        let mut polled = libc::pollfd {
            fd: file.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let timeout = c_int::try_from(left.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: one valid pollfd.
        if unsafe { libc::poll(&raw mut polled, 1, timeout) } <= 0 {
            continue;
        }
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => said.extend(&buffer[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        if said.contains(&b'\n') {
            break;
        }
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// Moves a descriptor out of the way of the program's own ones (to 100 or above), close-on-exec.
pub fn move_out_of_the_way(fd: OwnedFd) -> OwnedFd {
    // SAFETY: plain descriptor call.
    let moved = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 100) };
    if moved < 0 {
        return fd;
    }
    // SAFETY: just made, nobody else's.
    unsafe { OwnedFd::from_raw_fd(moved) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_the_shim_out_of_the_servers_environment() {
        let own = Path::new("/opt/hetckpt/lib/hetckpt/libcuda.so.1");
        let variables = [
            ("LD_LIBRARY_PATH", "/opt/hetckpt/lib/hetckpt:/usr/local/other"),
            ("LD_PRELOAD", "/opt/hetckpt/lib/hetckpt/libcuda.so.1"),
            ("OCL_ICD_VENDORS", "/opt/hetckpt/lib/hetckpt/OpenCL/vendors/"),
            ("HETCKPT_OCL_ICD_VENDORS", "/etc/mine"),
            ("HOME", "/home/x:y"),
        ];
        let clean = clean_environment(variables.into_iter().map(|(n, v)| (n.into(), v.into())), Some(own));
        assert_eq!(
            clean,
            [
                OsString::from("LD_LIBRARY_PATH=/usr/local/other"),
                OsString::from("OCL_ICD_VENDORS=/etc/mine"),
                OsString::from("HOME=/home/x:y")
            ]
        );
    }
}

//! A device server that is starting is recognised by what its program has open. Each step on its own process: what one
//! has open the other must not have.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use hetckpt_ring::control_socket::listen;
use hetckpt_ring::producer::Producer;
use hetckpt_ring::runtime_dir::{log_path, socket_path};
use hetckpt_ring::server_start::{StartError, is_starting, wait_until_started};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process that has nothing open but `name` in `dir` as its standard output, and what may be told about it.
struct Program(Child);

impl Program {
    fn with_open(dir: &Path, name: impl Fn(u32) -> std::path::PathBuf) -> Self {
        let file = dir.join("not-named-yet");
        let child = Command::new("sleep")
            .arg("600")
            .stdout(File::create(&file).unwrap())
            .spawn()
            .unwrap();
        fs::rename(file, name(child.id())).unwrap();
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().try_into().unwrap()), signal).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_server_is_starting_from_its_log_to_the_welcome() {
    let (dir, pid) = (tempfile::tempdir().unwrap(), std::process::id());
    let is_starting = || is_starting(dir.path(), pid);
    assert!(!is_starting());
    let log = File::create(log_path(dir.path(), pid)).unwrap();
    assert!(is_starting());
    fs::remove_file(log_path(dir.path(), pid)).unwrap();
    assert!(is_starting(), "another server of the process took the log for its own");
    drop(log);
    assert!(!is_starting(), "it refused");
    let _listener = listen(&socket_path(dir.path(), pid)).unwrap();
    assert!(is_starting());
    let (fd, memory) = Producer::create().unwrap();
    assert!(is_starting());
    let producer = Producer::new(memory, Box::new(|| true));
    producer.set_identity(pid, 100, 101);
    assert!(!is_starting());
    drop(fd);
}

#[test]
fn waits_for_a_running_program_and_refuses_a_stopped_one() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::with_open(dir.path(), |pid| log_path(dir.path(), pid));
    let pid = program.0.id();
    let wait = |limit| wait_until_started(dir.path(), pid, limit, Instant::now() + limit);
    let short = Duration::from_millis(50);
    assert_eq!(wait(short), Err(StartError::Late { pid, waited: short }));
    program.signal(Signal::SIGSTOP);
    assert_eq!(wait(Duration::from_secs(600)), Err(StartError::Stopped { pid }));
    drop(program);
    assert_eq!(wait(short), Ok(()));
}

#[test]
fn a_file_of_the_programs_own_is_no_log() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = Program::with_open(other.path(), |pid| log_path(other.path(), pid));
    assert!(!is_starting(dir.path(), program.0.id()));
}

//! Checkpoints that a program asks for itself (`hetckpt.h`). Whoever stands in for it is asked at a socket of its own,
//! by the program's device server, and makes them as `hetckpt dump` does; or passes the request on to the job that it
//! belongs to, which alone knows when the program is dumped.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hetckpt_report::remark;
use hetckpt_ring::checkpoint::{Answer, Asked, Outcome};
use hetckpt_ring::control_socket::{ControlSocket, listen};
use hetckpt_ring::error::RingError;
use hetckpt_ring::peer;
use hetckpt_ring::runtime_dir::{ensure_runtime_dir, is_stand_in, stand_in_path};

use crate::dump_command::{self, Dump};

/// Longest time to wait for kernels to stop, in seconds: as for `hetckpt dump`.
const PAUSE_TIMEOUT: u32 = 10;

/// How long whoever connects may take to say what it wants.
const REQUEST_LIMIT: Duration = Duration::from_secs(2);

/// Between two attempts while somebody else has the program.
const BUSY_INTERVAL: Duration = Duration::from_millis(100);

/// The socket at which this process is asked; it is removed when this is dropped.
#[derive(Debug)]
pub struct CheckpointService {
    path: PathBuf,
    listener: UnixListener,
    job: Option<PathBuf>,
}

impl CheckpointService {
    /// Listens from now on, before there is a program that could ask. Requests are for the job that listens at `job`,
    /// if there is one. `None` if there can be no socket: then the program learns that nobody makes checkpoints of it.
    pub fn listen(job: Option<&Path>) -> Option<Self> {
        match open() {
            Ok((path, listener)) => Some(Self {
                path,
                listener,
                job: job.map(Path::to_owned),
            }),
            Err(error) => {
                remark::detail(format!("the program cannot ask for checkpoints: {error}"));
                None
            }
        }
    }

    /// Answers requests of the program from now on, whose root is process `root`, by a thread.
    pub fn serve(&self, root: i32) {
        let Ok(listener) = self.listener.try_clone() else {
            return;
        };
        let job = self.job.clone();
        std::thread::spawn(move || {
            let make = |asked: &Asked| match &job {
                Some(job) => pass_on(job, asked),
                None => dump(root, asked),
            };
            let mut waiting = Waiting::default();
            loop {
                match waiting.take(&listener) {
                    Ok(()) => waiting.answer_first(make),
                    // There may be no descriptor left for the time being.
                    Err(_) => std::thread::sleep(REQUEST_LIMIT),
                }
            }
        });
    }
}

impl Drop for CheckpointService {
    fn drop(&mut self) {
        // What is left of it takes no room.
        let _ = fs::remove_file(&self.path);
    }
}

fn open() -> Result<(PathBuf, UnixListener), RingError> {
    let dir = ensure_runtime_dir()?;
    sweep(&dir);
    let path = stand_in_path(&dir, std::process::id());
    let listener = listen(&path)?;
    Ok((path, listener))
}

/// Removes the sockets that killed processes have left.
fn sweep(dir: &Path) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(|path| is_stand_in(path)) {
        if matches!(ControlSocket::connect(&path), Err(RingError::NoServer { .. })) {
            // Whoever else sweeps may be faster.
            let _ = fs::remove_file(path);
        }
    }
}

/// Requests that are not answered yet, the oldest first.
#[derive(Default)]
struct Waiting(VecDeque<(Asked, ControlSocket)>);

impl Waiting {
    /// Takes all that have come; waits for one if there is none.
    fn take(&mut self, listener: &UnixListener) -> io::Result<()> {
        loop {
            listener.set_nonblocking(!self.0.is_empty())?;
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.0.extend(receive(stream));
        }
    }

    /// Answers the oldest, and with it those that ask for the same: all of them wait while it is made.
    fn answer_first(&mut self, make: impl Fn(&Asked) -> Answer) {
        let Some((asked, _)) = self.0.front() else { return };
        let asked = asked.clone();
        let answer = make(&asked);
        let (answered, left) = self.0.drain(..).partition(|(other, _)| *other == asked);
        self.0 = left;
        for (_, mut socket) in answered {
            // Whoever is gone needs none.
            let _ = socket.send(&answer, &[]);
        }
    }
}

/// The request that comes through a connection.
pub fn receive(stream: UnixStream) -> Option<(Asked, ControlSocket)> {
    if !peer::may_ask(&stream) {
        return None;
    }
    let mut socket = ControlSocket::new(stream);
    socket.set_timeout(Some(REQUEST_LIMIT)).ok()?;
    let (asked, _) = socket.receive().ok()??;
    Some((asked, socket))
}

/// The file that a request names.
pub fn file_of(asked: &Asked) -> Option<PathBuf> {
    let file = asked.file.clone()?;
    Some(OsString::from_vec(file).into())
}

fn pass_on(job: &Path, asked: &Asked) -> Answer {
    let passed_on = ControlSocket::connect(job).and_then(|mut socket| {
        socket.send(asked, &[])?;
        socket.receive()
    });
    match passed_on {
        Ok(Some((answer, _))) => answer,
        Ok(None) => Answer::new(Outcome::Failed, "`hetckpt job` has given it up"),
        Err(error) => Answer::new(Outcome::Failed, format!("`hetckpt job`: {error}")),
    }
}

fn dump(root: i32, asked: &Asked) -> Answer {
    let Some(file) = file_of(asked) else {
        return Answer::new(Outcome::NoStore, "no file is named, and only `hetckpt job` has a store");
    };
    let how = dump_command::Options {
        parent: None,
        leave_running: true,
        force: true,
        pause_timeout: PAUSE_TIMEOUT,
    };
    loop {
        match Dump::start(root, &file, how).and_then(Dump::wait) {
            Ok(_) => return Answer::done(),
            // The program waits, whatever it is that others do with it first.
            Err(error) if error.is_busy() => std::thread::sleep(BUSY_INTERVAL),
            Err(error) => return Answer::new(Outcome::Failed, error.to_string()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn those_who_wait_for_the_same_get_it_together() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run-1.sock");
        let listener = listen(&path).unwrap();
        let ask = |file: &[u8]| {
            let mut socket = ControlSocket::connect(&path).unwrap();
            let file = Some(file.to_vec());
            socket.send(&Asked { file }, &[]).unwrap();
            socket
        };
        let mut sockets = [b"a", b"b", b"a"].map(|file| ask(file));
        drop(UnixStream::connect(&path).unwrap());
        let made = Cell::new(0);
        let make = |asked: &Asked| {
            made.set(made.get() + 1);
            Answer::new(Outcome::Failed, format!("{:?}", file_of(asked).unwrap()))
        };
        let mut waiting = Waiting::default();
        waiting.take(&listener).unwrap();
        waiting.answer_first(make);
        waiting.answer_first(make);
        waiting.answer_first(make);
        assert_eq!(made.get(), 2);
        let answers = sockets.each_mut().map(|socket| {
            let (answer, _) = socket.receive::<Answer>().unwrap().unwrap();
            answer.message
        });
        assert_eq!(answers, ["\"a\"", "\"b\"", "\"a\""]);
    }

    #[test]
    fn what_killed_ones_have_left_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let [left, other, there] = ["run-1.sock", "app-1.sock", "run-2.sock"].map(|name| dir.path().join(name));
        for path in [&left, &other] {
            drop(listen(path).unwrap());
        }
        let _listener = listen(&there).unwrap();
        sweep(dir.path());
        assert!(!left.exists() && other.exists() && there.exists());
    }
}

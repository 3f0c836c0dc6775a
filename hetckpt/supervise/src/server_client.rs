//! Talking to the device servers of a process tree: what they do, holding their kernels.

use hetckpt_ring::failure_code::Code;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

use hetckpt_report::failure::Failure;
use hetckpt_ring::control_socket::ControlSocket;
use hetckpt_ring::error::RingError;
use hetckpt_ring::message::{Request, Response, ServerStatus};
use hetckpt_ring::runtime_dir::{runtime_dir, socket_path};
use hetckpt_ring::server_start::{has_let_go, wait_until_started};
use hetckpt_ring::server_stats::ServerStats;
use hetckpt_ring::signs_of_life::{Silence, WaitError};

/// How much longer than the kernels a server has to answer that they did not stop.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);

/// How long a server may take to say what it does. It answers at once unless it is stopped, or its machine is
/// overloaded.
const STATUS_LIMIT: Duration = Duration::from_secs(30);

/// How long a server may take to say that it has heard that its program is gone.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// For how long a device server that is starting is waited for.
const START_LIMIT: Duration = Duration::from_secs(10);

fn path_of(pid: i32) -> Option<PathBuf> {
    u32::try_from(pid).ok().map(|pid| socket_path(&runtime_dir(), pid))
}

/// True if a device server answers for process `pid`.
pub fn has_server(pid: i32) -> bool {
    path_of(pid).is_some_and(|path| ControlSocket::connect(&path).is_ok())
}

/// Waits while the device server of one of `pids` is still starting: a program that is stopped before its server has
/// answered it would wait for that server for ever.
pub fn wait_for_starting(pids: &[i32]) -> Result<(), Failure> {
    let dir = runtime_dir();
    let deadline = Instant::now() + START_LIMIT;
    for pid in pids.iter().filter_map(|&pid| u32::try_from(pid).ok()) {
        wait_until_started(&dir, pid, START_LIMIT, deadline)
            .map_err(|error| Failure::new(Code::NoAnswer, error.to_string()).help("dump it again in a moment"))?;
    }
    Ok(())
}

/// Connects to the device server of `pid`; `None` if it has none.
fn connect(pid: i32) -> Result<Option<ControlSocket>, Failure> {
    let Some(path) = path_of(pid) else { return Ok(None) };
    match ControlSocket::connect(&path) {
        Ok(socket) => Ok(Some(socket)),
        Err(RingError::NoServer { .. }) => Ok(None),
        Err(error) => Err(no_answer(pid, &error)),
    }
}

/// The failure for a server that does not answer.
pub fn no_answer(pid: i32, error: &RingError) -> Failure {
    Failure::new(
        Code::NoAnswer,
        format!("the device server of process {pid} does not answer"),
    )
    .note(error.to_string())
}

/// What the server of process `pid` does, if it says so within `limit`.
pub fn status(socket: &mut ControlSocket, pid: i32, limit: Duration) -> Result<ServerStatus, Failure> {
    let asked = Instant::now();
    let answer = socket
        .set_timeout(Some(limit))
        .and_then(|()| socket.ask(&Request::Status, &[]));
    match answer {
        Err(error) if asked.elapsed() >= limit => Err(no_answer(pid, &error)
            .note(format!("it said nothing within {limit:?}"))
            .help("look whether it is stopped (`ps`, state T: SIGCONT sets it going), and at its log")),
        // What is asked next may take its time.
        Ok(Response::Status(status)) => match socket.set_timeout(None) {
            Ok(()) => Ok(status),
            Err(error) => Err(no_answer(pid, &error)),
        },
        Ok(_) => Err(no_answer(pid, &RingError::ServerGone)),
        Err(error) => Err(no_answer(pid, &error)),
    }
}

/// A connection that keeps a program's kernels stopped. When it is dropped they run on.
pub struct Hold {
    pid: i32,
    /// The server's process.
    server: Option<i32>,
    socket: ControlSocket,
    /// The server keeps what it captures until [`Hold::write_kept`].
    keeps: bool,
}

impl Hold {
    /// The user that the server runs as.
    pub fn user(&self) -> Option<u32> {
        getsockopt(self.socket.as_stream(), PeerCredentials)
            .ok()
            .map(|peer| peer.uid())
    }

    /// The process whose server it is.
    pub fn app(&self) -> Option<u32> {
        u32::try_from(self.pid).ok()
    }
}

/// What was taken off a device.
#[derive(Clone, Copy, Debug)]
pub struct Suspended {
    /// From the request until no kernel ran any more.
    pub pause: Duration,
    /// Device memory, bytes.
    pub memory_bytes: u64,
}

/// Connections to the device servers of `pids`, those that have one.
pub fn holds(pids: &[i32]) -> Result<Vec<Hold>, Failure> {
    let mut holds = vec![];
    for &pid in pids {
        let Some(mut socket) = connect(pid)? else { continue };
        match status(&mut socket, pid, STATUS_LIMIT) {
            Ok(status) => holds.push(Hold {
                pid,
                server: i32::try_from(status.server_pid).ok(),
                socket,
                keeps: false,
            }),
            Err(_) if was_left(&socket, pid) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(holds)
}

/// Fails if one of the servers belongs to `tree`: stopped with it, it could not answer any more.
pub fn ensure_outside(holds: &[Hold], tree: &[i32]) -> Result<(), Failure> {
    let inside = holds
        .iter()
        .find(|hold| hold.server.is_some_and(|server| tree.contains(&server)));
    inside.map_or(Ok(()), |hold| {
        let what = format!(
            "the device server of process {} belongs to the process tree that is to be dumped",
            hold.pid
        );
        Err(Failure::new(Code::ServerInTree, what)
            .note("a process of the tree adopts orphans (PR_SET_CHILD_SUBREAPER), and so the server")
            .help("start that process outside of the tree, and below it only what is to be dumped"))
    })
}

/// Stops the kernels of all, one after the other, each within `timeout_s` seconds (0: as long as its server gives it).
/// A process that ends or becomes another program meanwhile is held no more. Gives the longest time that a server took.
pub fn pause_all(holds: &mut Vec<Hold>, timeout_s: u32) -> Result<Duration, Failure> {
    let mut longest = Duration::ZERO;
    let mut held = vec![];
    for mut hold in holds.drain(..) {
        match hold.pause(timeout_s) {
            Ok(latency) => {
                longest = longest.max(latency);
                held.push(hold);
            }
            Err(_) if was_left(&hold.socket, hold.pid) => {}
            Err(failure) => return Err(failure),
        }
    }
    *holds = held;
    Ok(longest)
}

/// True if a server that does not answer has ended because its process has let go of it: it ends, or becomes another
/// program, which may have a server of its own by now.
fn was_left(socket: &ControlSocket, pid: i32) -> bool {
    !socket.is_alive() && (u32::try_from(pid).is_ok_and(has_let_go) || has_server(pid))
}

impl Hold {
    /// Stops the kernels and waits until none runs, `timeout_s` seconds at most (0: as long as the server does). Gives
    /// the time from the request to the last kernel's end.
    pub fn pause(&mut self, timeout_s: u32) -> Result<Duration, Failure> {
        let cannot = |note: String| {
            Failure::new(
                Code::PauseBroke,
                format!("the kernels of process {} could not be paused", self.pid),
            )
            .note(note)
        };
        let limit = pause_limit(timeout_s);
        self.socket.set_timeout(limit).map_err(|e| cannot(e.to_string()))?;
        let asked = Instant::now();
        let limit_ms = u64::from(timeout_s) * 1000;
        let answer = self.socket.ask(&Request::Pause { limit_ms }, &[]);
        self.socket.set_timeout(None).map_err(|e| cannot(e.to_string()))?;
        match answer {
            Ok(Response::Done { elapsed_us }) => Ok(Duration::from_micros(elapsed_us)),
            Ok(_) => Err(cannot("the server gave an answer to another question".to_owned())),
            Err(RingError::Refused { code, message }) if code.parse() == Ok(Code::NotStopped) => {
                Err(did_not_stop(message))
            }
            Err(RingError::Refused { code, message }) => Err(Failure {
                code: code.parse().unwrap_or(Code::PauseBroke),
                ..cannot(message)
            }),
            // It does not even answer.
            Err(error) if limit.is_some_and(|limit| asked.elapsed() >= limit) => Err(did_not_stop(format!(
                "the kernels of process {} did not stop within {timeout_s} s ({error})",
                self.pid
            ))),
            Err(error) => Err(cannot(error.to_string())),
        }
    }

    /// What the server is doing.
    pub fn status(&mut self) -> Result<ServerStatus, Failure> {
        status(&mut self.socket, self.pid, STATUS_LIMIT)
    }

    /// The same, before a [`Self::pause`] of `timeout_s` seconds: a server that does not answer for so long would not
    /// stop its kernels either, and this is the failure that it would be.
    pub fn status_before_pause(&mut self, timeout_s: u32) -> Result<ServerStatus, Failure> {
        let limit = pause_limit(timeout_s).unwrap_or(STATUS_LIMIT);
        let asked = Instant::now();
        status(&mut self.socket, self.pid, limit).map_err(|failure| match asked.elapsed() >= limit {
            true => did_not_stop(format!(
                "the device server of process {} did not answer within {timeout_s} s",
                self.pid
            )),
            false => failure,
        })
    }

    /// What the server has done since it was started.
    pub fn stats(&mut self) -> Result<ServerStats, Failure> {
        match self.socket.ask(&Request::Stats, &[]) {
            Ok(Response::Stats(stats)) => Ok(stats),
            Ok(_) => Err(no_answer(self.pid, &RingError::ServerGone)),
            Err(error) => Err(no_answer(self.pid, &error)),
        }
    }

    /// Takes everything off the device and gives the device back, whose memory's content `file` takes, if it is given,
    /// else the server. Kernels have `timeout_s` seconds to stop (0: as long as the server gives them).
    pub fn suspend(&mut self, timeout_s: u32, file: Option<(&Path, &File)>) -> Result<Suspended, Failure> {
        let request = Request::Suspend {
            limit_ms: u64::from(timeout_s) * 1000,
            file: file.map(|(path, _)| path.to_owned()),
        };
        let fds: Vec<BorrowedFd<'_>> = file.iter().map(|(_, file)| file.as_fd()).collect();
        match self.ask_for_long(&request, &fds) {
            Ok(Response::Suspended { pause_us, memory_bytes }) => Ok(Suspended {
                pause: Duration::from_micros(pause_us),
                memory_bytes,
            }),
            Ok(_) => Err(no_answer(self.pid, &RingError::ServerGone)),
            Err(RingError::Refused { code, message }) if code.parse() == Ok(Code::NotStopped) => {
                Err(did_not_stop(message))
            }
            Err(error) => Err(self.refusal("suspended", error)),
        }
    }

    /// Lets go on what was suspended, on `device`; without one, on that which the program was started for.
    pub fn resume_on(&mut self, device: Option<&str>) -> Result<(), Failure> {
        let device = device.map(str::to_owned);
        match self.ask_for_long(&Request::Resume { device }, &[]) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.refusal("resumed", error)),
        }
    }

    /// Has the server's next capture write device memory to the end of the archive `file`, as its member `member`, but
    /// for what is `known`; until this is dropped. If `later`, [`Self::write_kept`] does so.
    pub fn write_memory_to(
        &mut self,
        file: BorrowedFd<'_>,
        member: &str,
        known: Option<BorrowedFd<'_>>,
        later: bool,
    ) -> Result<(), Failure> {
        let member = member.to_owned();
        let files: Vec<BorrowedFd<'_>> = [file].into_iter().chain(known).collect();
        self.keeps = later;
        // To make room on the device takes a second at most.
        let answer = self.socket.set_timeout(Some(STATUS_LIMIT)).and_then(|()| {
            let answer = self.socket.ask(&Request::MemoryTo { member, later }, &files);
            self.socket.set_timeout(None).and(answer)
        });
        match answer {
            Ok(_) => Ok(()),
            Err(error) => Err(no_answer(self.pid, &error)),
        }
    }

    /// Has the server write what its capture has kept, if it has kept something, while the kernels run on. It is not
    /// waited for once `gives_up` says so; that is an error.
    pub fn write_kept(&mut self, gives_up: &dyn Fn() -> bool) -> Result<(), Failure> {
        if !self.keeps {
            return Ok(());
        }
        let written = self.socket.send(&Request::WriteMemory, &[]).and_then(|()| {
            let mut silence = Silence::of(self.server.and_then(|pid| u32::try_from(pid).ok()));
            loop {
                match silence.wait_to_read_unless(self.socket.as_stream(), gives_up) {
                    Err(WaitError::Signal) if !gives_up() => {}
                    Err(error) => return Err(not_waited_for(error)),
                    Ok(()) => return self.socket.answer(),
                }
            }
        });
        match written {
            Ok(_) => Ok(()),
            Err(error) => Err(self.refusal("written", error)),
        }
    }

    /// True if the process has let go of the server, which has ended therefore.
    pub fn was_left(&self) -> bool {
        was_left(&self.socket, self.pid)
    }

    /// Stops the kernels, and keeps them stopped until [`Hold::unlock`]. They have `limit_ms` milliseconds (0: as long
    /// as the server gives them).
    pub fn lock(&mut self, limit_ms: u64) -> Result<(), Failure> {
        match self.ask_for_long(&Request::Lock { limit_ms }, &[]) {
            Ok(_) => Ok(()),
            Err(RingError::Refused { code, message }) if code.parse() == Ok(Code::NotStopped) => {
                Err(did_not_stop(message))
            }
            Err(error) => Err(self.refusal("locked", error)),
        }
    }

    /// Lets kernels run that [`Hold::lock`] has stopped.
    pub fn unlock(&mut self) -> Result<(), Failure> {
        match self.ask_for_long(&Request::Unlock, &[]) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.refusal("unlocked", error)),
        }
    }

    /// Asks, and waits for as long as the server shows that it is at work.
    fn ask_for_long(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<Response, RingError> {
        self.socket.set_timeout(None)?;
        self.socket.send(request, fds)?;
        let mut silence = Silence::of(self.server.and_then(|pid| u32::try_from(pid).ok()));
        loop {
            match silence.wait_to_read(self.socket.as_stream()) {
                // Who wants to end this has to wait: what was asked for is done anyway.
                Err(WaitError::Signal) => {}
                Err(error) => return Err(not_waited_for(error)),
                Ok(()) => return self.socket.answer(),
            }
        }
    }

    fn refusal(&self, what: &str, error: RingError) -> Failure {
        match error {
            RingError::Refused { code, message } => Failure::new(
                code.parse().unwrap_or(Code::NoAnswer),
                format!("process {} cannot be {what}", self.pid),
            )
            .note(message),
            error => no_answer(self.pid, &error),
        }
    }

    /// Lets the kernels run on, and waits until they have been started again.
    pub fn resume(&mut self) -> Result<(), Failure> {
        match self.socket.ask(&Request::Release { app_is_gone: false }, &[]) {
            Ok(_) => Ok(()),
            Err(error) => Err(no_answer(self.pid, &error)),
        }
    }

    /// Tells the server that the program is gone for good, and waits (two seconds at most for each) until it has left:
    /// then the device is free. False if it stays.
    pub fn release_gone(mut self) -> bool {
        // A server that has noticed by itself and is leaving does not answer; that is what was wanted. One that hangs
        // does not either.
        let _ = self.socket.set_timeout(Some(LEAVE_LIMIT));
        let _ = self.socket.ask(&Request::Release { app_is_gone: true }, &[]);
        self.server
            .is_none_or(|server| crate::process_tree::wait_until(|| crate::process_tree::is_gone(server)))
    }
}

fn not_waited_for(error: WaitError) -> RingError {
    RingError::Os {
        call: "waiting for the answer",
        source: std::io::Error::other(error),
    }
}

/// The failure for kernels that did not stop in time; `message` names one.
/// How long a server has to answer whether kernels have stopped within `timeout_s` seconds; none if it has its own
/// limit.
fn pause_limit(timeout_s: u32) -> Option<Duration> {
    (timeout_s > 0).then(|| Duration::from_secs(u64::from(timeout_s)) + ANSWER_MARGIN)
}

fn did_not_stop(message: String) -> Failure {
    Failure::new(Code::NotStopped, message)
        .note("a kernel without PTX can be stopped only at its end")
        .help("raise --pause-timeout, or build the program with PTX (nvcc -gencode arch=compute_90,code=compute_90)")
}

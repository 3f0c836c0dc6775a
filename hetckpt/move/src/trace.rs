//! Tracing the driver calls of programs: starting `hetckpt-tracer`, the program to trace, and waiting.
//!
//! [`hetckpt_bpf::measured`] says what is measured. The tracer is a process of its own: it alone needs libbpf, and it
//! ends with us, because its stdin does.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;

use hetckpt_bpf::measured::Measured;
use hetckpt_bpf::protocol::{CHILDREN_OF, LIBRARY, PID, PROGRAM, Said};
use hetckpt_report::failure::Failure;
use hetckpt_report::installation::Installation;
use hetckpt_report::{exit, file_size, remark};
use hetckpt_ring::failure_code::Code;
use hetckpt_supervise::signals::{HeldSignals, PASSED_ON};

const CODE: Code = Code::TracingNotPermitted;

/// How often it is looked whether it is time to end.
const TURN: Duration = Duration::from_millis(20);

/// How long the tracer may take to start, and to sum up: before Linux 6.6, probes take long.
const PATIENCE: Duration = Duration::from_secs(180);

/// What came of a trace.
pub struct Traced {
    /// What was measured.
    pub measured: Measured,
    /// The program, if we started it and it still runs.
    pub running: Option<Running>,
    /// The status of the program, if we started it and it has ended.
    pub status: ExitCode,
}

/// A program that we have started, with the signals that are to be passed on to it.
pub struct Running {
    child: Child,
    signals: HeldSignals,
}

impl Running {
    /// Waits for its end, and gives its exit status.
    pub fn wait(mut self) -> Result<ExitCode, Failure> {
        self.signals.pass_until_end(&self.child, None)?;
        self.child.wait().map(exit::from_wait_status).map_err(cannot_wait)
    }
}

fn cannot_wait(e: io::Error) -> Failure {
    Failure::new(Code::StandIn, "cannot wait for the program").note(e.to_string())
}

/// Traces process `pid` and its children until it ends, or for `limit`, or until a signal is to end us.
pub fn process(pid: i32, limit: Option<Duration>) -> Result<Traced, Failure> {
    let signals = HeldSignals::hold()?;
    let tracer = Tracer::start(PID, pid)?;
    let measured = tracer.measured_when(limit, || signals.ending().is_some())?;
    Ok(Traced {
        measured,
        running: None,
        status: ExitCode::SUCCESS,
    })
}

/// Starts `command` and traces it and its children until it ends, or for `limit`. Signals are passed on to it.
pub fn command(command: &[OsString], limit: Option<Duration>) -> Result<Traced, Failure> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::new(Code::StandIn, "no program given"));
    };
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let signals = HeldSignals::hold()?;
    let tracer = Tracer::start(CHILDREN_OF, own)?;
    let mut child = spawn(Command::new(program).args(arguments)).map_err(|e| {
        let failure =
            Failure::new(Code::StandIn, format!("cannot run {}", program.to_string_lossy())).note(e.to_string());
        match e.kind() {
            io::ErrorKind::NotFound => failure.exit(exit::NOT_FOUND),
            _ => failure.exit(exit::NOT_RUN),
        }
    })?;
    signals.pass_until_end(&child, limit)?;
    let ended = child.try_wait().map_err(cannot_wait)?;
    let measured = tracer.measured_when(Some(Duration::ZERO), || true)?;
    Ok(match ended {
        Some(status) => Traced {
            measured,
            running: None,
            status: exit::from_wait_status(status),
        },
        None => Traced {
            measured,
            running: Some(Running { child, signals }),
            status: ExitCode::SUCCESS,
        },
    })
}

/// Starts a program by a thread that holds no signals back: the program would inherit that.
fn spawn(command: &mut Command) -> io::Result<Child> {
    let in_thread = || {
        let held: SigSet = PASSED_ON.into_iter().collect();
        held.thread_unblock()?;
        file_size::end_past_the_limit();
        command.spawn()
    };
    thread::scope(|scope| {
        let spawned = scope.spawn(in_thread).join();
        spawned.unwrap_or_else(|_| Err(io::Error::other("the thread that was to start it has failed")))
    })
}

/// Traces process `pid` and its children for `time`.
pub fn for_a_moment(pid: i32, time: Duration) -> Result<Measured, Failure> {
    Tracer::start(PID, pid)?.measured_when(Some(time), || false)
}

/// A tracer at work.
struct Tracer {
    process: Child,
    stdin: Option<ChildStdin>,
    said: Receiver<Said>,
    pid: i32,
}

impl Tracer {
    fn start(what: &str, pid: i32) -> Result<Self, Failure> {
        let installation = Installation::find()?;
        let program = installation.require(installation.server.with_file_name(PROGRAM))?;
        let mut command = Command::new(&program);
        command.args([what, &pid.to_string()]);
        for library in our_libraries(&installation) {
            command.arg(LIBRARY).arg(library);
        }
        // A signal from the terminal is for us: the tracer still has to tell what it has counted.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let cannot =
            |e: io::Error| Failure::new(CODE, format!("cannot start {}", program.display())).note(e.to_string());
        let mut process = command.spawn().map_err(cannot)?;
        let (sender, said) = channel();
        let stdout = process.stdout.take();
        thread::spawn(move || {
            let lines = stdout.map(BufReader::new).map(BufRead::lines);
            let said = lines.into_iter().flatten().map_while(Result::ok);
            for word in said.map_while(|line| serde_json::from_str(&line).ok()) {
                if sender.send(word).is_err() {
                    break;
                }
            }
        });
        let mut tracer = Self {
            stdin: process.stdin.take(),
            process,
            said,
            pid,
        };
        match tracer.said.recv_timeout(PATIENCE) {
            Ok(Said::Ready) => {
                remark::detail("probes are in place");
                Ok(tracer)
            }
            Ok(other) => Err(tracer.refusal(other)),
            Err(_) => Err(tracer.silence()),
        }
    }

    /// Lets it work until `is_over`, or for `limit`, and takes what it has measured.
    fn measured_when(mut self, limit: Option<Duration>, is_over: impl Fn() -> bool) -> Result<Measured, Failure> {
        let start = Instant::now();
        let is_late = || limit.is_some_and(|limit| start.elapsed() >= limit);
        let said = loop {
            if is_late() || is_over() {
                self.stdin = None;
                break self.said.recv_timeout(PATIENCE);
            }
            let left = limit.map_or(TURN, |limit| limit.saturating_sub(start.elapsed()).min(TURN));
            match self.said.recv_timeout(left) {
                Err(RecvTimeoutError::Timeout) => {}
                said => break said,
            }
        };
        match said {
            Ok(Said::Measured(measured)) => Ok(*measured),
            Ok(other) => Err(self.refusal(other)),
            Err(_) => Err(self.silence()),
        }
    }

    fn refusal(&self, said: Said) -> Failure {
        match said {
            Said::Gone => Failure::new(Code::NoSuchProcess, format!("there is no process {}", self.pid)),
            Said::Refused { message, missing } => {
                let failure = Failure::new(CODE, "driver calls cannot be traced here").note(message);
                missing
                    .into_iter()
                    .fold(failure, |failure, what| failure.note(format!("missing: {what}")))
            }
            Said::Ready | Said::Measured(_) => Failure::new(CODE, "hetckpt-tracer answers out of turn"),
        }
    }

    /// It has ended, or hangs, without a word: the dynamic linker may have said why on stderr.
    fn silence(&mut self) -> Failure {
        match self.process.try_wait().ok().flatten() {
            Some(status) => Failure::new(CODE, format!("{PROGRAM} does not start: {status}"))
                .help("it needs libelf.so.1 and libz.so.1 (Debian: libelf1, zlib1g)"),
            None => Failure::new(CODE, format!("{PROGRAM} does not answer"))
                .note("Linux takes longer than three minutes to put probes on the libraries"),
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.stdin = None;
        // What has been measured is told; what is left is to remove the probes.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Our own driver libraries, which programs under `hetckpt run` load.
fn our_libraries(installation: &Installation) -> [PathBuf; 2] {
    let opencl = installation.library_folder.join("libhetckpt_opencl.so");
    [installation.shim(), opencl]
}

//! Starting the server in each of its roles.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hetckpt_ring::control_socket::{ControlSocket, listen};
use hetckpt_ring::message::{BESIDE_CRIU_ENV, RESERVED};
use hetckpt_ring::runtime_dir::{ensure_runtime_dir, log_path, socket_path};
use hetckpt_ring::signs_of_life::{Silence, WaitError};
use hetckpt_ring::version::Readable;

use crate::answer;
use crate::choose_device::{DeviceChoice, choose};
use crate::control::Control;
use crate::error::ServerError;
use crate::options::{Options, Task};
use crate::own_files::{OwnFiles, SocketFile};
use crate::rest_of_restore::RestOfRestore;
use crate::restore::{begin, finish, read_state};
use crate::rights;
use crate::run_as;
use crate::session::Session;
use crate::state_files::StateFiles;
use crate::suspended::Suspended;

/// How long the application may take to connect.
const CONNECT_DEADLINE: Duration = Duration::from_secs(60);

/// How long a server of the process that is to be restored has to leave.
const LEAVE_DEADLINE: Duration = Duration::from_secs(2);

/// Does what the options say; serving returns only on failure.
///
/// # Errors
/// [`ServerError`].
pub fn run(options: &Options) -> Result<(), ServerError> {
    match &options.task {
        Task::ListDevices { tries } => answer::devices(*tries),
        Task::Translate { stage, name } => answer::translation(*stage, name),
        Task::Lacking { features, others } => answer::lacking_features(features, *others),
        Task::Version => {
            answer::version();
            Ok(())
        }
        Task::Suspended(fd) => {
            rights::reduce(false)?;
            Suspended::unpack(*fd)?.serve()?.serve();
            Ok(())
        }
        Task::Restore(dir) => start_daemon(dir, options),
        Task::Serve => {
            let ready = Ready(options.ready_fd);
            crate::process::raise_descriptor_limit();
            crate::process::outlive_signals();
            let prepared = rights::reduce(false).and_then(|()| prepare_fresh(options));
            serve(ready, prepared, options.device, Expected::Hello)
        }
        Task::RestoreHere(dir) => {
            crate::process::detach();
            let ready = Ready(options.ready_fd);
            let Some(restorer) = crate::process::open_pidfd(options.restorer) else {
                let gone = ServerError::Daemon("whoever restored the application has ended".into());
                ready.failed(&gone);
                return Err(gone);
            };
            crate::process::raise_descriptor_limit();
            crate::process::outlive_signals();
            let prepared = rights::reduce(true).and_then(|()| prepare_restored(dir, options));
            serve(ready, prepared, options.device, Expected::Attach { restorer })
        }
    }
}

/// How the server comes by its application.
enum Expected {
    /// It says hello, soon.
    Hello,
    /// Whoever restores it attaches it, and does not end before.
    Attach {
        /// A pidfd of theirs.
        restorer: OwnedFd,
    },
}

type Prepared = (Arc<Session>, RestOfRestore, UnixListener, SocketFile);

fn prepare_fresh(options: &Options) -> Result<Prepared, ServerError> {
    let dir = ensure_runtime_dir()?;
    let chosen = choose(options.device)?;
    let description = chosen.device.describe();
    tracing::info!(pid = options.pid, device = %description.id, name = %description.name, "starts");
    let virtual_device =
        crate::virtual_device::of_device(&description, chosen.device.reaches_host_memory(), options.virtual_gpu);
    let session = Session::new(options.pid, chosen.device, chosen.generator, virtual_device);
    let socket = socket_path(&dir, options.pid);
    let listener = listen(&socket)?;
    Ok((
        Arc::new(session),
        RestOfRestore::nothing(),
        listener,
        SocketFile::new(socket),
    ))
}

fn prepare_restored(dir: &Path, options: &Options) -> Result<Prepared, ServerError> {
    let runtime = ensure_runtime_dir()?;
    let files = StateFiles::open(dir, options.pid)?;
    let path = socket_path(&runtime, options.pid);
    let user = run_as::other_user(files.server_user()?);
    let rebuild = || {
        rights::reduce(false)?;
        let state = read_state(&files, Readable::HERE)?;
        let session = begin(&files, &state, choose(options.device)?)?;
        let restored = Arc::clone(&session);
        let rest = RestOfRestore::start(move || finish(&restored, &files, state))?;
        if std::env::var_os(BESIDE_CRIU_ENV).is_none() {
            rest.wait()?;
        }
        Ok::<_, ServerError>((session, rest))
    };
    let Some(user) = user else {
        let (session, rest) = rebuild()?;
        let listener = listen(&path)?;
        return Ok((session, rest, listener, SocketFile::new(path)));
    };
    // What only root may do, before all that looks at what the program has left.
    let listener = listen(&path)?;
    let socket = SocketFile::new(path);
    run_as::go_on_in_child(&socket, &log_path(&runtime, options.pid))?;
    run_as::become_user(user, &listener)?;
    let (session, rest) = rebuild()?;
    Ok((session, rest, listener, socket))
}

fn serve(
    ready: Ready,
    prepared: Result<Prepared, ServerError>,
    device: DeviceChoice,
    expected: Expected,
) -> Result<(), ServerError> {
    let (session, rest, listener, socket) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            ready.failed(&error);
            return Err(error);
        }
    };
    let log = log_path(socket.folder(), session.app_pid);
    let files = OwnFiles { socket, log };
    let is_restored = matches!(expected, Expected::Attach { .. });
    let control = Arc::new(Control::new(session, device, listener, files, is_restored).with_rest(rest));
    match expected {
        Expected::Hello => {
            end_without_application(&control, "nobody has connected", || {
                std::thread::sleep(CONNECT_DEADLINE)
            })?;
            // Dumped and ended while its server was starting, say, or before it came here.
            let pidfd = crate::process::open_pidfd(control.session.app_pid);
            if pidfd.is_some() || !crate::process::is_there(control.session.app_pid) {
                let why = "the application ended before it had said hello";
                end_without_application(&control, why, move || {
                    pidfd.iter().for_each(crate::process::wait_pidfd);
                })?;
            }
        }
        Expected::Attach { restorer } => {
            let why = "whoever restored the application has ended";
            let watched = Arc::clone(&control.session);
            end_without_application(&control, why, move || {
                crate::process::wait_pidfd(&restorer);
                // It may have been rebuilt but for the last step, for which it would wait for ever.
                if watched.side.get().is_none() && crate::process::end_younger(watched.app_pid) {
                    tracing::info!(pid = watched.app_pid, "ended the application, which was half restored");
                }
            })?;
        }
    }
    ready.succeeded();
    // It may have had stdout to be told by.
    control.session.printed.begin();
    control.serve();
    Ok(())
}

/// Leaves, because of `why`, if there is no application when `wait` is over.
fn end_without_application(
    control: &Arc<Control>,
    why: &'static str,
    wait: impl FnOnce() + Send + 'static,
) -> Result<(), ServerError> {
    let control = Arc::clone(control);
    let watch = move || {
        wait();
        if control.session.side.get().is_none() {
            control.end(why);
        }
    };
    let spawned = std::thread::Builder::new().name("application".to_owned()).spawn(watch);
    spawned.map(drop).map_err(|source| ServerError::Os {
        call: "thread creation",
        source,
    })
}

/// Whom to tell that the server is ready.
struct Ready(Option<RawFd>);

impl Ready {
    fn succeeded(self) {
        self.tell("ready\n");
    }

    fn failed(self, error: &ServerError) {
        let line = error.to_string().replace('\n', " ");
        self.tell(&format!("error: {line}\n"));
    }

    fn tell(self, text: &str) {
        let Some(fd) = self.0 else { return };
        let Some(mut file) = crate::process::take_descriptor(fd) else {
            return;
        };
        if let Err(error) = file.write_all(text.as_bytes()) {
            tracing::warn!(%error, "nobody hears that the server is ready");
        }
        if fd > 1 {
            return;
        }
        // Never closed, not for a moment: what another thread opened then would have its number, and be replaced.
        crate::process::to_dev_null(file.into_raw_fd());
    }
}

/// Starts this program again as a daemon that restores, and waits until it is ready.
fn start_daemon(dir: &Path, options: &Options) -> Result<(), ServerError> {
    let os = |call| move |source| ServerError::Os { call, source };
    // What cannot be opened or read is better said here, where somebody listens, than in a log.
    let dir = dir.canonicalize().map_err(|source| ServerError::File {
        path: dir.to_owned(),
        source,
    })?;
    let recorded = StateFiles::open(&dir, options.pid)?.server_user()?;
    let log_file = reserve(options.pid)?;
    // Who has started this may wait for no more.
    let _ = std::io::stdout().write_all(RESERVED.as_bytes());
    let program = std::env::current_exe().map_err(os("readlink(/proc/self/exe)"))?;
    let device = options.device.to_string();
    let mut command = Command::new(program);
    // Drivers keep caches there.
    if let Some(home) = run_as::other_user(recorded).and_then(run_as::home) {
        command.env("HOME", home).env_remove("XDG_CACHE_HOME");
    }
    let mut child = command
        .arg("--restore-here")
        .arg(dir)
        .args([
            "--pid",
            &options.pid.to_string(),
            "--restorer",
            &options.restorer.to_string(),
            "--ready-fd",
            "1",
            "--device",
            &device,
        ])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .spawn()
        .map_err(os("spawn"))?;
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        if let Err(error) = wait_to_read(&stdout, child.id()) {
            // A part of it that runs as another user ends with whoever restores the application.
            let _ = child.kill();
            return Err(ServerError::Daemon(error.into()));
        }
        stdout.read_to_string(&mut text).map_err(os("read"))?;
    }
    if text == "ready\n" {
        return Ok(());
    }
    let said = text
        .trim()
        .strip_prefix("error: ")
        .unwrap_or("the server died before it was ready");
    Err(ServerError::Daemon(said.into()))
}

/// Waits until `stdout` can be read, or has been closed; not for a process `pid` behind it that hangs, in a driver say.
fn wait_to_read(stdout: &ChildStdout, pid: u32) -> Result<(), WaitError> {
    let mut silence = Silence::of(Some(pid));
    loop {
        match silence.wait_to_read(stdout) {
            Err(WaitError::Signal) => {}
            result => return result,
        }
    }
}

/// Makes sure that the process is restored once, and gives the log for its daemon, which has it as its standard error
/// and so keeps its lock for as long as it lives; a program that was started here, rather than restored, has a server
/// that listens.
fn reserve(pid: u32) -> Result<File, ServerError> {
    let dir = ensure_runtime_dir()?;
    let path = log_path(&dir, pid);
    let started = Instant::now();
    loop {
        let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let log = opened.map_err(|source| ServerError::File {
            path: path.clone(),
            source,
        })?;
        let is_served = ControlSocket::connect(&socket_path(&dir, pid)).is_ok();
        // One that a server has removed as it left keeps nobody else from a lock.
        if !is_served && log.try_lock().is_ok() && log.metadata().is_ok_and(|found| found.nlink() > 0) {
            return Ok(log);
        }
        // The server of the program that was dumped may be about to leave.
        if started.elapsed() > LEAVE_DEADLINE {
            return Err(ServerError::InUse { pid });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

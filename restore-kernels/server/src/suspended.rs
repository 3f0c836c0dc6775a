//! A server whose application is suspended: it has no device, keeps the state, and goes on from it when it is told to.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hetckpt_archive::file_id::FileId;
use hetckpt_ring::control_socket::ControlSocket;
use hetckpt_ring::message::{Request, Response, ServerStatus};
use hetckpt_ring::peer;
use hetckpt_ring::pinned_table::PinnedArea;
use hetckpt_ring::runtime_dir::{ensure_runtime_dir, log_path, socket_path};
use hetckpt_ring::version::Readable;
use hetckpt_state::summary::Description;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::baggage::{Baggage, KeptDescriptors, Passenger, take};
use crate::capture::of_part;
use crate::choose_device::{DeviceChoice, choose};
use crate::connections::Peer;
use crate::control::Control;
use crate::error::ServerError;
use crate::own_files::{OwnFiles, SocketFile};
use crate::pause;
use crate::process;
use crate::restore::{read_state, restore};
use crate::state_files::StateFiles;
use crate::state_output::{Folder, KeptState};

/// How long whoever has begun a request may take to send the rest.
const MESSAGE_LIMIT: Duration = Duration::from_secs(2);

/// The server.
pub struct Suspended {
    pid: u32,
    device: DeviceChoice,
    listener: UnixListener,
    ring: OwnedFd,
    state: KeptState,
    memory_path: Option<PathBuf>,
    description: Description,
    connections: Vec<Connection>,
    is_locked: bool,
    files: OwnFiles,
}

/// An open connection.
struct Connection {
    socket: ControlSocket,
    peer: Peer,
    /// It has paused what stands still anyway: a resume waits until it has let go.
    holds: bool,
}

/// What becomes of a connection that has said something.
enum Next {
    Stays,
    Closes,
    /// It wants everything to go on, on this device.
    Resumes(DeviceChoice),
}

impl Suspended {
    /// What the program before has taken along, and tells those who wait for it.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn unpack(fd: std::os::fd::RawFd) -> Result<Self, ServerError> {
        let baggage = Baggage::unpack(fd)?;
        let state = baggage.kept_state()?;
        let description = state_files(&state, baggage.pid)?.description()?;
        let mut suspended = Self {
            pid: baggage.pid,
            device: DeviceChoice::parse(&baggage.device)?,
            listener: take(baggage.listener)?.into(),
            ring: take(baggage.ring)?,
            state,
            memory_path: baggage.memory_path,
            description,
            connections: vec![],
            is_locked: baggage.is_locked,
            files: own_files(baggage.pid)?,
        };
        for Passenger { fd, peer, answer } in baggage.connections {
            let socket = ControlSocket::new(UnixStream::from(take(fd)?));
            let mut connection = Connection::new(socket, peer);
            if answer.is_none_or(|answer| connection.tell(&answer)) {
                suspended.connections.push(connection);
            }
        }
        Ok(suspended)
    }

    /// Answers until everything is to go on; gives the server that has it all.
    ///
    /// # Errors
    /// [`ServerError::Os`]. What hinders the resuming is told to whoever asks for it.
    pub fn serve(mut self) -> Result<Arc<Control>, ServerError> {
        let pidfd = process::open_pidfd(self.pid);
        loop {
            let ready = self.wait(pidfd.as_ref())?;
            if ready.application_ended {
                self.end("the application has ended");
            }
            // From behind, as some are removed.
            for at in ready.connections.into_iter().rev() {
                match self.hear(at) {
                    Next::Stays => {}
                    Next::Closes => {
                        if self.connections.swap_remove(at).peer == Peer::Application {
                            self.end("the application has closed its connection");
                        }
                    }
                    Next::Resumes(device) => return self.resume(at, device),
                }
            }
            if ready.somebody_connects {
                self.accept();
            }
        }
    }

    fn wait(&self, pidfd: Option<&OwnedFd>) -> Result<Ready, ServerError> {
        let sockets = self.connections.iter().map(|c| c.socket.as_stream().as_fd());
        let others = [self.listener.as_fd()].into_iter().chain(pidfd.map(AsFd::as_fd));
        let mut awaited: Vec<PollFd<'_>> = sockets
            .chain(others)
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        while let Err(errno) = poll(&mut awaited, PollTimeout::NONE) {
            if errno != Errno::EINTR {
                return Err(ServerError::Os {
                    call: "poll",
                    source: errno.into(),
                });
            }
        }
        let is_ready = |fd: &PollFd<'_>| fd.any() == Some(true);
        let (connections, others) = awaited.split_at(self.connections.len());
        Ok(Ready {
            connections: (0..connections.len())
                .filter(|&at| is_ready(&connections[at]))
                .collect(),
            somebody_connects: others.first().is_some_and(is_ready),
            application_ended: others.get(1).is_some_and(is_ready),
        })
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok((stream, _)) if peer::may_ask(&stream) => {
                self.connections
                    .push(Connection::new(ControlSocket::new(stream), Peer::Asker));
            }
            Ok(_) => tracing::warn!("another user has tried to connect"),
            Err(error) => tracing::error!(%error, "accept failed"),
        }
    }

    fn hear(&mut self, at: usize) -> Next {
        let (request, fds) = match self.connections[at].socket.receive::<Request>() {
            Ok(Some(message)) => message,
            Ok(None) => return Next::Closes,
            Err(error) => {
                tracing::warn!(%error, "connection broken");
                return Next::Closes;
            }
        };
        tracing::debug!(?request, "request while suspended");
        let app_is_gone = matches!(request, Request::Release { app_is_gone: true });
        let answer = match request {
            Request::Resume { device } => match self.may_resume(at, device.as_deref()) {
                Ok(device) => return Next::Resumes(device),
                Err(error) => Err(error),
            },
            other => self.answer(at, other, fds),
        };
        let is_heard = self.connections[at].tell(&answer.unwrap_or_else(|error| error.response()));
        if app_is_gone {
            self.end("the application was dumped and is gone");
        }
        if is_heard { Next::Stays } else { Next::Closes }
    }

    fn may_resume(&self, at: usize, device: Option<&str>) -> Result<DeviceChoice, ServerError> {
        let mut others = self.connections.iter().enumerate().filter(|&(other, _)| other != at);
        if others.any(|(_, connection)| connection.holds) {
            return Err(ServerError::WrongMoment("the program is being dumped"));
        }
        device.map_or(Ok(self.device), DeviceChoice::parse)
    }

    fn answer(&mut self, at: usize, request: Request, fds: Vec<OwnedFd>) -> Result<Response, ServerError> {
        let done = Ok(Response::Done { elapsed_us: 0 });
        match request {
            Request::Status => Ok(Response::Status(self.status())),
            Request::Pause { .. } => {
                self.connections[at].holds = true;
                done
            }
            Request::Release { .. } => {
                self.connections[at].holds = false;
                done
            }
            Request::Lock { .. } => {
                self.is_locked = true;
                done
            }
            Request::Unlock => {
                self.is_locked = false;
                done
            }
            Request::Capture => {
                let folder = fds.into_iter().next();
                let folder = folder.ok_or(ServerError::WrongMoment("capture without a directory"))?;
                let copied = self.state.copy_to(&Folder::new(folder, None), self.pid);
                Ok(Response::Captured {
                    files: copied.map_err(|(part, error)| of_part(part, self.pid)(error))?,
                    memory_bytes: self.description.summary.mapped_bytes,
                })
            }
            Request::Suspend { .. } => Err(ServerError::WrongMoment("the program is suspended already")),
            Request::Stats
            | Request::Hello { .. }
            | Request::MemoryTo { .. }
            | Request::WriteMemory
            | Request::AddPinned { .. }
            | Request::Attach { .. }
            | Request::Resume { .. } => Err(ServerError::WrongMoment("the program is suspended")),
        }
    }

    fn status(&self) -> ServerStatus {
        let summary = &self.description.summary;
        ServerStatus {
            app_pid: self.pid,
            server_pid: std::process::id(),
            device: self.device.to_string(),
            device_name: String::new(),
            memory_bytes: summary.mapped_bytes,
            allocated_bytes: summary.allocated_bytes,
            is_paused: true,
            writes_archives: false,
            borrows_pieces: false,
            keeps_memory: false,
            is_locked: self.is_locked,
            is_suspended: true,
            kernels: summary
                .kernels_in_flight
                .iter()
                .map(|kernel| kernel.name.clone())
                .collect(),
            num_queued: summary.num_held_commands,
            label: summary.label.clone(),
            native_code: summary.native_code.iter().map(ToString::to_string).collect(),
            last_pause_us: 0,
            last_capture_us: 0,
        }
    }

    /// Goes on, on `device`, as connection `asker` wants. After a failure it starts anew, so that whatever the device's
    /// driver has in this process is gone.
    fn resume(mut self, asker: usize, device: DeviceChoice) -> Result<Arc<Control>, ServerError> {
        let rebuilt = self.rebuild(device);
        let error = match rebuilt {
            Ok(control) => {
                self.connections[asker].tell(&Response::Done { elapsed_us: 0 });
                // The system takes a tenth of a second for each GiB, for which nobody is to wait.
                let state = self.state;
                let spawned = std::thread::Builder::new()
                    .name("memory".to_owned())
                    .spawn(move || drop(state));
                if let Err(error) = spawned {
                    tracing::debug!(%error, "memory is given back at once");
                }
                for connection in self.connections {
                    // From now on each has a thread that may wait for it.
                    match connection.socket.set_timeout(None) {
                        Ok(()) => control.adopt(connection.peer, connection.socket),
                        Err(error) => tracing::warn!(%error, "a connection is lost"),
                    }
                }
                return Ok(control);
            }
            Err(error) => error,
        };
        tracing::warn!(%error, "cannot go on");
        let passengers = self.connections.iter().enumerate().map(|(at, connection)| Passenger {
            fd: connection.socket.as_stream().as_raw_fd(),
            peer: connection.peer,
            answer: (at == asker).then(|| error.response()),
        });
        let baggage = Baggage {
            pid: self.pid,
            device: self.device.to_string(),
            listener: self.listener.as_raw_fd(),
            ring: self.ring.as_raw_fd(),
            state: KeptDescriptors::of(&self.state),
            memory_path: self.memory_path.clone(),
            connections: passengers.collect(),
            is_locked: self.is_locked,
        };
        match baggage.start_anew()? {}
    }

    fn rebuild(&self, device: DeviceChoice) -> Result<Arc<Control>, ServerError> {
        let files = state_files(&self.state, self.pid)?;
        let state = read_state(&files, Readable::HERE)?;
        let pinned: Vec<PinnedArea> = state
            .pinned
            .iter()
            .map(|area| PinnedArea {
                addr: area.addr,
                size_bytes: area.size_bytes,
                fd: area.fd,
            })
            .collect();
        let session = restore(&files, state, choose(device)?)?;
        session.printed.begin();
        for area in pinned {
            session.pinned.register_from_app(self.pid, area)?;
        }
        let os = |source| ServerError::Os { call: "dup", source };
        let listener = self.listener.try_clone().map_err(os)?;
        let control = Arc::new(Control::new(
            session,
            self.device,
            listener,
            own_files(self.pid)?,
            false,
        ));
        if self.is_locked {
            control.session.holds.lock().holders.push(pause::LOCK);
        }
        control.connect_ring(self.ring.try_clone().map_err(os)?)?;
        control.watch_app(None);
        if !self.is_locked {
            pause::go_on(&control.session);
        }
        self.remove_memory_file();
        Ok(control)
    }

    /// Removes the file with the memory's content, unless something else has its name by now.
    fn remove_memory_file(&self) {
        let Some(path) = &self.memory_path else { return };
        let [memory] = self.state.memory.files() else { return };
        if FileId::of(memory).ok() == FileId::at(path)
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!(%error, path = %path.display(), "the file with device memory cannot be removed");
        }
    }

    fn end(&self, why: &str) -> ! {
        tracing::info!(why, "ends");
        self.remove_memory_file();
        self.files.remove();
        process::end_at_once()
    }
}

/// Who has something to say.
struct Ready {
    /// By their places, ascending.
    connections: Vec<usize>,
    somebody_connects: bool,
    application_ended: bool,
}

impl Connection {
    fn new(socket: ControlSocket, peer: Peer) -> Self {
        if let Err(error) = socket.set_timeout(Some(MESSAGE_LIMIT)) {
            tracing::warn!(%error, "a connection has no time limit");
        }
        Self {
            socket,
            peer,
            holds: false,
        }
    }

    /// False if nobody hears it.
    fn tell(&mut self, answer: &Response) -> bool {
        match self.socket.send(answer, &[]) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "answer not sent");
                false
            }
        }
    }
}

fn own_files(pid: u32) -> Result<OwnFiles, ServerError> {
    let runtime = ensure_runtime_dir()?;
    Ok(OwnFiles {
        socket: SocketFile::new(socket_path(&runtime, pid)),
        log: log_path(&runtime, pid),
    })
}

fn state_files(state: &KeptState, pid: u32) -> Result<StateFiles, ServerError> {
    StateFiles::of_kept(state, pid).map_err(|source| ServerError::Os { call: "dup", source })
}

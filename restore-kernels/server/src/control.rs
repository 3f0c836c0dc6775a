//! Connections to the control socket: one thread each.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hetckpt_archive::known_pieces::KnownPieces;
use hetckpt_ring::consumer::Consumer;
use hetckpt_ring::control_socket::ControlSocket;
use hetckpt_ring::message::{Request, Response, ServerStatus};
use hetckpt_ring::peer;
use hetckpt_ring::pinned_table::PinnedArea;
use hetckpt_ring::server_stats::ServerStats;
use hetckpt_ring::version::PROTOCOL_VERSION;
use parking_lot::Mutex;

use crate::checkpoint_requests;
use crate::choose_device::DeviceChoice;
use crate::connections::{Connections, Peer};
use crate::error::ServerError;
use crate::kept_capture::{self, KeptCapture, Outcome};
use crate::own_files::OwnFiles;
use crate::pause;
use crate::process;
use crate::queues::What;
use crate::reader;
use crate::rest_of_restore::RestOfRestore;
use crate::run_as;
use crate::session::Session;
use crate::state_output::{ArchiveEnd, Folder};
use crate::suspend::{Leaving, suspend};

/// Everything a connection's thread needs.
pub struct Control {
    /// The session.
    pub session: Arc<Session>,
    /// The device that was asked for.
    pub device: DeviceChoice,
    /// Where connections come in.
    pub listener: UnixListener,
    /// Those that are there.
    pub connections: Connections,
    /// The memory of the ring, once the application is connected.
    pub ring: OnceLock<OwnedFd>,
    /// Removed at the end.
    pub files: OwnFiles,
    /// True if the application is to be attached by the plugin, not by its own hello.
    pub is_restored: bool,
    /// What is left of its restore.
    rest: RestOfRestore,
    /// A capture that is to be written.
    kept: Mutex<Option<KeptCapture>>,
}

impl Control {
    /// Of a session whose application is not connected yet, as far as it can be told; files are those of `listener`'s
    /// socket.
    #[must_use]
    pub fn new(
        session: Arc<Session>,
        device: DeviceChoice,
        listener: UnixListener,
        files: OwnFiles,
        is_restored: bool,
    ) -> Self {
        Self {
            session,
            device,
            listener,
            connections: Connections::default(),
            ring: OnceLock::new(),
            files,
            is_restored,
            rest: RestOfRestore::nothing(),
            kept: Mutex::default(),
        }
    }

    /// `rest` is left of the restore: what concerns the program's state waits for it.
    #[must_use]
    pub fn with_rest(self, rest: RestOfRestore) -> Self {
        Self { rest, ..self }
    }

    /// Accepts connections for ever.
    pub fn serve(self: &Arc<Self>) {
        for stream in self.listener.incoming() {
            let stream = match stream {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::error!(%error, "accept failed");
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            if !peer::may_ask(&stream) {
                tracing::warn!("another user has tried to connect");
                continue;
            }
            self.adopt(Peer::Asker, ControlSocket::new(stream));
        }
    }

    /// Listens to a connection from now on.
    pub fn adopt(self: &Arc<Self>, peer: Peer, socket: ControlSocket) {
        let number = self.connections.add(peer, &socket);
        let control = Arc::clone(self);
        let spawned = std::thread::Builder::new()
            .name(format!("connection {number}"))
            .spawn(move || control.connection(number, socket));
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for a connection");
            self.connections.remove(number);
        }
    }

    /// Ends the process.
    pub fn end(&self, why: &str) -> ! {
        tracing::info!(why, "ends");
        self.files.remove();
        process::end_at_once()
    }

    fn connection(self: &Arc<Self>, number: u64, mut socket: ControlSocket) {
        let session = &self.session;
        let mut is_final = false;
        loop {
            // What has been taken from a connection is answered before this program starts anew.
            let answering = socket.wait().map(|()| self.connections.answering());
            let received = answering.and_then(|answering| Ok((socket.receive::<Request>()?, answering)));
            let ((request, fds), answering) = match received {
                Ok((Some(message), answering)) => (message, answering),
                Ok((None, _)) => break,
                Err(error) => {
                    tracing::warn!(%error, "connection broken");
                    break;
                }
            };
            tracing::debug!(number, ?request, "request");
            is_final |= matches!(request, Request::Release { app_is_gone: true });
            let suspends = matches!(request, Request::Suspend { .. });
            let _answering = (!suspends).then_some(answering);
            let response = self.answer(number, request, fds).unwrap_or_else(|error| {
                tracing::warn!(%error, "request failed");
                error.response()
            });
            if let Err(error) = socket.send(&response, &[]) {
                tracing::warn!(%error, "answer not sent");
                break;
            }
            if is_final {
                self.end("the application was dumped and is gone");
            }
        }
        if self.connections.remove(number) == Some(Peer::Application) {
            self.end("the application has closed its connection");
        }
        session.forget_archive(number);
        self.take_kept(number);
        pause::release(session, number);
    }

    /// What a capture has kept for connection `number`.
    fn take_kept(&self, number: u64) -> Option<KeptCapture> {
        self.kept.lock().take_if(|kept| kept.of == number)
    }

    fn answer(self: &Arc<Self>, number: u64, request: Request, fds: Vec<OwnedFd>) -> Result<Response, ServerError> {
        let session = &self.session;
        let is_beside = matches!(request, Request::Status | Request::Stats | Request::AddPinned { .. });
        if !is_beside {
            self.rest.wait()?;
        }
        match request {
            Request::Hello { protocol, .. } => {
                // A program that starts has the driver library of this installation.
                if protocol != PROTOCOL_VERSION {
                    return Err(hetckpt_ring::error::RingError::Version {
                        ours: PROTOCOL_VERSION,
                        theirs: protocol,
                    }
                    .into());
                }
                let ring = fds
                    .into_iter()
                    .next()
                    .ok_or(ServerError::WrongMoment("hello without a ring"))?;
                self.connect_ring(ring)?;
                self.connections.is_of_application(number);
                self.watch_app(None);
                Ok(Response::Welcome {
                    protocol: PROTOCOL_VERSION,
                    devices: vec![session.virtual_device.clone()],
                })
            }
            Request::Status => Ok(Response::Status(self.status())),
            Request::Stats => Ok(Response::Stats(self.stats())),
            Request::Pause { limit_ms } => {
                let elapsed_us = pause::pause(session, number, limit_of(limit_ms))?;
                Ok(Response::Done { elapsed_us })
            }
            Request::MemoryTo { member, later } => {
                let mut files = fds.into_iter().map(File::from);
                let file = files.next();
                let file = file.ok_or(ServerError::WrongMoment("an archive without its file"))?;
                let known = files
                    .next()
                    .as_ref()
                    .map_or_else(|| Ok(KnownPieces::default()), KnownPieces::read);
                let known = known.map_err(|source| ServerError::Os {
                    call: "reading the list of known pieces",
                    source,
                })?;
                let later = later.then(|| kept_capture::plan(session)).flatten();
                *session.archive.lock() = Some(ArchiveEnd {
                    of: number,
                    file,
                    member,
                    known,
                    later,
                });
                Ok(Response::Done { elapsed_us: 0 })
            }
            Request::Capture => {
                let started = Instant::now();
                let dir = fds
                    .into_iter()
                    .next()
                    .ok_or(ServerError::WrongMoment("capture without a directory"))?;
                let output = Folder::new(dir, session.archive.lock().take());
                let captured = match kept_capture::capture(session, output)? {
                    Outcome::Written(captured) => captured,
                    Outcome::Kept(announced, kept) => {
                        let of = kept.of;
                        *self.kept.lock() = Some(*kept);
                        // Whoever has gone meanwhile has found nothing to forget.
                        if !self.connections.all().contains_key(&of) {
                            self.take_kept(of);
                        }
                        announced
                    }
                };
                Session::note_duration(&session.last_capture_us, started);
                Ok(Response::Captured {
                    files: captured.files,
                    memory_bytes: captured.memory_bytes,
                })
            }
            Request::WriteMemory => {
                let written = self.take_kept(number).map(KeptCapture::write).transpose()?;
                Ok(Response::Captured {
                    memory_bytes: written.as_ref().map_or(0, |written| written.memory_bytes),
                    files: written.map_or_else(Vec::new, |written| written.files),
                })
            }
            Request::AddPinned { areas } => {
                self.add_pinned(&areas, &fds)?;
                Ok(Response::Done { elapsed_us: 0 })
            }
            Request::Attach { pid, num_pinned } => {
                let started = Instant::now();
                self.attach(pid, num_pinned, fds)?;
                let elapsed_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
                Ok(Response::Done { elapsed_us })
            }
            Request::Suspend { limit_ms, file } => {
                let file = file.map(|path| (path, fds.into_iter().next()));
                let leaving = Leaving {
                    session,
                    device: self.device,
                    listener: &self.listener,
                    connections: &self.connections,
                    ring: self.ring.get(),
                };
                match suspend(&leaving, number, limit_of(limit_ms), file)? {}
            }
            Request::Resume { .. } => Err(ServerError::WrongMoment("the program is not suspended")),
            Request::Lock { limit_ms } => {
                let elapsed_us = pause::pause(session, pause::LOCK, limit_of(limit_ms))?;
                Ok(Response::Done { elapsed_us })
            }
            Request::Unlock => {
                pause::release(session, pause::LOCK);
                Ok(Response::Done { elapsed_us: 0 })
            }
            Request::Release { app_is_gone } => {
                session.forget_archive(number);
                if !app_is_gone {
                    pause::release(session, number);
                }
                Ok(Response::Done { elapsed_us: 0 })
            }
        }
    }

    /// Reads the ring from now on.
    ///
    /// # Errors
    /// [`ServerError`]; nothing of it has been read then.
    pub fn connect_ring(self: &Arc<Self>, ring: OwnedFd) -> Result<(), ServerError> {
        let session = &self.session;
        let (consumer, side) = Consumer::open(ring.as_fd(), session.readable_rings)?;
        session
            .side
            .set(side.clone())
            .map_err(|_| ServerError::WrongMoment("the application is connected already"))?;
        if !self.is_restored {
            session.ask_for_managed_faults();
        }
        pause::watch_cuts(session)?;
        if self.is_restored {
            side.checkpoint_words().note_restored();
        }
        checkpoint_requests::start(side, session.app_pid)?;
        let _ = self.ring.set(ring);
        let fault = session.queues.lock().order.fault();
        if let Some(side) = session.side.get().filter(|_| fault != 0) {
            side.set_fault(fault);
        }
        reader::start(session, consumer)
    }

    fn add_pinned(&self, areas: &[PinnedArea], fds: &[OwnedFd]) -> Result<(), ServerError> {
        self.ensure_attachable()?;
        if areas.len() != fds.len() {
            return Err(ServerError::WrongMoment("pinned memory without its memfds"));
        }
        for (area, fd) in areas.iter().zip(fds) {
            self.session.pinned.register(fd.as_fd(), *area)?;
        }
        Ok(())
    }

    fn ensure_attachable(&self) -> Result<(), ServerError> {
        if !self.is_restored {
            return Err(ServerError::WrongMoment("only a restored application can be attached"));
        }
        match self.session.side.get() {
            Some(_) => Err(ServerError::WrongMoment("the application is connected already")),
            None => Ok(()),
        }
    }

    fn attach(self: &Arc<Self>, pid: u32, num_pinned: u64, fds: Vec<OwnedFd>) -> Result<(), ServerError> {
        self.ensure_attachable()?;
        let mut fds = fds.into_iter();
        let (Some(ring), Some(pidfd)) = (fds.next(), fds.next()) else {
            return Err(ServerError::WrongMoment("attach needs a ring and a pidfd"));
        };
        run_as::ensure_may_serve(pid)?;
        if self.session.pinned.areas().len() as u64 != num_pinned {
            return Err(ServerError::WrongMoment("some of the pinned memory is missing"));
        }
        tracing::info!(pid, "attached");
        self.connect_ring(ring)?;
        self.watch_app(Some(pidfd));
        pause::go_on(&self.session);
        Ok(())
    }

    /// Ends the server when the application ends.
    pub fn watch_app(self: &Arc<Self>, pidfd: Option<OwnedFd>) {
        let Some(pidfd) = pidfd.or_else(|| crate::process::open_pidfd(self.session.app_pid)) else {
            tracing::warn!("no pidfd of the application; its connection tells when it ends");
            return;
        };
        let control = Arc::clone(self);
        let watch = move || {
            crate::process::wait_pidfd(&pidfd);
            control.end("the application has ended")
        };
        if let Err(error) = std::thread::Builder::new().name("pidfd".to_owned()).spawn(watch) {
            tracing::error!(%error, "no thread to watch the application");
        }
    }

    fn stats(&self) -> ServerStats {
        let description = self.session.device.describe();
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        ServerStats {
            app_pid: self.session.app_pid,
            server_pid: std::process::id(),
            device: description.id,
            device_name: description.name,
            age_us: us(self.session.counters().age()),
            cpu_us: us(crate::process::processor_time()),
            done: self.session.counters().done(),
        }
    }

    fn status(&self) -> ServerStatus {
        let session = &self.session;
        let description = session.device.describe();
        let (memory_bytes, allocated_bytes) = {
            let memory = session.memory.lock();
            let allocated = memory.allocated_bytes();
            (memory.mapped_bytes(), allocated)
        };
        let native_code = session.modules.lock().native_code();
        // Before the queues' lock, as a pause takes them.
        let (is_paused, is_locked) = (pause::is_held(session), pause::is_locked(session));
        let queues = session.queues.lock();
        let streams = || queues.order.streams().map(|(_, s)| s);
        let queued = streams().flat_map(|s| s.queue());
        let stopped = queued.filter(|item| matches!(item.work.what, What::Resume(_)));
        let running = streams().flat_map(|s| s.flights()).map(|flight| &flight.work);
        let kernels = running
            .chain(stopped.map(|item| &item.work))
            .map(|work| work.kernel_name());
        let kernels = kernels.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        ServerStatus {
            app_pid: session.app_pid,
            server_pid: std::process::id(),
            device: description.id,
            device_name: description.name,
            memory_bytes,
            allocated_bytes,
            is_paused,
            writes_archives: true,
            borrows_pieces: true,
            keeps_memory: true,
            is_locked,
            is_suspended: false,
            kernels,
            num_queued: queues.order.num_queued(),
            label: session.label(),
            native_code: native_code.iter().map(ToString::to_string).collect(),
            last_pause_us: session.last_pause_us.load(Ordering::Relaxed),
            last_capture_us: session.last_capture_us.load(Ordering::Relaxed),
        }
    }
}

/// A time limit as requests have it.
pub fn limit_of(limit_ms: u64) -> Option<Duration> {
    (limit_ms > 0).then(|| Duration::from_millis(limit_ms))
}

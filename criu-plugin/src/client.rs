//! Connections to device servers, one for each process that has one.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hetckpt_ring::control_socket::ControlSocket;
use hetckpt_ring::error::RingError;
use hetckpt_ring::message::{Request, Response};
use hetckpt_ring::runtime_dir::{runtime_dir, socket_path};
use hetckpt_ring::server_start::{is_starting, wait_until_started};

/// For how long servers that are starting are waited for, all of a dump together. With the five seconds that a server
/// gives its kernels to stop it must fit into CRIU's ten.
const START_LIMIT: Duration = Duration::from_secs(4);

/// Connections by process. Closing one without `Release` makes its server resume the kernels: that is how a dump that
/// fails, or a CRIU that is killed, leaves the program as it was.
static CONNECTIONS: Mutex<BTreeMap<u32, ControlSocket>> = Mutex::new(BTreeMap::new());

/// When [`START_LIMIT`] is over, once it has begun.
static START_DEADLINE: Mutex<Option<Instant>> = Mutex::new(None);

fn connections() -> MutexGuard<'static, BTreeMap<u32, ControlSocket>> {
    CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start_deadline() -> MutexGuard<'static, Option<Instant>> {
    START_DEADLINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects to the server of process `pid`; false if it has none.
pub fn connect(pid: u32) -> Result<bool, String> {
    let mut connections = connections();
    if connections.contains_key(&pid) {
        return Ok(true);
    }
    match ControlSocket::connect(&socket_path(&runtime_dir(), pid)) {
        Ok(socket) => {
            connections.insert(pid, socket);
            Ok(true)
        }
        Err(RingError::NoServer { .. }) => Ok(false),
        Err(error) => Err(format!("device server of process {pid}: {error}")),
    }
}

/// Waits until process `pid`, which must not be frozen, is not starting a device server.
pub fn wait_for_start(pid: u32) -> Result<(), String> {
    let dir = runtime_dir();
    if !is_starting(&dir, pid) {
        return Ok(());
    }
    let deadline = *start_deadline().get_or_insert_with(|| Instant::now() + START_LIMIT);
    wait_until_started(&dir, pid, START_LIMIT, deadline)
        .map_err(|error| format!("{error}; it was left as it was: dump it again in a moment"))
}

/// Fails if process `pid`, which is frozen and was not asked to pause, has a device server after all.
pub fn ensure_no_server(pid: u32) -> Result<(), String> {
    let dir = runtime_dir();
    if is_starting(&dir, pid) || ControlSocket::connect(&socket_path(&dir, pid)).is_ok() {
        return Err(format!(
            "process {pid} started its device server while it was being frozen; it runs on: dump it again in a moment"
        ));
    }
    Ok(())
}

/// Asks the server of `pid`, giving it `timeout` to answer.
pub fn ask(pid: u32, request: &Request, fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<Response, String> {
    let mut connections = connections();
    let socket = connections
        .get_mut(&pid)
        .ok_or_else(|| format!("process {pid} has no device server"))?;
    let explain = |error: RingError| format!("device server of process {pid}: {error}");
    socket.set_timeout(timeout).map_err(explain)?;
    socket.ask(request, fds).map_err(explain)
}

/// True if the server of `pid` is connected.
pub fn is_connected(pid: u32) -> bool {
    connections().contains_key(&pid)
}

/// Closes all connections, and forgets the dump's deadline: one CRIU process may do several dumps.
pub fn disconnect_all() {
    connections().clear();
    *start_deadline() = None;
}

/// A new connection for the restored process `pid`.
pub fn socket_for(pid: u32) -> Result<std::os::unix::net::UnixStream, String> {
    ControlSocket::connect(&socket_path(&runtime_dir(), pid))
        .map(ControlSocket::into_stream)
        .map_err(|error| format!("device server of process {pid}: {error}"))
}

/// The process whose device server the unix socket `fd` is connected to, if it is one of ours.
pub fn server_peer(fd: BorrowedFd<'_>) -> Option<u32> {
    let stream = std::os::unix::net::UnixStream::from(fd.as_fd().try_clone_to_owned().ok()?);
    let peer = stream.peer_addr().ok()?;
    let path = peer.as_pathname()?;
    if path.parent() != Some(runtime_dir().as_path()) {
        return None;
    }
    hetckpt_ring::runtime_dir::pid_of_socket(path)
}

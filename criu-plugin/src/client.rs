//! Connections to device servers, one for each process that has one.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hetckpt_ring::control_socket::ControlSocket;
use hetckpt_ring::error::RingError;
use hetckpt_ring::message::{Request, Response};
use hetckpt_ring::runtime_dir::{runtime_dir, socket_path};

/// Connections by process. Closing one without `Release` makes its server resume the kernels: that is how a dump that
/// fails, or a CRIU that is killed, leaves the program as it was.
static CONNECTIONS: Mutex<BTreeMap<u32, ControlSocket>> = Mutex::new(BTreeMap::new());

fn connections() -> MutexGuard<'static, BTreeMap<u32, ControlSocket>> {
    CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Closes all connections.
pub fn disconnect_all() {
    connections().clear();
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

//! Connections to device servers, one for each process that has one.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use hetckpt_ring::control_socket::ControlSocket;
use hetckpt_ring::error::RingError;
use hetckpt_ring::message::{Request, Response};
use hetckpt_ring::runtime_dir::{runtime_dir, socket_path};
use hetckpt_ring::server_start::{has_let_go, has_ring, is_starting, owns_ring, wait_until_started};
use hetckpt_ring::signs_of_life::Silence;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use parking_lot::{Mutex, MutexGuard};

use crate::error::PluginError;
use crate::user::User;

/// For how long servers that are starting are waited for, all of a dump together. With the five seconds that a server
/// gives its kernels to stop it must fit into CRIU's ten.
const START_LIMIT: Duration = Duration::from_secs(4);

/// How often, and how long apart, one looks whether a server that has been left has ended.
const LOOKS_FOR_END: u32 = 300;
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Connections by process. Closing one without `Release` makes its server resume the kernels: that is how a dump that
/// fails, or a CRIU that is killed, leaves the program as it was.
static CONNECTIONS: Mutex<BTreeMap<u32, ControlSocket>> = Mutex::new(BTreeMap::new());

/// When [`START_LIMIT`] is over, once it has begun.
static START_DEADLINE: Mutex<Option<Instant>> = Mutex::new(None);

/// Processes whose servers have been asked for all that CRIU's command wants of them: to capture, or to take over.
static DONE: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// The process that CRIU named first.
static ROOT: Mutex<Option<u32>> = Mutex::new(None);

fn connections() -> MutexGuard<'static, BTreeMap<u32, ControlSocket>> {
    CONNECTIONS.lock()
}

fn done() -> MutexGuard<'static, BTreeSet<u32>> {
    DONE.lock()
}

fn start_deadline() -> MutexGuard<'static, Option<Instant>> {
    START_DEADLINE.lock()
}

/// Connects to the server of process `pid`; false if it has none.
pub fn connect(pid: u32) -> Result<bool, PluginError> {
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
        Err(source) => Err(PluginError::Server { pid, source }),
    }
}

/// Waits until process `pid`, which must not be frozen, is not starting a device server.
pub fn wait_for_start(pid: u32) -> Result<(), PluginError> {
    let dir = runtime_dir();
    if !is_starting(&dir, pid) {
        return Ok(());
    }
    let deadline = *start_deadline().get_or_insert_with(|| Instant::now() + START_LIMIT);
    wait_until_started(&dir, pid, START_LIMIT, deadline).map_err(PluginError::Starting)
}

/// Fails if process `pid`, which is frozen and was not asked to pause, has a device server after all.
pub fn ensure_no_server(pid: u32) -> Result<(), PluginError> {
    let dir = runtime_dir();
    if is_starting(&dir, pid) || has_server(pid) {
        return Err(PluginError::StartedWhileFrozen { pid });
    }
    Ok(())
}

/// Fails if process `pid`, which is frozen, has lost its device server: without the device's state it could not go on.
pub fn ensure_server_not_lost(pid: u32) -> Result<(), PluginError> {
    match owns_ring(pid) {
        true => Err(PluginError::ServerUnreachable {
            pid,
            folder: runtime_dir(),
        }),
        false => Ok(()),
    }
}

/// Asks the server of `pid`, giving it `timeout` to answer; `None`: as long as it shows that it is at work.
pub fn ask(
    pid: u32,
    request: &Request,
    fds: &[BorrowedFd<'_>],
    timeout: Option<Duration>,
) -> Result<Response, PluginError> {
    let mut connections = connections();
    let socket = connections.get_mut(&pid).ok_or(PluginError::NotConnected { pid })?;
    let failed = |source| PluginError::Server { pid, source };
    if timeout.is_none() {
        socket.send(request, fds).map_err(failed)?;
        // CRIU holds the program frozen meanwhile; a signal is its own time limit.
        let mut silence = Silence::of(server_process(socket));
        let waited = silence.wait_to_read(socket.as_stream());
        waited.map_err(|source| PluginError::NoAnswer { pid, source })?;
        return socket.answer().map_err(failed);
    }
    socket.set_timeout(timeout).map_err(failed)?;
    socket.ask(request, fds).map_err(failed)
}

/// Fails if the server of `pid` is a descendant of process `root`, which is being dumped: frozen, it could not answer
/// any more.
pub fn ensure_outside(pid: u32, root: u32) -> Result<(), PluginError> {
    let Some(server) = connections().get(&pid).and_then(server_process) else {
        return Ok(());
    };
    let mut ancestor = Some(server);
    while let Some(process) = ancestor.filter(|&process| process > 1) {
        if process == root {
            return Err(PluginError::InsideTree { pid, server });
        }
        ancestor = parent(process);
    }
    Ok(())
}

/// The process at the other end.
fn server_process(socket: &ControlSocket) -> Option<u32> {
    let credentials = getsockopt(socket.as_stream(), PeerCredentials).ok()?;
    u32::try_from(credentials.pid()).ok()
}

/// As whom the server of `pid` runs, as the system knows it.
pub fn server_user(pid: u32) -> Option<User> {
    let connections = connections();
    let credentials = getsockopt(connections.get(&pid)?.as_stream(), PeerCredentials).ok()?;
    Some(User {
        uid: credentials.uid(),
        gid: credentials.gid(),
    })
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

/// True if the server of `pid`, which did not answer, has ended because the process has let go of it: it ends, or
/// becomes another program, which may have a server of its own by now. The connection is forgotten then.
pub fn was_left(pid: u32) -> bool {
    if connections().get(&pid).is_none_or(ControlSocket::is_alive) {
        return false;
    }
    let was_left = has_let_go(pid) || has_server(pid);
    if was_left {
        connections().remove(&pid);
    }
    was_left
}

/// True if process `pid`, which is frozen, became another program after its kernels had stopped. Its server, which
/// goes, has the state of the program before, and must not be asked for it.
pub fn became_another_program(pid: u32) -> bool {
    if has_ring(pid) {
        return false;
    }
    // Until the server has noticed, it cannot be told from one that is starting.
    for _ in 0..LOOKS_FOR_END {
        if connections().get(&pid).is_none_or(|socket| !socket.is_alive()) {
            break;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    connections().remove(&pid);
    true
}

fn has_server(pid: u32) -> bool {
    ControlSocket::connect(&socket_path(&runtime_dir(), pid)).is_ok()
}

/// True if the server of `pid` is connected.
pub fn is_connected(pid: u32) -> bool {
    connections().contains_key(&pid)
}

/// The root of the tree that is being dumped: of its processes, the first that `pid` is.
pub fn root_of_dump(pid: u32) -> u32 {
    *ROOT.lock().get_or_insert(pid)
}

/// Notes that the server of `pid` has captured, or taken over.
pub fn note_done(pid: u32) {
    done().insert(pid);
}

/// True if the server of `pid` has captured, or taken over.
pub fn is_done(pid: u32) -> bool {
    done().contains(&pid)
}

/// Processes whose servers are connected and have not taken over.
pub fn left_undone() -> Vec<u32> {
    let connected: Vec<u32> = connections().keys().copied().collect();
    connected.into_iter().filter(|&pid| !is_done(pid)).collect()
}

/// Closes all connections, and forgets all else of a dump: one CRIU process may do several.
pub fn disconnect_all() {
    connections().clear();
    done().clear();
    *start_deadline() = None;
    *ROOT.lock() = None;
}

/// A new connection for the restored process `pid`.
pub fn socket_for(pid: u32) -> Result<std::os::unix::net::UnixStream, PluginError> {
    ControlSocket::connect(&socket_path(&runtime_dir(), pid))
        .map(ControlSocket::into_stream)
        .map_err(|source| PluginError::Server { pid, source })
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

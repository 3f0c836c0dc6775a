//! The connections to the control socket that are open.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, RawFd};

use hetckpt_ring::control_socket::ControlSocket;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde::{Deserialize, Serialize};

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Peer {
    /// The application, whose end shows by it. That of a restored application is made by whoever restores it, and is
    /// not known as such.
    Application,
    /// Somebody else.
    Asker,
}

/// A connection, by the number of its descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Who is at the other end.
    pub peer: Peer,
    /// The descriptor. It is open as long as the connection is listed.
    pub fd: RawFd,
}

/// Those that are open, by number from 1 on.
#[derive(Default)]
pub struct Connections {
    open: Mutex<(u64, BTreeMap<u64, Open>)>,
    answering: RwLock<()>,
}

impl Connections {
    /// Lists a connection; gives its number.
    pub fn add(&self, peer: Peer, socket: &ControlSocket) -> u64 {
        let (last, open) = &mut *self.open.lock();
        *last += 1;
        let fd = socket.as_stream().as_raw_fd();
        open.insert(*last, Open { peer, fd });
        *last
    }

    /// It has turned out to be the application's.
    pub fn is_of_application(&self, number: u64) {
        if let Some(connection) = self.open.lock().1.get_mut(&number) {
            connection.peer = Peer::Application;
        }
    }

    /// Removes a connection that is about to be closed; says whose it was.
    pub fn remove(&self, number: u64) -> Option<Peer> {
        self.open.lock().1.remove(&number).map(|connection| connection.peer)
    }

    /// All of them.
    pub fn all(&self) -> BTreeMap<u64, Open> {
        self.open.lock().1.clone()
    }

    /// While this is held a request is being answered.
    pub fn answering(&self) -> RwLockReadGuard<'_, ()> {
        self.answering.read()
    }

    /// While this is held none is; waits for those that are.
    pub fn silent(&self) -> RwLockWriteGuard<'_, ()> {
        self.answering.write()
    }
}

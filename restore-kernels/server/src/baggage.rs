//! What a server takes along when it becomes another program: its own, anew. To start anew is what gives a device back
//! for certain, with all that a driver has in this process. The process, and so all that others know of it, stays.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use hetckpt_archive::memory_source::MemberPlace;
use hetckpt_ring::message::Response;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use crate::connections::Peer;
use crate::error::ServerError;
use crate::kept_memory::KeptMemory;
use crate::process;
use crate::state_output::KeptState;

/// The descriptors that are taken along, by number, and what there is to know.
#[derive(Debug, Serialize, Deserialize)]
pub struct Baggage {
    /// The application.
    pub pid: u32,
    /// The device that was asked for.
    pub device: String,
    /// The control socket.
    pub listener: RawFd,
    /// The ring's memory.
    pub ring: RawFd,
    /// The state.
    pub state: KeptDescriptors,
    /// The path of the file with the memory's content, if it is to be removed.
    pub memory_path: Option<PathBuf>,
    /// Open connections.
    pub connections: Vec<Passenger>,
    /// The pause is locked.
    pub is_locked: bool,
}

/// A state's descriptors, by number.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptDescriptors {
    description: RawFd,
    state: RawFd,
    memory: Vec<RawFd>,
    /// Where the memory's content lies in them, if they are several.
    place: Option<MemberPlace>,
}

impl KeptDescriptors {
    /// Those of `state`, which keeps them.
    #[must_use]
    pub fn of(state: &KeptState) -> Self {
        let KeptState {
            description,
            state,
            memory,
        } = state;
        Self {
            description: description.as_raw_fd(),
            state: state.as_raw_fd(),
            memory: memory.files().iter().map(AsRawFd::as_raw_fd).collect(),
            place: memory.place().cloned(),
        }
    }

    fn all(&self) -> impl Iterator<Item = RawFd> {
        [self.description, self.state]
            .into_iter()
            .chain(self.memory.iter().copied())
    }
}

/// An open connection.
#[derive(Debug, Serialize, Deserialize)]
pub struct Passenger {
    /// Its descriptor.
    pub fd: RawFd,
    /// Who is at the other end.
    pub peer: Peer,
    /// What they are to be told.
    pub answer: Option<Response>,
}

impl Baggage {
    /// Becomes this program anew, with `--suspended` and all that is listed.
    ///
    /// # Errors
    /// [`ServerError`]; this process is what it was then.
    pub fn start_anew(&self) -> Result<std::convert::Infallible, ServerError> {
        let cannot = |source| ServerError::Os {
            call: "starting anew",
            source,
        };
        let mut list: File = memfd_create("hetckpt-baggage", MFdFlags::MFD_CLOEXEC)
            .map_err(|e| cannot(e.into()))?
            .into();
        let text = serde_json::to_vec(self).map_err(|e| cannot(e.into()))?;
        list.write_all(&text).and_then(|()| list.rewind()).map_err(cannot)?;
        let mut kept = vec![self.listener, self.ring, list.as_raw_fd()];
        kept.extend(self.state.all());
        kept.extend(self.connections.iter().map(|passenger| passenger.fd));
        process::become_anew(&["--suspended", &list.as_raw_fd().to_string()], &kept).map_err(cannot)
    }

    /// What the program before has taken along in descriptor `fd`.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn unpack(fd: RawFd) -> Result<Self, ServerError> {
        let list = process::take_descriptor(fd);
        let list = list.ok_or(ServerError::WrongMoment("what was suspended is not there"))?;
        serde_json::from_reader(io::BufReader::new(list)).map_err(|e| ServerError::Damaged(e.into()))
    }

    /// The state.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn kept_state(&self) -> Result<KeptState, ServerError> {
        let KeptDescriptors {
            description,
            state,
            memory,
            place,
        } = &self.state;
        let memory = memory.iter().map(|&fd| Ok(take(fd)?.into()));
        Ok(KeptState {
            description: take(*description)?.into(),
            state: take(*state)?.into(),
            memory: KeptMemory::of(memory.collect::<Result<_, ServerError>>()?, place.clone()),
        })
    }
}

/// A descriptor that was taken along.
///
/// # Errors
/// [`ServerError::WrongMoment`].
pub fn take(fd: RawFd) -> Result<OwnedFd, ServerError> {
    let file = process::take_descriptor(fd);
    file.map(OwnedFd::from).ok_or(ServerError::WrongMoment(
        "a descriptor of what was suspended is not there",
    ))
}

//! Taking everything off the device and giving the device back, while the application stays as it is. Its calls that
//! need the device wait: nobody reads the ring.

use std::convert::Infallible;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hetckpt_ring::message::Response;

use crate::baggage::{Baggage, KeptDescriptors, Passenger};
use crate::capture::{Commands, capture, of_part};
use crate::choose_device::DeviceChoice;
use crate::connections::Connections;
use crate::error::ServerError;
use crate::host_memory::available_memory;
use crate::pause;
use crate::session::Session;
use crate::state_output::{KeptState, Part};

/// What a server has that is taken along.
pub struct Leaving<'a> {
    /// The session.
    pub session: &'a Arc<Session>,
    /// The device that was asked for.
    pub device: DeviceChoice,
    /// The control socket.
    pub listener: &'a UnixListener,
    /// Its connections.
    pub connections: &'a Connections,
    /// The memory of the ring, if the application is connected.
    pub ring: Option<&'a OwnedFd>,
}

/// Suspends on behalf of connection `number`, and starts this program anew, as [`crate::suspended`]. `file` is what is
/// to take the memory's content, with its path.
///
/// # Errors
/// [`ServerError`]; then everything goes on.
pub fn suspend(
    leaving: &Leaving<'_>,
    number: u64,
    limit: Option<Duration>,
    file: Option<(PathBuf, Option<OwnedFd>)>,
) -> Result<Infallible, ServerError> {
    let &Leaving {
        session,
        device,
        listener,
        connections,
        ring,
    } = leaving;
    let ring = ring.ok_or(ServerError::WrongMoment("no application is connected"))?;
    let (memory_path, memory) = match file {
        None => (None, None),
        Some((_, None)) => return Err(ServerError::WrongMoment("suspend to a file without the file")),
        Some((path, Some(file))) => (Some(path), Some(File::from(file))),
    };
    if memory.is_none() {
        ensure_room(session)?;
    }
    let pause_us = pause::pause(session, number, limit)?;
    let suspended = || {
        let pid = session.app_pid;
        ensure_held_by(session, number)?;
        let state = KeptState::new(memory).map_err(of_part(Part::Memory, pid))?;
        let captured = capture(session, &state, Commands::Left)?;
        let _silent = connections.silent();
        // Somebody may have come meanwhile.
        ensure_held_by(session, number)?;
        let passengers = connections.all().into_iter().map(|(other, open)| Passenger {
            fd: open.fd,
            peer: open.peer,
            answer: (other == number).then_some(Response::Suspended {
                pause_us,
                memory_bytes: captured.memory_bytes,
            }),
        });
        let baggage = Baggage {
            pid,
            device: device.to_string(),
            listener: listener.as_raw_fd(),
            ring: ring.as_raw_fd(),
            state: KeptDescriptors::of(&state),
            memory_path,
            connections: passengers.collect(),
            is_locked: pause::is_locked(session),
        };
        tracing::info!(memory_bytes = captured.memory_bytes, "suspends");
        baggage.start_anew()
    };
    let failed = suspended();
    pause::release(session, number);
    failed
}

fn ensure_held_by(session: &Session, number: u64) -> Result<(), ServerError> {
    match pause::is_held_by(session, number) {
        true => Ok(()),
        false => Err(ServerError::WrongMoment(
            "somebody else holds the kernels: they are being dumped, or paused",
        )),
    }
}

/// Makes sure that device memory has room in the host's.
fn ensure_room(session: &Session) -> Result<(), ServerError> {
    let of_arrays = session.arrays.lock().content_bytes();
    let needed_bytes = session.memory.lock().mapped_bytes().saturating_add(of_arrays);
    let available_bytes = available_memory();
    if needed_bytes <= available_bytes {
        return Ok(());
    }
    let text =
        format!("device memory has {needed_bytes} bytes, of which the host has {available_bytes} left: name a file");
    let full = std::io::Error::new(std::io::ErrorKind::OutOfMemory, text);
    Err(of_part(Part::Memory, session.app_pid)(full))
}

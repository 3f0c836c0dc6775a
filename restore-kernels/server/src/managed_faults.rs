//! The application's faults of managed memory: who touches what lies on the device waits until it has come
//! ([`crate::managed_pages`]).

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use hetckpt_ring::app_memory;
use hetckpt_ring::userfaultfd::{FEATURES_TO_MOVE_PAGES, Fault, Userfaultfd};

use crate::error::ServerError;
use crate::managed_area::os;
use crate::pause;
use crate::session::Session;

/// How long what runs on the device may go on once the application waits for a page; then kernels are stopped.
const PATIENCE: Duration = Duration::from_millis(100);
/// Until the next attempt, if kernels have not stopped.
const RETRY: Duration = Duration::from_millis(100);
/// Faults seen to together.
const MOST_FAULTS: usize = 64;

/// Takes the userfaultfd that is descriptor `fd` of the application.
///
/// # Errors
/// [`ServerError::Ring`]; [`ServerError::Os`] if the system has not all that is needed.
pub fn take(session: &Session, fd: i32) -> Result<Userfaultfd, ServerError> {
    let faults = Userfaultfd::from_fd(app_memory::take_descriptor(session.app_pid, fd)?).map_err(os("userfaultfd"))?;
    faults.enable(FEATURES_TO_MOVE_PAGES).map_err(os("UFFDIO_API"))?;
    Ok(faults)
}

/// From now on managed memory moves by page, as `faults` tell, which the application has handed over.
///
/// # Errors
/// [`ServerError`]; then it stays in the host's memory.
pub fn start(session: &Arc<Session>, faults: Userfaultfd) -> Result<(), ServerError> {
    let end = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(os("eventfd"))?;
    let (faults, end) = (Arc::new(faults), Arc::new(end));
    let holds = session.holds.lock();
    if !holds.holders.is_empty() || session.managed.is_active() {
        return Err(ServerError::WrongMoment("the kernels are held"));
    }
    let stopped = pause::stand_still(session, PATIENCE)?;
    session
        .managed
        .begin(Arc::clone(&faults), Arc::clone(&end), &session.pinned);
    let serving = Arc::clone(session);
    let spawned = std::thread::Builder::new()
        .name("managed".to_owned())
        .spawn(move || serve(&serving, &faults, &end));
    let started = match spawned {
        Ok(_) => Ok(()),
        Err(source) => session.managed.end(&session.pinned).and(Err(ServerError::Os {
            call: "thread creation",
            source,
        })),
    };
    pause::resume(session, stopped);
    started
}

fn serve(session: &Arc<Session>, faults: &Userfaultfd, end: &EventFd) {
    let mut waiting: Vec<Fault> = Vec::new();
    loop {
        let mut awaited = [faults.as_fd(), end.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut awaited, PollTimeout::NONE) {
            Ok(_) if awaited[1].any() == Some(true) => return,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => {
                tracing::error!(%error, "faults of managed memory cannot be waited for");
                return;
            }
        }
        while waiting.len() < MOST_FAULTS {
            match faults.next() {
                Ok(Some(fault)) => waiting.push(fault),
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "faults of managed memory cannot be read");
                    break;
                }
            }
        }
        while !waiting.is_empty() {
            session.managed.settle(&mut waiting);
            if waiting.is_empty() || fetch(session, &mut waiting) {
                break;
            }
            std::thread::sleep(RETRY);
        }
    }
}

/// False if kernels have not stopped.
fn fetch(session: &Arc<Session>, waiting: &mut Vec<Fault>) -> bool {
    let holds = session.holds.lock();
    if !holds.holders.is_empty() {
        // All of it is in the host's memory.
        waiting.clear();
        return true;
    }
    match pause::stand_still(session, PATIENCE) {
        Ok(stopped) => {
            session.managed.fetch(waiting, stopped, &session.pinned);
            waiting.clear();
            pause::resume(session, stopped);
            true
        }
        Err(error) => {
            tracing::warn!(%error, "the program waits for managed memory");
            false
        }
    }
}

/// Gives up the device's part of managed memory, as there is no room for other memory. True if there was any.
pub fn give_up(session: &Arc<Session>) -> bool {
    if !session.managed.is_active() {
        return false;
    }
    let holds = session.holds.lock();
    if !holds.holders.is_empty() {
        // All of it is in the host's memory by now.
        return true;
    }
    let stopped = match pause::stand_still(session, PATIENCE) {
        Ok(stopped) => stopped,
        Err(error) => {
            tracing::warn!(%error, "managed memory stays on the device");
            return false;
        }
    };
    session.managed.refuse();
    let ended = session.managed.end(&session.pinned);
    pause::resume(session, stopped);
    match ended {
        Ok(()) => {
            tracing::warn!("device memory is full: kernels reach managed memory in the host's memory from now on");
            true
        }
        Err(error) => {
            tracing::error!(%error, "managed memory cannot leave the device");
            false
        }
    }
}

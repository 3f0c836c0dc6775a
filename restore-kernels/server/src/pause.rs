//! Stopping everything, and letting it go on.
//!
//! While a pause is held nothing is started: what streams still have to do is held back. What ran is found again at the
//! front of its stream as a stopped launch. The pause ends when the last connection that holds it lets go of it.
//!
//! Some devices stop of their own accord after a while, since nothing that the host says reaches a running kernel
//! ([`hetckpt_devices::device::Device::cuts_launches`]). Then nothing is started either until all launches have
//! stopped, and everything goes on unless somebody holds a pause by then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::ServerError;
use crate::launch::kernel_name;
use crate::queues::{Queues, Reading};
use crate::session::Session;
use crate::worker::kick;

/// Stops everything on behalf of connection `holder`, within `limit` if it sets one, else within the session's. Returns
/// the microseconds until nothing ran any more (0 if nothing ran).
///
/// # Errors
/// [`ServerError::NotStopped`], [`ServerError::Device`], [`ServerError::Overtaken`]; then everything goes on.
pub fn pause(session: &Arc<Session>, holder: u64, limit: Option<Duration>) -> Result<u64, ServerError> {
    let mut holds = session.holds.lock();
    if holds.holders.is_empty() {
        stop(session, limit.unwrap_or(session.pause_deadline))?;
    }
    if !holds.holders.contains(&holder) {
        holds.holders.push(holder);
    }
    Ok(session.last_pause_us.load(std::sync::atomic::Ordering::Relaxed))
}

/// Ends the hold of connection `holder`, if it has one. With the last one everything goes on.
pub fn release(session: &Arc<Session>, holder: u64) {
    let mut holds = session.holds.lock();
    let before = holds.holders.len();
    holds.holders.retain(|&h| h != holder);
    if before > 0 && holds.holders.is_empty() {
        go_on(session);
    }
}

/// True while somebody holds the pause.
#[must_use]
pub fn is_held(session: &Session) -> bool {
    !session.holds.lock().holders.is_empty()
}

fn stop(session: &Arc<Session>, limit: Duration) -> Result<(), ServerError> {
    let started = Instant::now();
    {
        let mut queues = session.queues.lock();
        queues.is_paused = true;
        // What has stopped of its own accord, part of which may be over by now, stops in order too.
        if !queues.is_cut {
            queues.overtaken = None;
        }
        for s in queues.streams.values_mut() {
            s.is_draining = !s.in_flight.is_empty();
            s.stopped_at = None;
        }
    }
    let stopped = session
        .device
        .request_pause()
        .map_err(ServerError::from)
        .and_then(|()| wait_quiet(session, started, limit));
    if let Err(error) = stopped {
        tracing::error!(%error, "pause failed; everything goes on");
        go_on(session);
        return Err(error);
    }
    let queues = session.queues.lock();
    let last_stop = queues.streams.values().filter_map(|s| s.stopped_at).max();
    let latency = last_stop.map_or(Duration::ZERO, |at| at.saturating_duration_since(started));
    drop(queues);
    let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
    session.last_pause_us.store(us, std::sync::atomic::Ordering::Relaxed);
    tracing::info!(latency_us = us, quiet_us = started.elapsed().as_micros(), "paused");
    Ok(())
}

fn wait_quiet(session: &Session, started: Instant, limit: Duration) -> Result<(), ServerError> {
    let mut queues = session.queues.lock();
    while !queues.is_quiet() {
        let Some(left) = limit.checked_sub(started.elapsed()) else {
            let kernel = running_kernel(&queues);
            return Err(ServerError::NotStopped {
                kernel,
                seconds: limit.as_secs_f64(),
            });
        };
        session.changed.wait_for(&mut queues, left);
    }
    match queues.overtaken.take() {
        Some(kernel) => Err(ServerError::Overtaken { kernel }),
        None => Ok(()),
    }
}

fn running_kernel(queues: &Queues) -> String {
    let first = queues.streams.values().find_map(|s| s.in_flight.front());
    first.map_or_else(|| "(a copy)".to_owned(), |launch| kernel_name(&launch.item))
}

/// Lets everything go on: stopped launches as continuations, then what was held back.
pub fn go_on(session: &Arc<Session>) {
    start_again(session);
    tracing::info!("running again");
}

fn start_again(session: &Arc<Session>) {
    if let Err(error) = session.device.end_pause() {
        tracing::error!(%error, "the device cannot be told that the pause is over");
    }
    let streams: Vec<u64> = {
        let mut queues = session.queues.lock();
        queues.is_paused = false;
        queues.is_cut = false;
        queues.builds_before_launches = !session.device.loads_while_running();
        queues.reading = Reading::On;
        queues.streams.keys().copied().collect()
    };
    session.changed.notify_all();
    for stream in streams {
        kick(session, stream);
    }
}

/// If the device stops of its own accord, starts a thread that lets everything go on each time.
///
/// # Errors
/// [`ServerError::Os`].
pub fn watch_cuts(session: &Arc<Session>) -> Result<(), ServerError> {
    if !session.device.cuts_launches() {
        return Ok(());
    }
    let session = Arc::clone(session);
    let spawned = std::thread::Builder::new().name("slices".to_owned()).spawn(move || {
        loop {
            end_cut(&session);
        }
    });
    spawned.map(drop).map_err(|source| ServerError::Os {
        call: "thread creation",
        source,
    })
}

/// Waits until all launches have stopped of their own accord, and lets them go on.
///
/// Whoever wants a pause meanwhile gets it, and is not made to wait for a kernel that does not stop: the lock of the
/// holders is taken only for as long as it takes to go on.
fn end_cut(session: &Arc<Session>) {
    let mut queues = session.queues.lock();
    while !(queues.is_cut && queues.have_stopped()) {
        session.changed.wait(&mut queues);
    }
    drop(queues);
    let holds = session.holds.lock();
    let mut queues = session.queues.lock();
    if !holds.holders.is_empty() {
        // The end of that pause is the end of this, too.
        queues.is_cut = false;
    }
    if !queues.is_cut || !queues.have_stopped() {
        return;
    }
    if let Some(kernel) = queues.overtaken.take() {
        tracing::error!(%kernel, "launches have stopped out of order");
    }
    drop(queues);
    if let Err(error) = session.device.request_pause() {
        tracing::error!(%error, "the device cannot be told to begin anew");
    }
    start_again(session);
}

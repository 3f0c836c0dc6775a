//! Stopping everything, and letting it go on.
//!
//! While a pause is held nothing is started: what streams still have to do is held back. What ran is found again at the
//! front of its stream as a stopped launch. The pause ends when the last connection that holds it lets go of it.
//!
//! Some devices stop of their own accord after a while, since nothing that the host says reaches a running kernel
//! ([`hetckpt_devices::device::Device::cuts_launches`]). Then nothing is started either until all launches have
//! stopped, and everything goes on unless somebody holds a pause by then.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::error::ServerError;
use hetckpt_order::order::Phase;

use crate::managed_pages::Stopped;
use crate::queues::{Queues, Reading};
use crate::session::Session;
use crate::worker::kick_all;

/// Who holds a pause that lasts although the connection that has asked for it has closed. Connections count from 1.
pub const LOCK: u64 = 0;

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
    Ok(session.last_pause_us.load(Ordering::Relaxed))
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

/// True while the pause is held whatever connections do.
#[must_use]
pub fn is_locked(session: &Session) -> bool {
    session.holds.lock().holders.contains(&LOCK)
}

/// True if connection `holder`, and perhaps [`LOCK`], holds the pause, and nobody else.
#[must_use]
pub fn is_held_by(session: &Session, holder: u64) -> bool {
    let holders = &session.holds.lock().holders;
    holders.contains(&holder) && holders.iter().all(|&other| other == holder || other == LOCK)
}

/// Starts nothing new, and waits until nothing runs: for `patience`, then kernels are stopped. To be called with the
/// lock of the holders, while there are none; [`resume`] ends it.
///
/// # Errors
/// As [`pause`]; then everything goes on.
pub fn stand_still(session: &Arc<Session>, patience: Duration) -> Result<Stopped, ServerError> {
    let started = Instant::now();
    let has_cut = session.queues.lock().order.phase() == Phase::Cut;
    begin(session);
    match wait_quiet(session, started, patience) {
        Ok(()) if !has_cut => return Ok(Stopped::Nothing),
        Ok(()) => {}
        Err(ServerError::NotStopped { .. }) => {}
        Err(error) => {
            go_on(session);
            return Err(error);
        }
    }
    stop_begun(session, started, patience + session.pause_deadline)?;
    Ok(Stopped::Kernels)
}

/// Ends [`stand_still`].
pub fn resume(session: &Arc<Session>, stopped: Stopped) {
    match stopped {
        Stopped::Kernels => go_on(session),
        Stopped::Nothing => open(session),
    }
}

fn stop(session: &Arc<Session>, limit: Duration) -> Result<(), ServerError> {
    let started = Instant::now();
    begin(session);
    stop_begun(session, started, limit)?;
    // What is in the application's memory is dumped with it.
    session.managed.end(&session.pinned).inspect_err(|error| {
        tracing::error!(%error, "managed memory cannot leave the device; everything goes on");
        go_on(session);
    })
}

/// Nothing is given to the device from now on.
fn begin(session: &Arc<Session>) {
    // An offer would keep a descriptor open that cannot be dumped.
    if let Some(side) = session.side.get() {
        side.want_managed_faults(false);
    }
    {
        let mut queues = session.queues.lock();
        // What has stopped of its own accord, part of which may be over by now, stops in order too.
        if queues.order.phase() != Phase::Cut {
            queues.overtaken = None;
        }
        queues.order.pause();
        for lane in queues.lanes.values_mut() {
            lane.stopped_at = None;
        }
    }
    // What is on the device lands by streams' threads from now on.
    kick_all(session);
}

/// Stops what runs.
fn stop_begun(session: &Arc<Session>, started: Instant, limit: Duration) -> Result<(), ServerError> {
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
    session.hand_over_printed();
    let queues = session.queues.lock();
    let last_stop = queues.lanes.values().filter_map(|lane| lane.stopped_at).max();
    let latency = last_stop.map_or(Duration::ZERO, |at| at.saturating_duration_since(started));
    drop(queues);
    let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
    session.last_pause_us.store(us, Ordering::Relaxed);
    tracing::info!(latency_us = us, quiet_us = started.elapsed().as_micros(), "paused");
    Ok(())
}

fn wait_quiet(session: &Session, started: Instant, limit: Duration) -> Result<(), ServerError> {
    let mut queues = session.queues.lock();
    while !queues.order.is_quiet() {
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
    let mut flights = queues.order.streams().filter_map(|(_, s)| s.flights().next());
    let first = flights.find(|flight| !flight.work.kernel_name().is_empty());
    first.map_or_else(|| "(a copy)".to_owned(), |flight| flight.work.kernel_name().to_owned())
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
    open(session);
}

/// Work is given to the device again.
fn open(session: &Arc<Session>) {
    session.ask_for_managed_faults();
    {
        let mut queues = session.queues.lock();
        queues.order.go_on();
        queues.reading = Reading::On;
        session.stops_at_once.store(false, Ordering::Relaxed);
    }
    session.changed.notify_all();
    kick_all(session);
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
    let is_over = |queues: &Queues| queues.order.phase() == Phase::Cut && queues.order.have_stopped();
    let mut queues = session.queues.lock();
    while !is_over(&queues) {
        session.changed.wait(&mut queues);
    }
    drop(queues);
    let _holds = session.holds.lock();
    let mut queues = session.queues.lock();
    if !is_over(&queues) {
        // A pause has come; its end is the end of this, too.
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

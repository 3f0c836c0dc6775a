//! Threads that drive streams. One per stream does what takes time; the reader of the ring does what is over at once,
//! so that consecutive launches reach the device without a change of thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use hetckpt_ring::reply::Reply;

use crate::deferred_commands;
use crate::launch;
use crate::queues::{Pending, Queues, Step};
use crate::session::Session;
use crate::stream_operations::{Executed, execute, is_quick};

/// How long until a call-back for which there was no room is tried again.
const RETRY: Duration = Duration::from_millis(1);

/// Does what `stream` can do at once, and sees to it that a worker does the rest.
pub fn kick(session: &Arc<Session>, stream: u64) {
    let mut queues = session.queues.lock();
    loop {
        match queues.next_step(stream) {
            Step::Launch => launch::launch_front(session, &mut queues, stream),
            Step::Execute if queues.streams[&stream].queue.front().is_some_and(is_quick) => {
                queues = execute_front(session, queues, stream);
            }
            Step::Vanish => {
                vanish(&mut queues, stream);
                break;
            }
            Step::Wait | Step::Build(_) | Step::Reap(_) | Step::Execute => break,
        }
    }
    if let Some(s) = queues.streams.get_mut(&stream)
        && !s.has_worker
        && !s.is_idle()
    {
        s.has_worker = true;
        let worker = Arc::clone(session);
        let name = format!("stream {stream}");
        if let Err(error) = std::thread::Builder::new()
            .name(name)
            .spawn(move || run(&worker, stream))
        {
            tracing::error!(%error, "no thread for a stream");
            s.has_worker = false;
        }
    }
    drop(queues);
    session.changed.notify_all();
}

fn vanish(queues: &mut Queues, stream: u64) {
    if let Some(s) = queues.streams.get(&stream)
        && s.is_destroyed
    {
        queues.streams.remove(&stream);
    }
}

fn set_busy(queues: &mut Queues, stream: u64, is_busy: bool) {
    if let Some(s) = queues.streams.get_mut(&stream) {
        s.is_busy = is_busy;
    }
}

/// Carries out the first item, which is no launch, without the lock.
fn execute_front<'a>(
    session: &'a Arc<Session>,
    mut queues: MutexGuard<'a, Queues>,
    stream: u64,
) -> MutexGuard<'a, Queues> {
    let Some(s) = queues.streams.get_mut(&stream) else {
        return queues;
    };
    let Some(item) = s.queue.pop_front() else { return queues };
    s.is_busy = true;
    drop(queues);
    let executed = execute(session, item);
    let mut queues = session.queues.lock();
    let ready = match executed {
        Executed::Done { answer } => {
            let ready = queues.complete(stream);
            if let Some((slot, result)) = answer {
                // Still busy: a capture waits until the answer is given.
                drop(queues);
                session.answer(Some(slot), result, &Reply::Nothing);
                queues = session.queues.lock();
            }
            ready
        }
        Executed::Waits(item) => {
            if let Some(s) = queues.streams.get_mut(&stream) {
                s.queue.push_front(item);
            }
            Vec::new()
        }
        Executed::Again(item) => {
            if let Some(s) = queues.streams.get_mut(&stream) {
                s.queue.push_front(item);
            }
            set_busy(&mut queues, stream, false);
            session.changed.notify_all();
            session.changed.wait_for(&mut queues, RETRY);
            return queues;
        }
    };
    set_busy(&mut queues, stream, false);
    session.changed.notify_all();
    carry_out_ready(session, queues, ready)
}

/// Carries out pending commands without the lock.
fn carry_out_ready<'a>(
    session: &'a Arc<Session>,
    queues: MutexGuard<'a, Queues>,
    ready: Vec<Pending>,
) -> MutexGuard<'a, Queues> {
    if ready.is_empty() {
        return queues;
    }
    drop(queues);
    for pending in ready {
        deferred_commands::carry_out(session, pending.envelope);
    }
    session.queues.lock()
}

/// During a pause, waits until nothing of `stream` runs any more, and notes when that was. All of its launches stop
/// almost at once; what they have left is fetched afterwards.
fn note_stop(session: &Session, stream: u64) {
    let last = {
        let queues = session.queues.lock();
        let s = queues
            .streams
            .get(&stream)
            .filter(|s| queues.is_paused && s.stopped_at.is_none());
        s.and_then(|s| s.in_flight.back())
            .map(|launch| Arc::clone(&launch.running))
    };
    let Some(last) = last else { return };
    last.wait_stopped();
    let now = Instant::now();
    if let Some(s) = session.queues.lock().streams.get_mut(&stream) {
        s.stopped_at = Some(now);
    }
}

/// The worker of one stream.
fn run(session: &Arc<Session>, stream: u64) {
    let mut queues = session.queues.lock();
    loop {
        match queues.next_step(stream) {
            Step::Wait => {
                session.changed.wait(&mut queues);
            }
            Step::Launch => launch::launch_front(session, &mut queues, stream),
            Step::Build(at) => {
                let Some(s) = queues.streams.get_mut(&stream) else {
                    break;
                };
                let Some(item) = s.queue.get(at).cloned() else { continue };
                s.is_busy = true;
                s.is_building = true;
                drop(queues);
                launch::build(&item);
                queues = session.queues.lock();
                if let Some(s) = queues.streams.get_mut(&stream) {
                    s.is_busy = false;
                    s.is_building = false;
                }
                session.changed.notify_all();
            }
            Step::Reap(running) => {
                set_busy(&mut queues, stream, true);
                drop(queues);
                running.wait_stopped();
                note_stop(session, stream);
                let outcome = running.wait();
                queues = session.queues.lock();
                set_busy(&mut queues, stream, false);
                let ready = launch::settle(session, &mut queues, stream, outcome);
                session.changed.notify_all();
                queues = carry_out_ready(session, queues, ready);
            }
            Step::Execute => queues = execute_front(session, queues, stream),
            Step::Vanish => {
                vanish(&mut queues, stream);
                break;
            }
        }
    }
    if let Some(s) = queues.streams.get_mut(&stream) {
        s.has_worker = false;
    }
}

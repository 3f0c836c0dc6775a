//! Threads that drive streams. One per stream does what takes time; the reader of the ring does what is over at once,
//! so that consecutive launches reach the device without a change of thread.
//!
//! Who looks after what is on the device: while the reader of the ring is awake, and the device works through its
//! queues by itself, the reader does, between commands ([`crate::reader`]). Otherwise each stream's thread waits for
//! the stream's first launch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use hetckpt_order::order::{Phase, Step};
use hetckpt_ring::reply::Reply;

use crate::deferred_commands;
use crate::flights::{give_front, land, outcome};
use crate::launch;
use crate::queues::{Awaiting, Lookout, Queues};
use crate::session::Session;
use crate::stream_operations::{Executed, execute, is_quick};

/// How long until a call-back for which there was no room is tried again.
const RETRY: Duration = Duration::from_millis(1);

/// Does what `stream` can do at once, and what others can do then, and sees to it that workers do the rest.
pub fn kick(session: &Arc<Session>, stream: u64) {
    if advance(session, stream) {
        kick_all(session);
    }
}

/// Does what all streams can do at once, and sees to it that workers do the rest.
pub fn kick_all(session: &Arc<Session>) {
    loop {
        let with_work: Vec<u64> = {
            let queues = session.queues.lock();
            let streams = queues.order.streams();
            streams.filter(|(_, s)| !s.is_idle()).map(|(id, _)| id).collect()
        };
        let mut has_ended = false;
        for stream in with_work {
            has_ended |= advance(session, stream);
        }
        if !has_ended {
            return;
        }
    }
}

/// True if something was done, which others can wait for.
fn advance(session: &Arc<Session>, stream: u64) -> bool {
    let mut queues = session.queues.lock();
    let mut has_ended = false;
    loop {
        match queues.order.next(stream) {
            Step::Give => queues = give_front(session, queues, stream),
            Step::Empty => queues.order.begin_emptying(stream),
            Step::Take if is_front_quick(&queues, stream) => {
                queues = take_front(session, queues, stream);
                has_ended = true;
            }
            Step::Forget => {
                queues.forget(stream);
                session.work.notify_all();
                break;
            }
            step => {
                call_worker(session, &mut queues, stream, step);
                break;
            }
        }
    }
    has_ended
}

fn is_front_quick(queues: &Queues, stream: u64) -> bool {
    let front = queues.order.stream(stream).and_then(|s| s.front());
    front.is_some_and(|item| is_quick(&item.work))
}

/// True if the threads of the streams are to look after what is on the device.
fn workers_look_out(queues: &Queues) -> bool {
    queues.lookout == Lookout::Workers || matches!(queues.order.phase(), Phase::Paused | Phase::Cut)
}

/// Wakes the thread of a stream if it has something to do now, or starts it.
fn call_worker(session: &Arc<Session>, queues: &mut Queues, stream: u64, step: Step) {
    let is_wanted = match step {
        Step::Build(_) | Step::Take => true,
        Step::Wait => workers_look_out(queues) && queues.order.first_flight(stream).is_some(),
        Step::Give | Step::Empty | Step::Forget => false,
    };
    if !is_wanted {
        return;
    }
    session.work.notify_all();
    let lane = queues.lane(stream);
    if lane.has_worker {
        return;
    }
    lane.has_worker = true;
    let worker = Arc::clone(session);
    let name = format!("stream {stream}");
    let spawned = std::thread::Builder::new()
        .name(name)
        .spawn(move || run(&worker, stream));
    if let Err(error) = spawned {
        tracing::error!(%error, "no thread for a stream");
        lane.has_worker = false;
    }
}

/// The reader of the ring leaves what is on the device to the threads of the streams.
pub fn hand_over(session: &Arc<Session>) {
    let mut queues = session.queues.lock();
    queues.lookout = Lookout::Workers;
    let streams = queues.order.streams();
    let flying: Vec<u64> = streams
        .filter(|(_, s)| s.flights().len() > 0)
        .map(|(id, _)| id)
        .collect();
    for stream in flying {
        call_worker(session, &mut queues, stream, Step::Wait);
    }
}

/// Carries out the first item, which is no launch, without the lock.
fn take_front<'a>(
    session: &'a Arc<Session>,
    mut queues: MutexGuard<'a, Queues>,
    stream: u64,
) -> MutexGuard<'a, Queues> {
    let Some(item) = queues.order.take(stream) else {
        return queues;
    };
    drop(queues);
    let executed = execute(session, item);
    let mut queues = session.queues.lock();
    let released = match executed {
        Executed::Done { answer } => {
            let released = queues.order.done(stream);
            if let Some((slot, result)) = answer {
                // Still taken: a capture waits until the answer is given.
                drop(queues);
                session.answer_behind_kernels(Some(slot), result, &Reply::Nothing);
                queues = session.queues.lock();
            }
            released
        }
        Executed::Waits(item) => {
            queues.order.put_back(stream, item);
            Vec::new()
        }
        Executed::Again(item) => {
            queues.order.put_back(stream, item);
            queues.order.free(stream);
            session.changed.notify_all();
            session.changed.wait_for(&mut queues, RETRY);
            return queues;
        }
    };
    queues.order.free(stream);
    session.changed.notify_all();
    carry_out(session, queues, released)
}

/// Carries out commands that have waited, without the lock.
fn carry_out<'a>(
    session: &'a Arc<Session>,
    queues: MutexGuard<'a, Queues>,
    released: Vec<Awaiting>,
) -> MutexGuard<'a, Queues> {
    if released.is_empty() {
        return queues;
    }
    drop(queues);
    for awaiting in released {
        deferred_commands::carry_out(session, awaiting);
    }
    session.queues.lock()
}

/// During a pause, waits until nothing of `stream` runs any more, and notes when that was. All of its launches stop
/// almost at once; what they have left is fetched afterwards.
fn note_stop(session: &Session, stream: u64) {
    let last = {
        let mut queues = session.queues.lock();
        if queues.order.phase() != Phase::Paused || queues.lane(stream).stopped_at.is_some() {
            return;
        }
        let last = queues.order.stream(stream).and_then(|s| s.flights().next_back());
        last.map(|flight| flight.handle.clone())
    };
    let Some(last) = last else { return };
    last.wait_stopped();
    let now = Instant::now();
    session.queues.lock().lane(stream).stopped_at = Some(now);
}

/// The worker of one stream.
fn run(session: &Arc<Session>, stream: u64) {
    let mut queues = session.queues.lock();
    loop {
        match queues.order.next(stream) {
            Step::Give => queues = give_front(session, queues, stream),
            Step::Empty => queues.order.begin_emptying(stream),
            Step::Build(at) => {
                let item = queues.order.begin_build(stream, at).map(|item| item.work.clone());
                let Some(work) = item else { continue };
                drop(queues);
                launch::build(&work);
                queues = session.queues.lock();
                queues.order.free(stream);
                session.changed.notify_all();
                drop(queues);
                // Other streams' launches may have waited for this one's program.
                kick_all(session);
                queues = session.queues.lock();
            }
            Step::Take => {
                queues = take_front(session, queues, stream);
                drop(queues);
                kick_all(session);
                queues = session.queues.lock();
            }
            Step::Forget => {
                queues.forget(stream);
                return;
            }
            Step::Wait => {
                let claimed = workers_look_out(&queues).then(|| queues.order.claim(stream)).flatten();
                let Some(handle) = claimed.map(|flight| flight.handle.clone()) else {
                    session.work.wait(&mut queues);
                    continue;
                };
                drop(queues);
                handle.wait_stopped();
                note_stop(session, stream);
                let outcome = outcome(&handle);
                drop(handle);
                queues = session.queues.lock();
                let released = land(session, &mut queues, stream, outcome);
                session.changed.notify_all();
                queues = carry_out(session, queues, released);
                drop(queues);
                kick_all(session);
                queues = session.queues.lock();
            }
        }
    }
}

//! Lets streams do what commands have given them, and takes in what has landed: for the reader of the ring, and for a
//! helper while it takes in more commands than it can see to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use hetckpt_order::order::MAX_IN_FLIGHT;
use parking_lot::Mutex;

use crate::commands::Touched;
use crate::deferred_commands::carry_out;
use crate::flights::poll;
use crate::session::Session;
use crate::worker::{kick, kick_all};

/// With so little in the queue of a stream that has as much on the device as it may have, it does not look yet: to ask
/// the device costs as much as to give it something.
const TOO_LITTLE_TO_LOOK: usize = 16;
/// With so much in a stream's queue it waits for room on the device before it reads on, ...
const MUCH_QUEUED: usize = 1024;
/// ... but not for long: what the stream waits for may be in the ring.
const LONGEST_WAIT_FOR_ROOM: Duration = Duration::from_millis(1);
/// However busy the ring is, now and then it looks what has landed.
const KICKS_BETWEEN_LOOKS: u32 = 16;
/// How long the helper looks for more to do before it sleeps.
const HELPER_LOOKS: Duration = Duration::from_micros(50);

/// Lets streams go on.
pub struct Kicker {
    session: Arc<Session>,
    /// It looks after what is on the device.
    looks_out: bool,
    kicks: u32,
}

impl Kicker {
    /// One that looks after what is on the device, if it `looks_out`.
    #[must_use]
    pub fn new(session: &Arc<Session>, looks_out: bool) -> Self {
        Self {
            session: Arc::clone(session),
            looks_out,
            kicks: 0,
        }
    }

    /// Lets streams do what commands have given them.
    pub fn kick(&mut self, touched: Vec<Touched>) {
        if touched.is_empty() {
            return;
        }
        for touched in touched {
            match touched {
                Touched::Nothing => {}
                Touched::All => kick_all(&self.session),
                Touched::Stream(stream) => {
                    kick(&self.session, stream);
                    if self.looks_out {
                        self.make_room(stream);
                    }
                }
            }
        }
        self.kicks = self.kicks.wrapping_add(1);
        if self.looks_out && self.kicks.is_multiple_of(KICKS_BETWEEN_LOOKS) {
            self.land_all();
        }
    }

    /// Takes in what has landed. True if something has.
    pub fn land_all(&self) -> bool {
        let session = &self.session;
        let mut queues = session.queues.lock();
        let flying: Vec<u64> = {
            let streams = queues.order.streams();
            streams
                .filter(|(_, s)| s.flights().len() > 0)
                .map(|(id, _)| id)
                .collect()
        };
        let (mut has_landed, mut released) = (false, Vec::new());
        for stream in flying {
            let (of_stream, more) = poll(session, &mut queues, stream);
            has_landed |= of_stream;
            released.extend(more);
        }
        drop(queues);
        if has_landed {
            session.changed.notify_all();
            released.into_iter().for_each(|awaiting| carry_out(session, awaiting));
            kick_all(session);
        }
        has_landed
    }

    /// If a stream has as much on the device as it may have, looks whether some of it is done.
    fn make_room(&self, stream: u64) {
        let session = &self.session;
        let began = Instant::now();
        loop {
            let mut queues = session.queues.lock();
            let Some(s) = queues.order.stream(stream) else { return };
            let num_queued = s.queue().len();
            if num_queued < TOO_LITTLE_TO_LOOK || s.flights().len() < MAX_IN_FLIGHT {
                return;
            }
            let (has_landed, released) = poll(session, &mut queues, stream);
            drop(queues);
            if has_landed {
                session.changed.notify_all();
                released.into_iter().for_each(|awaiting| carry_out(session, awaiting));
                kick(session, stream);
            }
            if num_queued < MUCH_QUEUED || began.elapsed() > LONGEST_WAIT_FOR_ROOM {
                return;
            }
            std::hint::spin_loop();
        }
    }
}

/// A thread that kicks while the reader of the ring takes in more commands. It is started when it is first needed.
pub struct Helper {
    session: Arc<Session>,
    shared: Arc<Shared>,
    thread: Option<Thread>,
}

#[derive(Default)]
struct Shared {
    /// There is something to kick, or being kicked.
    is_posted: AtomicBool,
    touched: Mutex<Vec<Touched>>,
}

impl Helper {
    /// One without a thread.
    #[must_use]
    pub fn new(session: &Arc<Session>) -> Self {
        Self {
            session: Arc::clone(session),
            shared: Arc::default(),
            thread: None,
        }
    }

    /// Has streams kicked when those before have been.
    pub fn kick(&mut self, touched: Vec<Touched>) {
        if touched.is_empty() {
            return;
        }
        self.finish();
        if self.thread.is_none() {
            self.thread = self.start();
        }
        match &self.thread {
            Some(thread) => {
                *self.shared.touched.lock() = touched;
                self.shared.is_posted.store(true, Ordering::Release);
                thread.unpark();
            }
            // There can be no thread.
            None => Kicker::new(&self.session, true).kick(touched),
        }
    }

    /// Waits until all have been kicked.
    pub fn finish(&self) {
        while self.shared.is_posted.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
    }

    fn start(&self) -> Option<Thread> {
        let shared = Arc::clone(&self.shared);
        let mut kicker = Kicker::new(&self.session, true);
        let run = move || {
            loop {
                let since = Instant::now();
                while !shared.is_posted.load(Ordering::Acquire) {
                    if since.elapsed() < HELPER_LOOKS {
                        std::hint::spin_loop();
                    } else {
                        std::thread::park();
                    }
                }
                let touched = std::mem::take(&mut *shared.touched.lock());
                kicker.kick(touched);
                shared.is_posted.store(false, Ordering::Release);
            }
        };
        let spawned = std::thread::Builder::new().name("ring-helper".to_owned()).spawn(run);
        match spawned {
            Ok(handle) => Some(handle.thread().clone()),
            Err(error) => {
                tracing::debug!(%error, "no thread to help the ring's reader");
                None
            }
        }
    }
}

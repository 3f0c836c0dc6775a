//! Lets streams do what commands have given them, and takes in what has landed, for the reader of the ring.
//!
//! A second thread that did all of this while the reader takes in commands was tried: launches were no faster. What a
//! device may do beside the reader is to call its driver.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hetckpt_order::order::MAX_IN_FLIGHT;

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

    /// Lets streams do what commands have given them. Now and then it takes in what has landed: a program that asks all
    /// the time whether something is done leaves no time between commands.
    pub fn kick(&mut self, touched: &mut Vec<Touched>) {
        for touched in touched.drain(..) {
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

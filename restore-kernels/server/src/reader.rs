//! The thread that reads the ring.
//!
//! Between commands it looks whether what it has given to the device is done, if the device works through its queues by
//! itself: who waits for a short kernel is answered without a change of thread. When there has been nothing to do for a
//! while, it leaves that to the threads of the streams, and sleeps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hetckpt_order::order::MAX_IN_FLIGHT;
use hetckpt_ring::consumer::Consumer;
use hetckpt_ring::error::RingError;
use hetckpt_ring::futex::{self, Patience};

use crate::commands::{self, Touched};
use crate::cuda_result;
use crate::deferred_commands::carry_out;
use crate::error::ServerError;
use crate::flights::poll;
use crate::queues::{Lookout, Reading};
use crate::session::Session;
use crate::worker::{hand_over, kick, kick_all};

/// How long it looks whether something that the application waits for is done, before it leaves that to others.
const LOOK_FOR_WAITERS: Duration = Duration::from_millis(2);
/// How long either side looks for the other before it sleeps, at most, microseconds: where kernels have a processor of
/// their own, and where they have not.
const LONGEST_LOOK_US: [u32; 2] = [100, 15];
/// With so little in the queue of a stream that has as much on the device as it may have, it does not look yet: to ask
/// the device costs as much as to give it something.
const TOO_LITTLE_TO_LOOK: usize = 16;
/// With so much in a stream's queue it waits for room on the device before it reads on, ...
const MUCH_QUEUED: usize = 1024;
/// ... but not for long: what the stream waits for may be in the ring.
const LONGEST_WAIT_FOR_ROOM: Duration = Duration::from_millis(1);

/// Commands taken in before streams do what they say: what takes in commands, and what gives launches to the driver,
/// each runs faster several times in a row.
const TAKEN_TOGETHER: u32 = 16;
/// However busy the ring is, now and then it looks what has landed.
const KICKS_BETWEEN_LOOKS: u32 = 16;

/// Starts it.
///
/// # Errors
/// [`ServerError::Os`].
pub fn start(session: &Arc<Session>, consumer: Consumer) -> Result<(), ServerError> {
    let looks_out = session.device.works_through_queues();
    let longest_look_us = LONGEST_LOOK_US[usize::from(!looks_out)];
    if let Some(side) = session.side.get() {
        side.set_longest_look(longest_look_us);
    }
    let reader = Reader {
        looks_out,
        longest_look_us,
        patience: Patience::default(),
        touched: Vec::new(),
        has_touched_all: false,
        kicks: 0,
        session: Arc::clone(session),
        consumer,
    };
    let spawned = std::thread::Builder::new()
        .name("ring".to_owned())
        .spawn(move || reader.read());
    spawned.map(drop).map_err(|source| ServerError::Os {
        call: "thread creation",
        source,
    })
}

struct Reader {
    session: Arc<Session>,
    consumer: Consumer,
    /// It looks after what is on the device while it is awake.
    looks_out: bool,
    patience: Patience,
    longest_look_us: u32,
    /// Streams that commands have given something to do.
    touched: Vec<u64>,
    has_touched_all: bool,
    kicks: u32,
}

impl Reader {
    fn read(mut self) {
        self.look_out();
        loop {
            match self.take_some() {
                Ok(0) => self.pause_between_commands(),
                Ok(_) => self.kick(),
                Err(error) => {
                    tracing::error!(%error, "the ring is spoiled; the application gets errors from now on");
                    self.session.set_fault(cuda_result::UNKNOWN);
                    self.kick();
                    hand_over(&self.session);
                    return;
                }
            }
        }
    }

    /// Takes in the commands that are there, a few at most. Returns how many.
    fn take_some(&mut self) -> Result<u32, RingError> {
        for count in 0..TAKEN_TOGETHER {
            let Some(envelope) = self.consumer.take()? else {
                return Ok(count);
            };
            match commands::handle(&self.session, envelope) {
                Touched::Nothing => {}
                Touched::Stream(stream) if self.touched.contains(&stream) => {}
                Touched::Stream(stream) => self.touched.push(stream),
                Touched::All => self.has_touched_all = true,
            }
        }
        Ok(TAKEN_TOGETHER)
    }

    /// Lets streams do what the commands have given them.
    fn kick(&mut self) {
        if std::mem::take(&mut self.has_touched_all) {
            kick_all(&self.session);
        }
        for stream in std::mem::take(&mut self.touched) {
            kick(&self.session, stream);
            if self.looks_out {
                self.make_room(stream);
            }
        }
        self.kicks = self.kicks.wrapping_add(1);
        if self.looks_out && self.kicks.is_multiple_of(KICKS_BETWEEN_LOOKS) {
            self.land_all();
        }
    }

    fn look_out(&self) {
        if self.looks_out {
            self.session.queues.lock().lookout = Lookout::Reader;
        }
    }

    /// The ring is empty.
    fn pause_between_commands(&mut self) {
        if self.stops_as_asked() {
            return;
        }
        let began = Instant::now();
        let mut since = began;
        let bell = self.consumer.bell();
        while futex::has_many_processors() {
            if self.consumer.has_more(bell) {
                self.patience.waited(began.elapsed(), self.longest_look_us);
                return;
            }
            if self.looks_out && self.land_all() {
                since = Instant::now();
            }
            let limit = if self.is_awaited() {
                LOOK_FOR_WAITERS
            } else {
                self.patience.limit()
            };
            if since.elapsed() >= limit {
                break;
            }
            std::hint::spin_loop();
        }
        if self.looks_out {
            hand_over(&self.session);
        }
        self.consumer.sleep(bell, None);
        self.patience.waited(began.elapsed(), self.longest_look_us);
        self.look_out();
    }

    /// True if the application waits for something that is on the device, and this thread looks after it.
    fn is_awaited(&self) -> bool {
        self.looks_out && {
            let queues = self.session.queues.lock();
            !queues.order.have_stopped() && !queues.order.waiters().is_empty()
        }
    }

    /// Stops while a capture looks at everything, if one wants that.
    fn stops_as_asked(&self) -> bool {
        let session = &self.session;
        let mut queues = session.queues.lock();
        if queues.reading != Reading::Stop {
            return false;
        }
        queues.reading = Reading::Stopped;
        session.changed.notify_all();
        while queues.reading == Reading::Stopped {
            session.changed.wait(&mut queues);
        }
        true
    }

    /// Takes in what has landed. True if something has.
    fn land_all(&self) -> bool {
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
            released.into_iter().for_each(|envelope| carry_out(session, envelope));
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
                released.into_iter().for_each(|envelope| carry_out(session, envelope));
                kick(session, stream);
            }
            if num_queued < MUCH_QUEUED || began.elapsed() > LONGEST_WAIT_FOR_ROOM {
                return;
            }
            std::hint::spin_loop();
        }
    }
}

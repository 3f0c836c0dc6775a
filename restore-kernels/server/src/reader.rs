//! The thread that reads the ring.
//!
//! Between commands it looks whether what it has given to the device is done, if the device works through its queues by
//! itself: who waits for a short kernel is answered without a change of thread. When there has been nothing to do for a
//! while, it leaves that to the threads of the streams, and sleeps.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hetckpt_ring::command::Command;
use hetckpt_ring::consumer::Consumer;
use hetckpt_ring::error::RingError;
use hetckpt_ring::futex::{self, Patience};

use crate::commands::{self, Touched};
use crate::cuda_result;
use crate::error::ServerError;
use crate::kicker::Kicker;
use crate::queues::{Lookout, Reading};
use crate::session::Session;
use crate::worker::hand_over;

/// How long it looks whether something that the application waits for is done, before it leaves that to others.
const LOOK_FOR_WAITERS: Duration = Duration::from_millis(5);
/// How long it looks for commands before it sleeps, at most, microseconds: where kernels have a processor of their own,
/// and where they have not.
const LONGEST_LOOK_US: [u32; 2] = [100, 15];
/// How long the application looks for answers where kernels have a processor of their own and there are many
/// processors: as long as they are looked for here. With NVIDIA's driver, a thread that waits does nothing else.
const LONGEST_LOOK_FOR_ANSWERS_US: u32 = 5000;
/// So many are many.
const MANY_PROCESSORS: usize = 4;

/// Commands taken in before streams do what they say: what takes in commands, and what gives launches to the driver,
/// each runs faster several times in a row.
const TAKEN_TOGETHER: u32 = 16;

/// How long it looks for what comes behind the record of an event, to give both to the device at once: programs take
/// the time of short kernels between two such records.
const LOOK_BEHIND_RECORD: Duration = Duration::from_micros(3);

/// Starts it.
///
/// # Errors
/// [`ServerError::Os`].
pub fn start(session: &Arc<Session>, consumer: Consumer) -> Result<(), ServerError> {
    let looks_out = session.device.works_through_queues();
    let longest_look_us = LONGEST_LOOK_US[usize::from(!looks_out)];
    if let Some(side) = session.side.get() {
        let has_many = std::thread::available_parallelism().is_ok_and(|n| n.get() >= MANY_PROCESSORS);
        side.set_longest_look(if looks_out && has_many {
            LONGEST_LOOK_FOR_ANSWERS_US
        } else {
            longest_look_us
        });
    }
    let reader = Reader {
        looks_out,
        longest_look_us,
        patience: Patience::default(),
        touched: Vec::new(),
        kicker: Kicker::new(session, looks_out),
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
    /// What commands have given streams to do.
    touched: Vec<Touched>,
    kicker: Kicker,
}

impl Reader {
    fn read(mut self) {
        self.look_out();
        loop {
            if self.session.stops_at_once.load(Ordering::Relaxed) {
                self.stops_as_asked();
            }
            let taken = self.take_some();
            self.kicker.kick(&mut self.touched);
            match taken {
                Ok(0) => self.pause_between_commands(),
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "the ring is spoiled; the application gets errors from now on");
                    self.session.set_fault(cuda_result::UNKNOWN);
                    hand_over(&self.session);
                    return;
                }
            }
        }
    }

    /// Takes in the commands that are there, a few at most. Returns how many.
    fn take_some(&mut self) -> Result<u32, RingError> {
        let (mut count, mut is_behind_record) = (0, false);
        while count < TAKEN_TOGETHER {
            let Some(envelope) = self.consumer.take()? else {
                if is_behind_record && self.has_soon() {
                    continue;
                }
                break;
            };
            is_behind_record = matches!(envelope.command, Command::EventRecord { .. });
            let touched = commands::handle(&self.session, envelope);
            if touched != Touched::Nothing && !self.touched.contains(&touched) {
                self.touched.push(touched);
            }
            count += 1;
        }
        Ok(count)
    }

    /// True if there is a command, or comes very soon.
    fn has_soon(&self) -> bool {
        let (began, bell) = (Instant::now(), self.consumer.bell());
        while self.looks_out && futex::has_many_processors() && began.elapsed() < LOOK_BEHIND_RECORD {
            if self.consumer.has_more(bell) {
                return true;
            }
            std::hint::spin_loop();
        }
        false
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
            if self.looks_out && self.kicker.land_all() {
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
        while queues.reading == Reading::Stop && queues.num_aside > 0 {
            session.changed.wait(&mut queues);
        }
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
}

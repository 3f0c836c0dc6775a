//! How far a stream has got with what it was given.
//!
//! What is given to a stream is numbered from 1. A driver event behind each would cost as much as a short kernel, so
//! there is one behind many, a *fence*, and another one only where somebody waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::driver::{self, DriverError, NOT_READY, Result};
use super::events::{Ability, Pool, PooledEvent};
use super::handles::{LOOK_BEFORE_SLEEP, Stream};

/// So much is given between two fences.
const BETWEEN_FENCES: u64 = 16;

/// A stream, and how far it has got.
pub(super) struct Progress {
    pub stream: Stream,
    events: Arc<Pool>,
    given: Mutex<Given>,
    /// All up to this number are done.
    done: AtomicU64,
}

#[derive(Default)]
struct Given {
    /// Number of what was given last.
    last: u64,
    /// Events behind what has these numbers, ascending, all beyond what is known to be done.
    fences: VecDeque<(u64, Arc<PooledEvent>)>,
    /// The device has failed.
    failure: Option<DriverError>,
}

impl Progress {
    pub fn new(stream: Stream, events: Arc<Pool>) -> Self {
        Self {
            stream,
            events,
            given: Mutex::default(),
            done: AtomicU64::new(0),
        }
    }

    /// Gives the stream something. Returns its number.
    pub fn give(&self, call: impl FnOnce(&Stream) -> Result<()>) -> Result<u64> {
        let mut given = self.given.lock();
        call(&self.stream)?;
        given.last += 1;
        let fenced = given.fences.back().map_or(0, |&(number, _)| number);
        let fenced = fenced.max(self.done.load(Ordering::Relaxed));
        if given.last.saturating_sub(fenced) >= BETWEEN_FENCES {
            // It has been given all the same; who waits for it learns of the failure.
            let _ = self.fence(&mut given, Ability::None);
        }
        Ok(given.last)
    }

    /// Records an event behind all that was given before. Returns its number too.
    pub fn record(&self, has_time: bool) -> Result<(u64, Arc<PooledEvent>)> {
        let mut given = self.given.lock();
        given.last += 1;
        let ability = if has_time { Ability::Time } else { Ability::None };
        let event = self.fence(&mut given, ability)?;
        Ok((given.last, event))
    }

    /// Number of what was given last.
    pub fn last(&self) -> u64 {
        self.given.lock().last
    }

    /// True if this is known to be done, without asking the driver.
    pub fn is_known_done(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }

    /// True if this is done, or will never be because the device has failed.
    pub fn is_done(&self, number: u64) -> bool {
        if self.is_known_done(number) {
            return true;
        }
        let mut given = self.given.lock();
        self.look(&mut given);
        if self.is_known_done(number) {
            return true;
        }
        // Nothing stands behind it yet that could be asked.
        if given.fences.is_empty() {
            let asked = driver::cuStreamQuery(self.stream.0);
            self.conclude(&mut given, asked);
        }
        self.is_known_done(number)
    }

    /// Waits until this is done: looks for a short time, then sleeps.
    pub fn wait(&self, number: u64) -> Result<()> {
        let start = Instant::now();
        while !self.is_done(number) {
            if start.elapsed() >= LOOK_BEFORE_SLEEP {
                return self.sleep();
            }
            std::hint::spin_loop();
        }
        self.given.lock().failure.map_or(Ok(()), Err)
    }

    /// Sleeps until all that was given by now is done.
    fn sleep(&self) -> Result<()> {
        let (last, event) = {
            let mut given = self.given.lock();
            (given.last, self.fence(&mut given, Ability::Wake)?)
        };
        let waited = event.sleep();
        let mut given = self.given.lock();
        match waited {
            Ok(()) => self.reach(&mut given, last),
            Err(error) => self.fail(&mut given, error),
        }
        given.failure.map_or(Ok(()), Err)
    }

    /// The event stands behind all that was given.
    fn fence(&self, given: &mut Given, ability: Ability) -> Result<Arc<PooledEvent>> {
        let event = Arc::new(Pool::take(&self.events, ability)?);
        event.record(&self.stream)?;
        given.fences.push_back((given.last, Arc::clone(&event)));
        Ok(event)
    }

    /// Asks fences, in their order.
    fn look(&self, given: &mut Given) {
        while let Some((at, event)) = given.fences.front() {
            match event.query() {
                Ok(()) => {
                    let at = *at;
                    self.reach(given, at);
                }
                Err(DriverError { code: NOT_READY, .. }) => return,
                Err(error) => return self.fail(given, error),
            }
        }
    }

    /// What the driver says of all that was given.
    fn conclude(&self, given: &mut Given, asked: Result<()>) {
        match asked {
            Ok(()) => {
                let last = given.last;
                self.reach(given, last);
            }
            Err(DriverError { code: NOT_READY, .. }) => {}
            Err(error) => self.fail(given, error),
        }
    }

    fn reach(&self, given: &mut Given, number: u64) {
        while given.fences.front().is_some_and(|&(at, _)| at <= number) {
            given.fences.pop_front();
        }
        self.done.fetch_max(number, Ordering::AcqRel);
    }

    /// Nothing more will come of it.
    fn fail(&self, given: &mut Given, error: DriverError) {
        given.failure.get_or_insert(error);
        given.fences.clear();
        self.done.store(u64::MAX, Ordering::Release);
    }
}

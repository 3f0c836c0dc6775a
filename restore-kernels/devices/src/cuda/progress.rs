//! How far a stream has got with what it was given.
//!
//! What is given to a stream is numbered from 1. A driver event behind each would cost as much as a short kernel, so
//! there is one behind many, a *fence*, and another one only where somebody waits.
//!
//! Launches in a row are issued by the [`Launcher`]; whatever else is given then waits until it has issued them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::driver::{self, DriverError, NOT_READY, Result};
use super::events::{Ability, Pool, PooledEvent};
use super::handles::{LOOK_BEFORE_SLEEP, Stream};
use super::launcher::Launcher;

/// So much is given between two fences.
const BETWEEN_FENCES: u64 = 16;
/// With so much given and not known to be done, nobody waits for the next launch alone.
const IN_A_ROW: u64 = 8;

/// With no more streams than this each has a queue of the hardware for itself, beside ours for pausing and copies.
/// Streams that share one wait for what is behind a running kernel there: an event, but not another kernel.
const STREAMS_WITH_QUEUES: usize = 6;
/// Who asks how far a stream has got, again and again, sleeps for this part of the time that has passed.
const PART_ASLEEP: u32 = 32;
/// And no longer than this.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

/// A stream, and how far it has got.
pub(super) struct Progress {
    pub stream: Stream,
    events: Arc<Pool>,
    given: Mutex<Given>,
    /// All up to this number are done.
    done: AtomicU64,
    /// The launcher has something of it, and looks itself how far the stream has got.
    is_with_launcher: AtomicBool,
}

#[derive(Default)]
struct Given {
    /// Number of what was given last.
    last: u64,
    /// Number of what the driver has been given last: what comes after it is with the launcher.
    issued: u64,
    /// Launches that the driver has refused since they were counted as given, and that nobody has been told of.
    refused: Vec<(u64, DriverError)>,
    /// Events behind what has these numbers, ascending, all beyond what is known to be done.
    fences: VecDeque<(u64, Arc<PooledEvent>)>,
    /// The device has failed.
    failure: Option<DriverError>,
}

impl Progress {
    pub fn new(stream: Stream, events: Arc<Pool>) -> Self {
        events.num_streams.fetch_add(1, Ordering::Relaxed);
        Self {
            stream,
            events,
            given: Mutex::default(),
            done: AtomicU64::new(0),
            is_with_launcher: AtomicBool::new(false),
        }
    }

    /// Gives the stream something. Returns its number.
    pub fn give(&self, call: impl FnOnce(&Stream) -> Result<()>) -> Result<u64> {
        self.give_watched(false, call)
    }

    /// As [`Self::give`]; where `is_watched`, it is seen at once that it is done.
    pub fn give_watched(&self, is_watched: bool, call: impl FnOnce(&Stream) -> Result<()>) -> Result<u64> {
        let mut given = self.all_issued();
        call(&self.stream)?;
        given.last += 1;
        given.issued = given.last;
        if is_watched || self.wants_fence(&given) {
            // It has been given all the same; who waits for it learns of the failure.
            let _ = self.fence(&mut given, Ability::None);
        }
        Ok(given.last)
    }

    /// Gives the stream a launch: at once, or through the launcher, if there is one, and much before it. Then a failure
    /// is told by [`Self::take_refusal`]. Returns its number.
    pub fn give_launch(
        progress: &Arc<Self>,
        launcher: Option<&Launcher>,
        call: impl FnOnce(&Stream) -> Result<()> + Send + 'static,
    ) -> Result<u64> {
        let mut given = progress.given.lock();
        let before = given.last.saturating_sub(progress.done.load(Ordering::Relaxed));
        let Some(launcher) = launcher.filter(|_| before >= IN_A_ROW) else {
            drop(given);
            return progress.give(call);
        };
        given.last += 1;
        // Under the lock, so that they come in the order of their numbers.
        progress.is_with_launcher.store(true, Ordering::Release);
        let issuer = Arc::clone(progress);
        launcher.give(Box::new(move || issuer.issue(call)));
        Ok(given.last)
    }

    /// Gives the stream what stands next with the launcher, which alone does this.
    fn issue(&self, call: impl FnOnce(&Stream) -> Result<()>) {
        // Without the lock: until this is done, nobody else gives the stream anything.
        let called = call(&self.stream);
        let mut given = self.given.lock();
        let number = given.issued + 1;
        if let Err(error) = called {
            given.refused.push((number, error));
        }
        if number - self.behind_last_fence(&given) >= BETWEEN_FENCES {
            drop(given);
            let event = self.recorded(Ability::None);
            given = self.given.lock();
            // As in `give`.
            given.fences.extend(event.ok().map(|event| (number, event)));
            self.look(&mut given);
        }
        given.issued = number;
        self.is_with_launcher.store(number < given.last, Ordering::Release);
    }

    /// The driver has refused something of what has this number.
    pub fn refuse(&self, number: u64, error: DriverError) {
        self.given.lock().refused.push((number, error));
    }

    /// Why the driver has refused a launch to the launcher, or something of what was given as one, if it has.
    pub fn take_refusal(&self, number: u64) -> Option<DriverError> {
        let refused = &mut self.given.lock().refused;
        let at = refused.iter().position(|&(refused, _)| refused == number)?;
        Some(refused.swap_remove(at).1)
    }

    /// Waits for the launcher.
    fn all_issued(&self) -> MutexGuard<'_, Given> {
        loop {
            let given = self.given.lock();
            if given.issued == given.last {
                return given;
            }
            drop(given);
            std::hint::spin_loop();
        }
    }

    /// Records an event behind all that was given before. Returns its number too.
    pub fn record(&self, has_time: bool) -> Result<(u64, Arc<PooledEvent>)> {
        let mut given = self.all_issued();
        given.last += 1;
        given.issued = given.last;
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
        // Two threads that ask the driver things are slower than one.
        if self.is_with_launcher.load(Ordering::Acquire) {
            return false;
        }
        let mut given = self.given.lock();
        self.look(&mut given);
        if self.is_known_done(number) {
            return true;
        }
        // Nothing stands behind it yet that could be asked.
        if given.fences.is_empty() && given.issued >= number {
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
        if self.events.num_streams.load(Ordering::Relaxed) > STREAMS_WITH_QUEUES {
            let (last, start) = (self.all_issued().last, Instant::now());
            while !self.is_done(last) {
                std::thread::sleep((start.elapsed() / PART_ASLEEP).min(LONGEST_SLEEP));
            }
            return self.given.lock().failure.map_or(Ok(()), Err);
        }
        let (last, event) = {
            let mut given = self.all_issued();
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
        let event = self.recorded(ability)?;
        given.fences.push_back((given.last, Arc::clone(&event)));
        Ok(event)
    }

    fn recorded(&self, ability: Ability) -> Result<Arc<PooledEvent>> {
        let event = Arc::new(Pool::take(&self.events, ability)?);
        event.record(&self.stream)?;
        Ok(event)
    }

    /// Number of the last of what is known to be done or has a fence behind it.
    fn behind_last_fence(&self, given: &Given) -> u64 {
        let fenced = given.fences.back().map_or(0, |&(number, _)| number);
        fenced.max(self.done.load(Ordering::Relaxed))
    }

    fn wants_fence(&self, given: &Given) -> bool {
        given.issued.saturating_sub(self.behind_last_fence(given)) >= BETWEEN_FENCES
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
                let issued = given.issued;
                self.reach(given, issued);
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

impl Drop for Progress {
    fn drop(&mut self) {
        self.events.num_streams.fetch_sub(1, Ordering::Relaxed);
    }
}

//! Driver events that are used again.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;

use super::driver::{self, Result};
use super::handles::{Event, Stream};

/// What an event can do beside being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ability {
    /// Nothing, at the least cost.
    None,
    /// Tell when it came.
    Time,
    /// Wake who sleeps until it comes: the device interrupts a processor.
    Wake,
}

/// Events that nobody uses, by ability.
#[derive(Default)]
pub(super) struct Pool {
    idle: [Mutex<Vec<Event>>; 3],
    /// Streams that take events from it.
    pub num_streams: AtomicUsize,
}

impl Pool {
    /// An event that nobody else uses.
    pub fn take(pool: &Arc<Self>, ability: Ability) -> Result<PooledEvent> {
        let idle = pool.idle[ability as usize].lock().pop();
        let event = match idle {
            Some(event) => event,
            None => Event::new(ability == Ability::Time, ability == Ability::Wake)?,
        };
        Ok(PooledEvent {
            event: Some(event),
            ability,
            pool: Arc::clone(pool),
        })
    }
}

/// An event that goes back to its pool.
pub(super) struct PooledEvent {
    /// There until it goes back.
    event: Option<Event>,
    ability: Ability,
    pool: Arc<Pool>,
}

impl PooledEvent {
    fn with<T>(&self, call: impl FnOnce(&Event) -> Result<T>) -> Result<T> {
        self.event
            .as_ref()
            .map_or(Err(driver::DriverError::UNKNOWN_EVENT), call)
    }

    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.with(|event| event.record(stream))
    }

    pub fn query(&self) -> Result<()> {
        self.with(Event::query)
    }

    /// Milliseconds from `start` to this, if both have time.
    pub fn milliseconds_since(&self, start: &Self) -> Option<f32> {
        if [start, self].iter().any(|event| event.ability != Ability::Time) {
            return None;
        }
        let elapsed = start.with(|from| self.with(|to| driver::cuEventElapsedTime(from.handle(), to.handle())));
        elapsed.ok()
    }

    /// Sleeps until it has come, if it is of [`Ability::Wake`].
    pub fn sleep(&self) -> Result<()> {
        self.with(Event::sleep)
    }
}

impl Drop for PooledEvent {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            self.pool.idle[self.ability as usize].lock().push(event);
        }
    }
}

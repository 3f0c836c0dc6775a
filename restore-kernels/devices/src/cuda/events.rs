//! Driver events that are used again, and the device's side of a program's events.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use super::CudaInner;
use super::driver::{self, Result};
use super::handles::{Event, Stream};
use super::progress::Progress;
use crate::device::RecordedEvent;
use crate::error::DeviceError;

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

/// A program's event, recorded.
pub(super) struct CudaEvent {
    pub device: Arc<CudaInner>,
    pub progress: Arc<Progress>,
    pub number: u64,
    pub event: Arc<PooledEvent>,
}

impl RecordedEvent for CudaEvent {
    fn is_done(&self) -> bool {
        self.device.context.enter().is_err() || self.progress.is_done(self.number)
    }

    fn wait(&self) -> std::result::Result<(), DeviceError> {
        self.device.context.enter()?;
        Ok(self.progress.wait(self.number)?)
    }

    fn milliseconds_since(&self, start: &dyn RecordedEvent) -> Option<f32> {
        let start = start.as_any().downcast_ref::<Self>()?;
        if [&start.event, &self.event]
            .iter()
            .any(|event| event.ability != Ability::Time)
        {
            return None;
        }
        self.device.context.enter().ok()?;
        let elapsed = start.event.with(|from| {
            self.event
                .with(|to| driver::cuEventElapsedTime(from.handle(), to.handle()))
        });
        elapsed.ok()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

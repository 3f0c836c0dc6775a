//! The device's side of a program's events.

use std::any::Any;
use std::sync::Arc;

use super::CudaInner;
use super::events::PooledEvent;
use super::progress::Progress;
use crate::device::RecordedEvent;
use crate::error::DeviceError;

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

    fn wait(&self) -> Result<(), DeviceError> {
        self.device.context.enter()?;
        Ok(self.progress.wait(self.number)?)
    }

    fn milliseconds_since(&self, start: &dyn RecordedEvent) -> Option<f32> {
        let start = start.as_any().downcast_ref::<Self>()?;
        self.device.context.enter().ok()?;
        self.event.milliseconds_since(&start.event)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

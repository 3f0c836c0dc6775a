//! Launches in order.
#![allow(unsafe_code, reason = "driver FFI")]

use std::sync::Arc;

use parking_lot::Mutex;

use hetckpt_abi::launch_control::RESUMED_BLOCK_BYTES;

use super::CudaInner;
use super::driver::DriverError;
use super::flight::{Flight, Held, Launches};
use super::graph;
use super::handles::{DeviceBuffer, Stream};
use super::launch::{Launched, NO_CONTROL, Plan, refusal};
use super::opaque::{self, OpaqueCuda};
use super::progress::Progress;
use super::read::CudaRead;
use super::recorded::CudaEvent;
use super::unstoppable;
use super::write;
use crate::control::{fill_slot, listed_blocks};
use crate::device::{
    DeviceGraph, Launch, MAX_QUEUED_BYTES, Outcome, PendingRead, Queue, RecordedEvent, RunningLaunch, Transfer,
};
use crate::error::DeviceError;

/// A stream with the launches given to it.
pub(super) struct CudaQueue {
    pub device: Arc<CudaInner>,
    pub id: u64,
    pub progress: Arc<Progress>,
}

/// From and to the host this takes much longer than the record of an event.
const LONG_COPY_BYTES: u64 = 256 << 10;

impl Queue for CudaQueue {
    fn check(&self, launch: &Launch) -> Result<(), DeviceError> {
        // What is machine code alone is never stopped, so never gone on with.
        if launch.kernel.as_any().is::<OpaqueCuda>() {
            return Ok(());
        }
        self.device.context.enter()?;
        Plan::new(&self.device, launch).map(drop)
    }

    fn launch(&self, launch: Launch) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        if launch.kernel.as_any().is::<OpaqueCuda>() {
            return opaque::launch(&self.device, &self.progress, launch);
        }
        self.device.context.enter()?;
        let plan = Plan::new(&self.device, &launch)?;
        let name = plan.kernel.request.name.clone();
        let refused = |e: DriverError| refusal(&name, e.to_string());
        if plan.num_blocks == 0 {
            return Ok(Held::new(Outcome::Finished));
        }
        let (memory, resumed_blocks) = self.send_given(&plan).map_err(refused)?;
        let mut pausing = self.device.pausing.lock();
        if pausing.is_paused {
            return Ok(Held::paused(plan.left()));
        }
        let control = pausing.take_control(&self.device).map_err(refused)?;
        let words = plan.words(resumed_blocks);
        if resumed_blocks != 0 {
            let arenas = &mut pausing.arenas;
            let written = arenas.write(&[(control, words)]).and_then(|()| arenas.stream.wait());
            written.map_err(refused)?;
        }
        let given = Progress::give_launch(&self.progress, self.device.launcher.as_ref(), plan.starter(control));
        let number = match given {
            Ok(number) => number,
            Err(error) => {
                pausing.arenas.give_back(control);
                return Err(refused(error));
            }
        };
        let launches = Launches::One(Launched { plan, control, words });
        let flight = Flight::new(&self.device, launches, &self.progress, number, memory);
        pausing.add(self.id, Arc::clone(&flight));
        Ok(flight)
    }

    fn launch_to_end(&self, launch: Launch) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        self.device.context.enter()?;
        let plan = Plan::to_end(&self.device, &launch)?;
        let name = plan.kernel.request.name.clone();
        unstoppable::give(&self.device, &self.progress, &name, plan.num_blocks, |progress| {
            Progress::give_launch(progress, self.device.launcher.as_ref(), plan.starter(NO_CONTROL))
        })
    }

    fn transfer(&self, transfer: &Transfer) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        let (name, is_long) = match *transfer {
            Transfer::Copy { size_bytes, .. } => ("a copy", size_bytes >= LONG_COPY_BYTES),
            Transfer::Fill { .. } => ("a fill", false),
        };
        unstoppable::give(&self.device, &self.progress, name, 1, |progress| {
            progress.give_watched(is_long, |stream| stream.transfer(transfer))
        })
    }

    fn write(&self, dst: u64, bytes: &[u8]) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        write::give(&self.device, &self.progress, dst, bytes)
    }

    fn launch_graph(
        &self,
        graph: &Arc<dyn DeviceGraph>,
        is_watched: bool,
    ) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        graph::launch(&self.device, (self.id, &self.progress), graph, is_watched)
    }

    fn record(&self, has_time: bool) -> Result<Arc<dyn RecordedEvent>, DeviceError> {
        self.device.context.enter()?;
        let (number, event) = self.progress.record(has_time)?;
        Ok(Arc::new(CudaEvent {
            device: self.device.clone(),
            progress: self.progress.clone(),
            number,
            event,
        }))
    }

    fn read(&self, addr: u64, size_bytes: u64) -> Result<Arc<dyn PendingRead>, DeviceError> {
        self.device.context.enter()?;
        if size_bytes > MAX_QUEUED_BYTES {
            return Err(DeviceError::Driver {
                call: "read",
                reason: format!("{size_bytes} bytes are more than {MAX_QUEUED_BYTES}"),
            });
        }
        let (number, buffer) = if size_bytes == 0 {
            (self.progress.last(), None)
        } else {
            let mut buffer = self.device.buffers.take()?;
            let receive = |stream: &Stream| buffer.receive(addr, size_bytes as usize, stream);
            (self.progress.give(receive)?, Some(buffer))
        };
        Ok(Arc::new(CudaRead {
            device: self.device.clone(),
            progress: self.progress.clone(),
            number,
            size_bytes,
            buffer: Mutex::new(buffer),
        }))
    }
}

impl CudaQueue {
    /// Puts the list of blocks and their state into device memory; returns the list's address.
    fn send_given(&self, plan: &Plan) -> Result<(Option<DeviceBuffer>, u64), DriverError> {
        let Some(given) = plan.given.as_deref() else {
            return Ok((None, 0));
        };
        let device = &self.device;
        let stride = plan.shape.slot().stride;
        let list_bytes = (plan.num_blocks * RESUMED_BLOCK_BYTES).next_multiple_of(256);
        let size = list_bytes + stride * given.paused.len() as u64;
        let memory = DeviceBuffer::new(size as usize, &device.memory_stream)?;
        let slots_at = memory.addr + list_bytes;
        let mut image = vec![0; size as usize];
        let (list, slots) = image.split_at_mut(list_bytes as usize);
        for ((i, block), entry) in (0u64..).zip(listed_blocks(given)).zip(list.chunks_exact_mut(16)) {
            let slot = if i < given.paused.len() as u64 {
                slots_at + i * stride
            } else {
                0
            };
            entry[..8].copy_from_slice(&block.to_le_bytes());
            entry[8..].copy_from_slice(&slot.to_le_bytes());
        }
        let slot_size = stride as usize;
        for (block, slot) in given.paused.iter().zip(slots.chunks_exact_mut(slot_size)) {
            fill_slot(&plan.shape, block, slot);
        }
        device.transfers.write(&device.context, memory.addr, &image)?;
        let list = memory.addr;
        Ok((Some(memory), list))
    }
}

//! Launches in order.
#![allow(unsafe_code, reason = "driver FFI")]

use std::ffi::c_void;
use std::sync::Arc;

use parking_lot::Mutex;

use hetckpt_abi::launch_control::RESUMED_BLOCK_BYTES;
use hetckpt_abi::paused_block::PausedGrid;

use super::CudaInner;
use super::driver::{self, DriverError, Shape};
use super::flight::{Flight, Held};
use super::graph;
use super::handles::{DeviceBuffer, Stream};
use super::module::{CudaKernel, LoadedCuda};
use super::opaque::{self, OpaqueCuda};
use super::progress::Progress;
use super::read::CudaRead;
use super::recorded::CudaEvent;
use super::unstoppable;
use super::write;
use crate::control::{BlockShape, ControlWords, fill_slot, listed_blocks};
use crate::device::{
    Blocks, DeviceGraph, Launch, MAX_QUEUED_BYTES, PendingRead, Queue, RecordedEvent, RunningLaunch, Transfer,
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

/// A launch, looked at and found possible.
struct Plan {
    shape: BlockShape,
    /// As it is launched: a continuation has its blocks in a row.
    grid: [u32; 3],
    given: Option<Arc<PausedGrid>>,
    num_blocks: u64,
    max_resident: u64,
}

impl Queue for CudaQueue {
    fn check(&self, launch: &Launch) -> Result<(), DeviceError> {
        // What is machine code alone is never stopped, so never gone on with.
        if launch.kernel.as_any().is::<OpaqueCuda>() {
            return Ok(());
        }
        self.device.context.enter()?;
        let kernel = own_kernel(launch)?;
        self.plan(&kernel, launch).map(drop)
    }

    fn launch(&self, launch: Launch) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        if launch.kernel.as_any().is::<OpaqueCuda>() {
            return opaque::launch(&self.device, &self.progress, launch);
        }
        let kernel = own_kernel(&launch)?;
        let name = kernel.request.name.clone();
        let refused = |e: DriverError| refusal(&name, e.to_string());
        self.device.context.enter().map_err(refused)?;
        let plan = self.plan(&kernel, &launch)?;
        if plan.num_blocks == 0 {
            return Ok(Arc::new(Held(Mutex::new(None))));
        }
        let (memory, resumed_blocks) = self.send_given(&plan).map_err(refused)?;
        let mut pausing = self.device.pausing.lock();
        if pausing.is_paused {
            let all = || PausedGrid {
                paused: vec![],
                not_started: vec![(0, plan.num_blocks)],
            };
            let left = plan.given.as_deref().map_or_else(all, PausedGrid::clone);
            return Ok(Arc::new(Held(Mutex::new(Some(left)))));
        }
        for control in self.device.returned_controls.lock().drain(..) {
            pausing.arenas.give_back(control);
        }
        let control = pausing.arenas.take(&self.device.context).map_err(refused)?;
        let words = ControlWords {
            resumed_blocks,
            grid: launch.shape.grid,
            ..ControlWords::default()
        };
        if resumed_blocks != 0 {
            let arenas = &mut pausing.arenas;
            let written = arenas.write(&[(control, words)]).and_then(|()| arenas.stream.wait());
            written.map_err(refused)?;
        }
        let call = {
            let (kernel, shape) = (kernel.clone(), shape_of(&launch, &plan));
            let params = Arc::clone(&launch.params);
            move |stream: &Stream| start(stream, &kernel, &shape, &params, control)
        };
        let given = Progress::give_launch(&self.progress, self.device.launcher.as_ref(), call);
        let number = match given {
            Ok(number) => number,
            Err(error) => {
                pausing.arenas.give_back(control);
                return Err(refused(error));
            }
        };
        let flight = Arc::new(Flight {
            device: self.device.clone(),
            kernel,
            shape: plan.shape,
            num_blocks: plan.num_blocks,
            max_resident: plan.max_resident,
            given: plan.given,
            control,
            words,
            progress: self.progress.clone(),
            number,
            prepared: Mutex::new(None),
            is_taken: Mutex::new(false),
            _memory: memory,
        });
        pausing.add(self.id, flight.clone());
        Ok(flight)
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
        graph::launch(&self.device, &self.progress, graph, is_watched)
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
    fn plan(&self, kernel: &CudaKernel, launch: &Launch) -> Result<Plan, DeviceError> {
        let request = &kernel.request;
        let refused = |reason: String| refusal(&request.name, reason);
        let product = |d: [u32; 3]| d.iter().map(|&n| u64::from(n)).product::<u64>();
        let (threads, all_blocks) = (product(launch.shape.block), product(launch.shape.grid));
        let shared = u64::from(request.static_shared_bytes) + u64::from(launch.shape.dynamic_shared_bytes);
        let limits = &self.device.limits;
        let max = limits.max_threads_per_block;
        let Some(threads) = u32::try_from(threads).ok().filter(|n| (1..=max).contains(n)) else {
            return Err(refused(format!("{threads} threads a block; the device has 1 to {max}")));
        };
        let max = limits.max_shared_bytes;
        let Some(shared_bytes) = u32::try_from(shared).ok().filter(|&n| n <= max) else {
            return Err(refused(format!(
                "{shared} bytes of shared memory a block; the device has {max}"
            )));
        };
        let shape = BlockShape {
            threads,
            bytes_per_thread: request.layout.bytes_per_thread,
            shared_bytes,
            local_bytes: request.local_bytes,
        };
        let given = given_blocks(kernel, &launch.blocks, all_blocks).map_err(|e| refused(e.to_string()))?;
        let num_blocks = given
            .as_ref()
            .map_or(all_blocks, |g| g.paused.len() as u64 + g.num_not_started());
        let grid = match (&given, i32::try_from(num_blocks)) {
            (None, _) => launch.shape.grid,
            (Some(_), Ok(listed)) => [listed.cast_unsigned(), 1, 1],
            (Some(_), Err(_)) => {
                return Err(refused(format!(
                    "{num_blocks} blocks to go on with are more than a launch can have"
                )));
            }
        };
        if let Some(block) = given.iter().flat_map(|g| &g.paused).find(|block| !shape.fits(block)) {
            return Err(refused(format!(
                "the state of block {} is not of this launch's shape",
                block.block
            )));
        }
        let per_multiprocessor = kernel
            .prepare(shape.threads, shape.shared_bytes)
            .map_err(|e| refused(e.to_string()))?;
        let max_resident = u64::from(per_multiprocessor) * u64::from(limits.num_multiprocessors);
        if launch.shape.cooperative && num_blocks > max_resident {
            return Err(refused(format!(
                "{num_blocks} blocks that wait for one another; the device has room for {max_resident}"
            )));
        }
        Ok(Plan {
            shape,
            grid,
            given,
            num_blocks,
            max_resident: max_resident.min(num_blocks),
        })
    }

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

/// As the driver takes it.
fn shape_of(launch: &Launch, plan: &Plan) -> Shape {
    Shape {
        grid: plan.grid,
        block: launch.shape.block,
        shared_bytes: plan.shape.shared_bytes,
        cooperative: launch.shape.cooperative,
        cluster: [0; 3],
    }
}

fn start(stream: &Stream, kernel: &CudaKernel, shape: &Shape, params: &[u8], control: u64) -> Result<(), DriverError> {
    let end = kernel
        .request
        .params
        .iter()
        .map(|&(offset, size)| u64::from(offset) + u64::from(size))
        .max();
    if end.unwrap_or(0) > params.len() as u64 {
        return Err(DriverError {
            call: "cuLaunchKernel",
            code: driver::INVALID_VALUE,
        });
    }
    let mut pointers: Vec<*mut c_void> = kernel
        .request
        .params
        .iter()
        .map(|&(offset, _)| params[offset as usize..].as_ptr().cast_mut().cast())
        .collect();
    if !kernel.request.layout.live.is_empty() {
        pointers.push((&raw const control).cast_mut().cast());
    }
    // SAFETY: one pointer for each parameter, into a buffer that holds all of it, then one to the control block's
    // address; the driver copies them before it returns.
    unsafe { driver::cuLaunchKernel(kernel.function(), shape, stream.0, &mut pointers) }
}

/// A launch is to go on with some blocks, and its program starts all of the grid (a bug in the caller).
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the program was not generated for a list of blocks")]
struct NotForLists;

/// What the launch goes on with; `None` if it runs the whole grid from the start.
fn given_blocks(kernel: &CudaKernel, blocks: &Blocks, all: u64) -> Result<Option<Arc<PausedGrid>>, NotForLists> {
    match (blocks, kernel.is_block_list) {
        (Blocks::All, false) => Ok(None),
        (Blocks::All, true) => Ok(Some(Arc::new(PausedGrid {
            paused: vec![],
            not_started: vec![(0, all)],
        }))),
        (Blocks::Rest(rest), true) => Ok(Some(rest.clone())),
        (Blocks::Rest(rest), false) if rest.paused.is_empty() && rest.num_not_started() == all => Ok(None),
        (Blocks::Rest(_), false) => Err(NotForLists),
    }
}

fn own_kernel(launch: &Launch) -> Result<Arc<CudaKernel>, DeviceError> {
    let loaded = launch.kernel.as_any().downcast_ref::<LoadedCuda>();
    loaded
        .map(|l| l.0.clone())
        .ok_or_else(|| refusal("?", "it was loaded on another device".into()))
}

fn refusal(kernel: &str, reason: String) -> DeviceError {
    DeviceError::Launch {
        kernel: kernel.to_owned(),
        reason,
    }
}

//! Command queues: what is enqueued becomes a command with an event, which the queue's worker runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::context::Context;
use crate::cuda;
use crate::device;
use crate::event::{self, Event, QueueRef};
use crate::handles::{self, Handle, Identity, Object};
use crate::info::{Query, bytes};
use crate::pointers::{In, Out};
use crate::status::{Outcome, Status};
use crate::worker::{self, Lane, Mode, Work};

entry_points! {
    object clCreateCommandQueue(context: Handle, device: Handle, properties: u64) => create;
    object clCreateCommandQueueWithProperties
        (context: Handle, device: Handle, properties: In<u64>) => create_with_properties;
    status clRetainCommandQueue(queue: Handle) => handles::retain::<Queue>;
    status clReleaseCommandQueue(queue: Handle) => handles::release::<Queue>;
    status clGetCommandQueueInfo(queue: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) => info;
    status clSetCommandQueueProperty(queue: Handle, properties: u64, enable: u32, old: Out<u64>) => set_property;
    status clFlush(queue: Handle) => flush;
    status clFinish(queue: Handle) => finish;
}

const OUT_OF_ORDER: u64 = 1;
const PROFILING: u64 = 2;
/// `CL_QUEUE_PROPERTIES`, by name in a list of properties.
const PROPERTIES: u64 = 0x1093;

mod name {
    pub const CONTEXT: u32 = 0x1090;
    pub const DEVICE: u32 = 0x1091;
    pub const REFERENCE_COUNT: u32 = 0x1092;
    pub const PROPERTIES: u32 = 0x1093;
}

/// A command queue.
#[derive(Debug)]
pub struct Queue {
    identity: Identity,
    /// Its context.
    pub context: Arc<Context>,
    properties: AtomicU64,
    /// What it has to do, shared with its worker.
    pub lane: Arc<Lane>,
}

handles::object!(Queue, INVALID_COMMAND_QUEUE);

impl Drop for Queue {
    fn drop(&mut self) {
        self.lane.close();
    }
}

/// What a command waits for and whether the caller waits for it: the last arguments of most `clEnqueue…`.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// Length of the wait list.
    pub count: u32,
    /// The wait list.
    pub events: In<Handle>,
    /// Where the command's own event goes, if wanted.
    pub event: Out<Handle>,
    /// True if the call returns only when the command is complete.
    pub is_blocking: bool,
}

impl Queue {
    /// What its commands' events know of it.
    fn reference(self: &Arc<Self>) -> QueueRef {
        QueueRef {
            context: self.context.clone(),
            handle: self.handle(),
            stream: self.lane.stream(),
            is_profiled: self.properties.load(Ordering::Relaxed) & PROFILING != 0,
            _keep: self.clone(),
        }
    }

    /// The events of a wait list.
    pub fn wait_list(&self, waits: Waits) -> Outcome<Vec<Arc<Event>>> {
        event::wait_list(&self.context, waits.count, waits.events)
    }
}

/// Enqueues a command of `command_type`.
pub fn enqueue(queue: &Arc<Queue>, waits: Waits, command_type: u32, work: Work) -> Outcome {
    let wait_list = queue.wait_list(waits)?;
    enqueue_behind(queue, waits, command_type, work, wait_list)
}

/// Enqueues a command whose wait list has been looked up.
pub fn enqueue_behind(
    queue: &Arc<Queue>,
    waits: Waits,
    command_type: u32,
    work: Work,
    wait_list: Vec<Arc<Event>>,
) -> Outcome {
    let event = Event::of_command(queue.reference(), command_type, !waits.event.is_null());
    waits.event.set(event.handle());
    queue.lane.push(event.clone(), wait_list, work);
    if waits.is_blocking { event.wait() } else { Ok(()) }
}

fn mode(properties: u64) -> Mode {
    Mode {
        is_out_of_order: properties & OUT_OF_ORDER != 0,
        is_profiled: properties & PROFILING != 0,
    }
}

fn create(context: Handle, device: Handle, properties: u64) -> Outcome<Handle> {
    let context = handles::get::<Context>(context)?;
    device::check(device)?;
    if properties & !(OUT_OF_ORDER | PROFILING) != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let stream = cuda::driver()?.stream().map_err(|_| Status::OUT_OF_RESOURCES)?;
    let lane = worker::start(stream, mode(properties)).map_err(|_| Status::OUT_OF_HOST_MEMORY)?;
    let properties = AtomicU64::new(properties);
    let queue = handles::add(1, |identity| Queue {
        identity,
        context,
        properties,
        lane,
    });
    Ok(queue.handle())
}

/// As later versions of OpenCL have it; what is not of 1.2 is refused.
fn create_with_properties(context: Handle, device: Handle, properties: In<u64>) -> Outcome<Handle> {
    let mut wanted = 0;
    let mut at = 0;
    while !properties.is_null() && properties.nth(at)? != 0 {
        if properties.nth(at)? != PROPERTIES {
            return Err(Status::INVALID_VALUE);
        }
        wanted = properties.nth(at + 1)?;
        at += 2;
    }
    if wanted & !(OUT_OF_ORDER | PROFILING) != 0 {
        return Err(Status::INVALID_QUEUE_PROPERTIES);
    }
    create(context, device, wanted)
}

fn info(queue: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) -> Outcome {
    let queue = handles::get::<Queue>(queue)?;
    let found = match name {
        name::CONTEXT => bytes(queue.context.handle()),
        name::DEVICE => bytes(device::handle()),
        name::REFERENCE_COUNT => bytes(handles::count::<Queue>(queue.handle())),
        name::PROPERTIES => bytes(queue.properties.load(Ordering::Relaxed)),
        _ => return Err(Status::INVALID_VALUE),
    };
    Query { room, value, size }.give(found)
}

/// Of OpenCL 1.0. What is enqueued goes by the old properties, so it is waited for.
fn set_property(queue: Handle, properties: u64, enable: u32, old: Out<u64>) -> Outcome {
    let queue = handles::get::<Queue>(queue)?;
    if properties & !(OUT_OF_ORDER | PROFILING) != 0 {
        return Err(Status::INVALID_QUEUE_PROPERTIES);
    }
    finish(queue.handle())?;
    let before = if enable != 0 {
        queue.properties.fetch_or(properties, Ordering::Relaxed)
    } else {
        queue.properties.fetch_and(!properties, Ordering::Relaxed)
    };
    queue.lane.set_mode(mode(queue.properties.load(Ordering::Relaxed)));
    old.set(before);
    Ok(())
}

/// Workers take commands as soon as they can, so there is nothing to push on.
fn flush(queue: Handle) -> Outcome {
    handles::get::<Queue>(queue).map(|_| ())
}

fn finish(queue: Handle) -> Outcome {
    handles::get::<Queue>(queue)?.lane.finish()
}

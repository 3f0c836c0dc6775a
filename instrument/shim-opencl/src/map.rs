//! Mapping: the host's copy of a region is made at the map and given back at the unmap.

use crate::buffer::{Memory, flag};
use crate::command::{Command, Copy};
use crate::context::check_same;
use crate::handles::{self, Handle};
use crate::pointers::{In, Out};
use crate::queue::{Queue, Waits, enqueue, enqueue_behind};
use crate::status::{Outcome, Status};
use crate::worker::Work;

entry_points! {
    object clEnqueueMapBuffer
        (queue: Handle, buffer: Handle, is_blocking: u32, flags: u64, offset: usize, size_bytes: usize,
         num_waits: u32, waits: In<Handle>, event: Out<Handle>) => map;
    status clEnqueueUnmapMemObject
        (queue: Handle, memory: Handle, host: usize, num_waits: u32, waits: In<Handle>, event: Out<Handle>) => unmap;
    status clEnqueueMigrateMemObjects
        (queue: Handle, count: u32, objects: In<Handle>, flags: u64, num_waits: u32, waits: In<Handle>,
         event: Out<Handle>) => migrate;
}

const MAP_READ: u64 = 1;
const MAP_WRITE: u64 = 2;
const MAP_WRITE_INVALIDATE: u64 = 4;

const COMMAND_MAP_BUFFER: u32 = 0x11FB;
const COMMAND_UNMAP: u32 = 0x11FD;
const COMMAND_MIGRATE: u32 = 0x1206;

/// Refuses flags that contradict each other or what the buffer says the host does.
fn check_flags(buffer: &Memory, flags: u64) -> Outcome {
    let is_contradiction = flags & MAP_WRITE_INVALIDATE != 0 && flags & (MAP_READ | MAP_WRITE) != 0;
    if flags & !(MAP_READ | MAP_WRITE | MAP_WRITE_INVALIDATE) != 0 || is_contradiction {
        return Err(Status::INVALID_VALUE);
    }
    let mut refusing = flag::HOST_NO_ACCESS;
    if flags & MAP_READ != 0 {
        refusing |= flag::HOST_WRITE_ONLY;
    }
    if flags & (MAP_WRITE | MAP_WRITE_INVALIDATE) != 0 {
        refusing |= flag::HOST_READ_ONLY;
    }
    if flags != 0 && buffer.flags & refusing != 0 {
        return Err(Status::INVALID_OPERATION);
    }
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
fn map(
    queue: Handle,
    buffer: Handle,
    is_blocking: u32,
    flags: u64,
    offset: usize,
    size_bytes: usize,
    num_waits: u32,
    events: In<Handle>,
    event: Out<Handle>,
) -> Outcome<Handle> {
    let queue = handles::get::<Queue>(queue)?;
    let buffer = handles::get::<Memory>(buffer)?;
    check_same(&queue.context, &buffer.context)?;
    buffer.check_range(offset, size_bytes)?;
    check_flags(&buffer, flags)?;
    let waits = Waits {
        count: num_waits,
        events,
        event,
        is_blocking: is_blocking != 0,
    };
    let wait_list = queue.wait_list(waits)?;
    let is_written = flags & (MAP_WRITE | MAP_WRITE_INVALIDATE) != 0;
    let mapping = buffer.map(offset, size_bytes, is_written)?;
    let (dst, src) = (mapping.host as u64, buffer.addr() + offset as u64);
    let work = if flags & MAP_WRITE_INVALIDATE != 0 {
        Work::Point
    } else {
        Work::Device(Command::Copy(Copy {
            writes_host: true,
            ..Copy::range(dst, src, size_bytes as u64, vec![buffer.clone()])
        }))
    };
    let result = enqueue_behind(&queue, waits, COMMAND_MAP_BUFFER, work, wait_list);
    if result.is_err() {
        buffer.unmap(mapping.host)?;
    }
    result.map(|()| Handle(mapping.host))
}

fn unmap(
    queue: Handle,
    memory: Handle,
    host: usize,
    num_waits: u32,
    events: In<Handle>,
    event: Out<Handle>,
) -> Outcome {
    let queue = handles::get::<Queue>(queue)?;
    let memory = handles::get::<Memory>(memory)?;
    check_same(&queue.context, &memory.context)?;
    let waits = Waits {
        count: num_waits,
        events,
        event,
        is_blocking: false,
    };
    let wait_list = queue.wait_list(waits)?;
    let mapping = memory.unmap(host)?;
    let work = if mapping.is_written {
        let dst = memory.storage.addr + mapping.offset as u64;
        let keep = vec![memory.clone()];
        Work::Device(Command::Copy(Copy::range(
            dst,
            mapping.host as u64,
            mapping.size_bytes as u64,
            keep,
        )))
    } else {
        Work::Point
    };
    enqueue_behind(&queue, waits, COMMAND_UNMAP, work, wait_list)
}

/// There is one device, and all buffers are there.
fn migrate(
    queue: Handle,
    count: u32,
    objects: In<Handle>,
    flags: u64,
    num_waits: u32,
    events: In<Handle>,
    event: Out<Handle>,
) -> Outcome {
    const KNOWN_FLAGS: u64 = 3;
    let queue = handles::get::<Queue>(queue)?;
    if count == 0 || objects.is_null() || flags & !KNOWN_FLAGS != 0 {
        return Err(Status::INVALID_VALUE);
    }
    for memory in handles::get_all::<Memory>(&objects.all(count as usize)?)? {
        check_same(&queue.context, &memory.context)?;
    }
    let waits = Waits {
        count: num_waits,
        events,
        event,
        is_blocking: false,
    };
    enqueue(&queue, waits, COMMAND_MIGRATE, Work::Point)
}

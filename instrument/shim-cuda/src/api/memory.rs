//! Device memory.

use std::sync::Arc;

use hetckpt_ring::command::{Command, DeviceIndex};
use hetckpt_ring::reply::Reply;

use crate::graph::node::GraphMemory;
use crate::graph::operation::Operation;
use crate::guard::Current;
use crate::handles::Handle;
use crate::memory_map::RangeKind;
use crate::pointers::Out;
use crate::result::{CuResult, Outcome};

use super::managed_memory;

entry_points! {
    context cuMemAlloc_v2 "cuMemAlloc" 3020 (addr: Out<u64>, size: u64) => alloc;
    context cuMemAllocPitch_v2 "cuMemAllocPitch" 3020
        (addr: Out<u64>, pitch: Out<u64>, width: u64, height: u64, element: u32) => alloc_pitch;
    context cuMemFree_v2 "cuMemFree" 3020 (addr: u64) => free;
    context cuMemGetInfo_v2 "cuMemGetInfo" 3020 (free: Out<u64>, total: Out<u64>) => info;
    context cuMemGetAddressRange_v2 "cuMemGetAddressRange" 3020
        (base: Out<u64>, size: Out<u64>, addr: u64) => address_range;
    context cuMemAllocAsync "cuMemAllocAsync" 11020
        (addr: Out<u64>, size: u64, stream: Handle) => alloc_async, cuMemAllocAsync_ptsz 11020;
    context cuMemFreeAsync "cuMemFreeAsync" 11020 (addr: u64, stream: Handle) => free_async, cuMemFreeAsync_ptsz 11020;
}

/// Allocates, and notes where.
pub fn alloc(current: Current, addr: Out<u64>, size: u64) -> Outcome {
    if addr.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    addr.set(allocate(&current, size)?)
}

/// Has the device allocate; notes nothing.
pub fn request(current: &Current, size: u64) -> Outcome<u64> {
    if size == 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    let device = DeviceIndex::FIRST;
    match current.session.call(Command::Malloc {
        size_bytes: size,
        device,
    })? {
        Reply::Address(addr) => Ok(addr),
        _ => Err(CuResult::UNKNOWN),
    }
}

/// Allocates device memory, be it for something that the program does not know of.
pub fn allocate(current: &Current, size: u64) -> Outcome<u64> {
    let addr = request(current, size)?;
    current
        .session
        .device
        .memory()
        .insert(addr, size, RangeKind::Allocation);
    Ok(addr)
}

/// Frees what [`allocate`] gave, once all that was given to streams before is done.
pub fn release(current: &Current, addr: u64) -> Outcome {
    forget_allocation(current, addr)?;
    current.session.call(Command::Free { addr }).map(|_| ())
}

fn alloc_pitch(current: Current, addr: Out<u64>, pitch: Out<u64>, width: u64, height: u64, element: u32) -> Outcome {
    if !matches!(element, 4 | 8 | 16) || width == 0 || height == 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    let alignment = u64::from(current.session.device.attribute_u32(51).max(512)).next_power_of_two();
    let row = width
        .checked_next_multiple_of(alignment)
        .ok_or(CuResult::OUT_OF_MEMORY)?;
    let size = row.checked_mul(height).ok_or(CuResult::OUT_OF_MEMORY)?;
    alloc(current, addr, size)?;
    pitch.set(row)
}

/// Freeing waits for what is queued, as NVIDIA's driver does; NULL is fine.
fn free(current: Current, addr: u64) -> Outcome {
    if addr == 0 {
        return Ok(());
    }
    if is_of_graph(&current, addr) {
        current.session.device.memory().mark_graph(addr, false);
        return Ok(());
    }
    if managed_memory::is_managed(&current, addr) {
        return managed_memory::free(&current, addr);
    }
    forget_allocation(&current, addr)?;
    current.session.call(Command::Free { addr }).map(|_| ())
}

/// True for a graph's own memory: the graph gives it back.
fn is_of_graph(current: &Current, addr: u64) -> bool {
    let range = current.session.device.memory().starting_at(addr);
    range.is_some_and(|range| matches!(range.kind, RangeKind::Graph { .. }))
}

/// Forgets an allocation *before* the server hears of it: once freed, the address may be another thread's new
/// allocation.
fn forget_allocation(current: &Current, addr: u64) -> Outcome {
    let mut memory = current.session.device.memory();
    let range = memory.starting_at(addr);
    range
        .filter(|range| range.kind == RangeKind::Allocation)
        .ok_or(CuResult::INVALID_VALUE)?;
    memory.remove(addr);
    current.session.pools.lock().freed(addr);
    Ok(())
}

fn info(current: Current, free: Out<u64>, total: Out<u64>) -> Outcome {
    let Reply::Memory {
        free_bytes,
        total_bytes,
    } = current.session.call(Command::MemoryInfo {
        device: DeviceIndex::FIRST,
    })?
    else {
        return Err(CuResult::UNKNOWN);
    };
    free.set_if_wanted(free_bytes);
    total.set_if_wanted(total_bytes);
    Ok(())
}

fn address_range(current: Current, base: Out<u64>, size: Out<u64>, addr: u64) -> Outcome {
    let range = current.session.device.memory().find(addr).ok_or(CuResult::NOT_FOUND)?;
    base.set_if_wanted(range.addr);
    size.set_if_wanted(range.size_bytes);
    Ok(())
}

/// Memory is there at once: earlier than the stream's order demands, which no program can tell.
fn alloc_async(current: Current, addr: Out<u64>, size: u64, stream: Handle) -> Outcome {
    let pool = current.session.pools.lock().current();
    alloc_from(&current, pool, addr, size, stream)
}

/// The same, from a pool.
pub fn alloc_from(current: &Current, pool: Handle, addr: Out<u64>, size: u64, stream: Handle) -> Outcome {
    let (session, stream) = (current.session, current.stream(stream)?);
    let Some(capture) = session.captures.tell(stream)? else {
        alloc(*current, addr, size)?;
        session.pools.lock().allocated(pool, addr.get()?, size);
        return Ok(());
    };
    let memory = alloc_for_graph(current, size)?;
    let got = memory.addr;
    session.graphs.find(capture.graph)?.lock().memory.push(memory);
    let node = || {
        Ok(Operation::Allocate {
            addr: got,
            size_bytes: size,
        })
    };
    session
        .captures
        .record(&session.graphs, stream, node)
        .ok_or(CuResult::ILLEGAL_STATE)??;
    addr.set(got)
}

/// Memory that a graph keeps for itself: its addresses are the same at each launch.
pub fn alloc_for_graph(current: &Current, size: u64) -> Outcome<Arc<GraphMemory>> {
    let device = &current.session.device;
    let addr = request(current, size)?;
    device
        .memory()
        .insert(addr, size, RangeKind::Graph { is_allocated: false });
    Ok(Arc::new(GraphMemory { device, addr }))
}

fn free_async(current: Current, addr: u64, stream: Handle) -> Outcome {
    let stream = current.stream(stream)?;
    if addr == 0 {
        return Ok(());
    }
    let session = current.session;
    let is_of_graph = is_of_graph(&current, addr);
    if is_of_graph {
        let captured = session
            .captures
            .record(&session.graphs, stream, || Ok(Operation::Free { addr }));
        return captured.unwrap_or_else(|| {
            session.device.memory().mark_graph(addr, false);
            Ok(())
        });
    }
    session.captures.refuse(stream)?;
    forget_allocation(&current, addr)?;
    session.device.send(Command::FreeAsync { addr, stream })
}

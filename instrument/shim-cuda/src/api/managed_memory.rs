//! Managed memory: host memory that kernels reach at the same address, like pinned memory. Where the server keeps it on
//! the device while kernels run, it moves as it is used. What the program advises is only kept for when it asks.

use crate::advice::{Advice, Location};
use crate::guard::Current;
use crate::handles::Handle;
use crate::host_areas;
use crate::managed_faults;
use crate::memory_map::RangeKind;
use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};

use hetckpt_ring::command::{Command, DeviceIndex};

entry_points! {
    context cuMemAllocManaged "cuMemAllocManaged" 6000 (addr: Out<u64>, size: u64, flags: u32) => alloc;
    context cuMemAdvise "cuMemAdvise" 8000 (addr: u64, size: u64, advice: u32, device: i32) => advise;
    context cuMemAdvise_v2 "cuMemAdvise" 12020 (addr: u64, size: u64, advice: u32, place: Location) => advise_at;
    context cuMemPrefetchAsync "cuMemPrefetchAsync" 8000
        (addr: u64, size: u64, device: i32, stream: Handle) => prefetch, cuMemPrefetchAsync_ptsz 8000;
    context cuMemPrefetchAsync_v2 "cuMemPrefetchAsync" 12020
        (addr: u64, size: u64, place: Location, flags: u32, stream: Handle) => prefetch_to,
        cuMemPrefetchAsync_v2_ptsz 12020;
    context cuMemRangeGetAttribute "cuMemRangeGetAttribute" 8000
        (value: Out<u8>, value_bytes: u64, attribute: u32, addr: u64, size: u64) => get_one;
    context cuMemRangeGetAttributes "cuMemRangeGetAttributes" 8000
        (values: In<Out<u8>>, sizes: In<u64>, attributes: In<u32>, count: u64, addr: u64, size: u64) => get_many;
    context cuStreamAttachMemAsync "cuStreamAttachMemAsync" 6000
        (stream: Handle, addr: u64, size: u64, flags: u32) => attach, cuStreamAttachMemAsync_ptsz 7000;
}

/// `CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY`.
const HAS_MANAGED_MEMORY: u32 = 83;
const ATTACH_GLOBAL: u32 = 1;
const ATTACH_HOST: u32 = 2;
const ATTACH_SINGLE: u32 = 4;

fn alloc(current: Current, addr: Out<u64>, size: u64, flags: u32) -> Outcome {
    if size == 0 || addr.is_null() || !matches!(flags, ATTACH_GLOBAL | ATTACH_HOST) {
        return Err(CuResult::INVALID_VALUE);
    }
    let session = current.session;
    if session.device.attribute(HAS_MANAGED_MEMORY) == 0 {
        return Err(CuResult::NOT_SUPPORTED);
    }
    // Zero, as all fresh memory.
    let mut pool = session.device.managed();
    managed_faults::offer(&session.device);
    let got = host_areas::take_zeroed(&session.device, &mut pool, size)?;
    drop(pool);
    session.device.memory().insert(got, size, RangeKind::Managed);
    addr.set(got)
}

/// True if managed memory begins at `addr`.
pub(super) fn is_managed(current: &Current, addr: u64) -> bool {
    let range = current.session.device.memory().starting_at(addr);
    range.is_some_and(|range| range.kind == RangeKind::Managed)
}

/// Frees managed memory, once nothing that is queued uses it.
pub(super) fn free(current: &Current, addr: u64) -> Outcome {
    let session = current.session;
    session.call(Command::Synchronize {
        device: DeviceIndex::FIRST,
    })?;
    let range = session.device.memory().remove(addr).ok_or(CuResult::INVALID_VALUE)?;
    session.advice.lock().remove(&addr);
    host_areas::give_back(&session.device, &mut session.device.managed(), addr, range.size_bytes)
}

/// Address of the allocation of managed memory that the range lies in.
fn allocation_of(current: &Current, addr: u64, size: u64) -> Outcome<u64> {
    let memory = current.session.device.memory();
    let range = memory.find(addr).filter(|range| range.kind == RangeKind::Managed);
    let range = range.filter(|_| size > 0 && memory.contains(addr, size));
    Ok(range.ok_or(CuResult::INVALID_VALUE)?.addr)
}

fn advise(current: Current, addr: u64, size: u64, advice: u32, device: i32) -> Outcome {
    // For some advice the device says nothing.
    let place = match Location::of_device(device) {
        Err(_) if Advice::ignores_place(advice) => Location::NOWHERE,
        place => place?,
    };
    advise_at(current, addr, size, advice, place)
}

fn advise_at(current: Current, addr: u64, size: u64, advice: u32, place: Location) -> Outcome {
    let allocation = allocation_of(&current, addr, size)?;
    if !Advice::ignores_place(advice) {
        place.check()?;
    }
    let mut table = current.session.advice.lock();
    table.entry(allocation).or_default().take(advice, place)
}

fn prefetch(current: Current, addr: u64, size: u64, device: i32, stream: Handle) -> Outcome {
    prefetch_to(current, addr, size, Location::of_device(device)?, 0, stream)
}

fn prefetch_to(current: Current, addr: u64, size: u64, place: Location, flags: u32, stream: Handle) -> Outcome {
    let stream = current.stream(stream)?;
    let allocation = allocation_of(&current, addr, size)?;
    place.check()?;
    if flags != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    current.session.captures.refuse(stream)?;
    current
        .session
        .advice
        .lock()
        .entry(allocation)
        .or_default()
        .prefetched_to = place;
    Ok(())
}

fn get_one(current: Current, value: Out<u8>, value_bytes: u64, attribute: u32, addr: u64, size: u64) -> Outcome {
    let allocation = allocation_of(&current, addr, size)?;
    let advice = current.session.advice.lock().get(&allocation).cloned();
    let words = advice.unwrap_or_default().attribute(attribute, value_bytes)?;
    let value = value.cast::<i32>();
    let mut places = (0..).map(|index| value.nth(index));
    words
        .into_iter()
        .try_for_each(|word| places.next().unwrap_or(Out::NULL).set(word))
}

fn get_many(
    current: Current,
    values: In<Out<u8>>,
    sizes: In<u64>,
    attributes: In<u32>,
    count: u64,
    addr: u64,
    size: u64,
) -> Outcome {
    if count == 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    (0..count as usize).try_for_each(|index| {
        let (value, value_bytes) = (values.nth(index)?, sizes.nth(index)?);
        get_one(current, value, value_bytes, attributes.nth(index)?, addr, size)
    })
}

/// All streams may use the memory at any time, whatever the program says.
fn attach(current: Current, stream: Handle, addr: u64, size: u64, flags: u32) -> Outcome {
    current.stream(stream)?;
    let whole = {
        let memory = current.session.device.memory();
        memory.find(addr).filter(|range| range.kind == RangeKind::Managed)
    };
    let whole = whole.ok_or(CuResult::INVALID_VALUE)?;
    let is_whole = addr == whole.addr && (size == 0 || size == whole.size_bytes);
    if is_whole && matches!(flags, ATTACH_GLOBAL | ATTACH_HOST | ATTACH_SINGLE) {
        Ok(())
    } else {
        Err(CuResult::INVALID_VALUE)
    }
}

//! Taking host memory that kernels reach from a pool, whose areas the server maps.

use hetckpt_ring::command::Command;
use hetckpt_ring::pinned_table::PinnedArea;

use crate::device::Device;
use crate::pinned_pool::PinnedPool;
use crate::pointers::HostMemory;
use crate::result::{CuResult, Outcome};

/// Takes memory from a pool, which its owner holds throughout, so that two threads do not both make an area that one
/// would do for.
pub fn take(device: &Device, pool: &mut PinnedPool, size: u64) -> Outcome<u64> {
    take_piece(device, pool, size).map(|(got, _)| got)
}

/// As [`take`]; true if nobody had the memory before, so that it is zero.
fn take_piece(device: &Device, pool: &mut PinnedPool, size: u64) -> Outcome<(u64, bool)> {
    if !PinnedPool::needs_own_area(size)
        && let Some(got) = pool.take(size)
    {
        return Ok(got);
    }
    if PinnedPool::needs_own_area(size) {
        return take_own(device, pool, size).map(|got| (got, true));
    }
    let area = pool.add_area(size)?;
    announced(device, pool, area)?;
    pool.take(size).ok_or(CuResult::OUT_OF_MEMORY)
}

/// As [`take`], of an area that nothing else has a part of: whole pages.
pub fn take_own(device: &Device, pool: &mut PinnedPool, size: u64) -> Outcome<u64> {
    let area = pool.add_own_area(size)?;
    announced(device, pool, area)?;
    Ok(area.addr)
}

fn announced(device: &Device, pool: &mut PinnedPool, area: PinnedArea) -> Outcome {
    announce(device, area).inspect_err(|_| pool.drop_area(area.addr))
}

/// As [`take`]; the memory is zero.
pub fn take_zeroed(device: &Device, pool: &mut PinnedPool, size: u64) -> Outcome<u64> {
    let (got, is_zero) = take_piece(device, pool, size)?;
    if !is_zero {
        HostMemory::bytes_mut(got, size as usize).fill(0);
    }
    Ok(got)
}

/// Gives memory back to its pool, once nothing that is queued uses it.
pub fn give_back(device: &Device, pool: &mut PinnedPool, addr: u64, size: u64) -> Outcome {
    if let Some(area) = pool.release(addr, size).empty_area {
        call(device, Command::UnregisterHost { addr: area })?;
        let _ = device.producer().pinned_table().remove(area);
        pool.drop_area(area);
    }
    Ok(())
}

fn announce(device: &Device, area: PinnedArea) -> Outcome {
    let table = device.producer().pinned_table();
    table.insert(area).map_err(|_| CuResult::OUT_OF_MEMORY)?;
    let PinnedArea { addr, size_bytes, fd } = area;
    let result = call(device, Command::RegisterHost { addr, size_bytes, fd });
    if result.is_err() {
        let _ = table.remove(addr);
    }
    result
}

fn call(device: &Device, command: Command) -> Outcome {
    let answer = device.call_raw(command)?;
    device.outcome(answer).map(|_| ())
}

//! Loads and stores.

use hetckpt_ir::inst::{Address, AddressBase, Op};
use hetckpt_ir::types::Space;

use super::block::Block;
use super::thread::Thread;
use super::world::World;
use crate::error::Error;
use crate::integer::{low, number};
use crate::memory::{load_le, store_le, window};

/// The address that an instruction names.
pub(super) fn address(thread: &Thread, addr: &Address) -> Result<u64, Error> {
    let base = match &addr.base {
        AddressBase::Reg(reg) => thread.get(*reg),
        AddressBase::Absolute => 0,
        AddressBase::Global(name) => return Err(Error::Unsupported(format!("unbound variable {name}"))),
    };
    Ok(base.wrapping_add_signed(addr.offset))
}

/// Memory of a space as a thread sees it. Generic addresses are global ones: hetIR has no window for the others.
pub(super) fn bytes<'m>(
    world: &'m mut World<'_>,
    block: &'m mut Block,
    thread: usize,
    space: Space,
    place: (u64, usize),
) -> Result<&'m mut [u8], Error> {
    let (address, bytes) = place;
    let segment = match space {
        Space::Global | Space::Generic => return world.memory.slice_mut(address, bytes),
        Space::Shared => &mut block.shared,
        Space::Local => &mut block.threads[thread].local,
        Space::Param => return Err(Error::OutOfBounds { space, address, bytes }),
    };
    match window(segment, address, bytes) {
        Some(range) => Ok(&mut segment[range]),
        None => Err(Error::OutOfBounds { space, address, bytes }),
    }
}

/// Vector accesses are aligned as a whole.
pub(super) fn check_alignment(address: u64, bytes: usize) -> Result<(), Error> {
    let is_aligned = address.is_multiple_of(bytes.max(1) as u64);
    if is_aligned {
        Ok(())
    } else {
        Err(Error::Misaligned { address, bytes })
    }
}

pub(super) fn load(world: &mut World<'_>, block: &mut Block, thread: usize, op: &Op) -> Result<(), Error> {
    let Op::Load {
        space, ty, dsts, addr, ..
    } = op
    else {
        return Ok(());
    };
    let size = ty.size_bytes() as usize;
    let start = address(&block.threads[thread], addr)?;
    let all = size * dsts.len();
    let data = if *space == Space::Param {
        let range = window(world.params, start, all);
        range.map(|r| world.params[r].to_vec()).ok_or(Error::OutOfBounds {
            space: *space,
            address: start,
            bytes: all,
        })?
    } else {
        check_alignment(start, all)?;
        bytes(world, block, thread, *space, (start, all))?.to_vec()
    };
    for (dst, element) in dsts.iter().zip(data.chunks(size)) {
        if let Some(dst) = dst {
            let value = low(number(load_le(element), *ty));
            block.threads[thread].set(world.kernel, *dst, value);
        }
    }
    Ok(())
}

pub(super) fn store(world: &mut World<'_>, block: &mut Block, thread: usize, op: &Op) -> Result<(), Error> {
    let Op::Store {
        space, ty, srcs, addr, ..
    } = op
    else {
        return Ok(());
    };
    let size = ty.size_bytes() as usize;
    let at = &block.threads[thread];
    let start = address(at, addr)?;
    let values: Vec<u64> = srcs.iter().map(|s| at.operand(*s)).collect();
    check_alignment(start, size * srcs.len())?;
    let data = bytes(world, block, thread, *space, (start, size * srcs.len()))?;
    for (element, value) in data.chunks_mut(size).zip(values) {
        store_le(element, value);
    }
    Ok(())
}

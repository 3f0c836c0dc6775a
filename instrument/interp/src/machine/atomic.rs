//! Atomics: a thread's whole step is one, so every one is atomic.
//!
//! # Source
//! PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: atom".

use hetckpt_ir::inst::{AluOp, AtomOp, Modifiers, Op};
use hetckpt_ir::types::{Space, Type};

use super::access;
use super::block::Block;
use super::world::World;
use crate::error::Error;
use crate::integer::truncate;
use crate::memory::{load_le, store_le};
use crate::{float, integer};

pub(super) fn atom(world: &mut World<'_>, block: &mut Block, thread: usize, inst: &Op) -> Result<(), Error> {
    let Op::Atom {
        op,
        space,
        ty,
        dst,
        addr,
        srcs,
        ..
    } = inst
    else {
        return Ok(());
    };
    let size = ty.size_bytes() as usize;
    let at = &block.threads[thread];
    let address = access::address(at, addr)?;
    let bits = 8 * ty.size_bytes();
    let srcs: Vec<u64> = srcs.iter().map(|s| truncate(at.operand(*s), bits)).collect();
    access::check_alignment(address, size)?;
    let cell = access::bytes(world, block, thread, *space, (address, size))?;
    let old = load_le(cell);
    let new = update(*op, *ty, *space, old, &srcs).ok_or_else(|| Error::Unsupported(format!("{inst:?}")))?;
    store_le(cell, new);
    if let Some(dst) = dst {
        block.threads[thread].set(world.kernel, *dst, old);
    }
    Ok(())
}

fn update(op: AtomOp, ty: Type, space: Space, old: u64, srcs: &[u64]) -> Option<u64> {
    let value = *srcs.first()?;
    // The only atomic with subnormal numbers that has them in one space and not in another.
    let mods = Modifiers {
        ftz: ty == Type::F32 && space != Space::Shared,
        ..Modifiers::default()
    };
    let alu = |op| match ty.is_float() {
        true => float::evaluate(op, ty, mods, &[old, value]),
        false => integer::evaluate(op, ty, Modifiers::default(), &[old, value]),
    };
    match op {
        AtomOp::Add => alu(AluOp::Add),
        AtomOp::Min => alu(AluOp::Min),
        AtomOp::Max => alu(AluOp::Max),
        AtomOp::And => Some(old & value),
        AtomOp::Or => Some(old | value),
        AtomOp::Xor => Some(old ^ value),
        AtomOp::Exch => Some(value),
        AtomOp::Cas => Some(if old == value { *srcs.get(1)? } else { old }),
        AtomOp::Inc => Some(if old >= value { 0 } else { old + 1 }),
        AtomOp::Dec => Some(if old == 0 || old > value { value } else { old - 1 }),
    }
}

//! One instruction or terminator of one thread.

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::ResumePointId;
use hetckpt_ir::inst::{Inst, Op};
use hetckpt_ir::kernel::{Kernel, ResumePointKind};
use hetckpt_ir::types::Type;

use super::block::{Block, WARP};
use super::thread::State;
use super::world::World;
use super::{access, atomic, special};
use crate::error::Error;
use crate::integer::truncate;
use crate::{compare, convert, float, integer};

pub(super) fn step(world: &mut World<'_>, block: &mut Block, thread: usize) -> Result<(), Error> {
    world.steps += 1;
    if world.steps > world.options.max_steps {
        return Err(Error::TooLong(world.options.max_steps));
    }
    let kernel: &Kernel = world.kernel;
    let at = &block.threads[thread];
    let bb = &kernel.blocks[at.block.index()];
    match bb.insts.get(at.index) {
        Some(inst) => instruction(world, block, thread, inst),
        None => terminator(world, block, thread, &bb.terminator),
    }
}

fn instruction(world: &mut World<'_>, block: &mut Block, thread: usize, inst: &Inst) -> Result<(), Error> {
    let at = &mut block.threads[thread];
    let is_on = inst.guard.is_none_or(|g| at.holds(g));
    if is_on && matches!(inst.op, Op::Warp { .. }) {
        // The place stays: the lanes' common step moves them on.
        at.state = State::AtWarpOp;
        return Ok(());
    }
    at.index += 1;
    if !is_on {
        return Ok(());
    }
    match &inst.op {
        Op::Load { .. } => access::load(world, block, thread, &inst.op),
        Op::Store { .. } => access::store(world, block, thread, &inst.op),
        Op::Atom { .. } => atomic::atom(world, block, thread, &inst.op),
        Op::Membar { .. } | Op::Nanosleep { .. } | Op::Warp { .. } => Ok(()),
        Op::Opaque { text, .. } => Err(Error::Unsupported(text.clone())),
        Op::ReadSpecial { dst, special } => {
            let value = special::read(world, block.linear, thread, *special);
            block.threads[thread].set(world.kernel, *dst, value);
            Ok(())
        }
        op => pure(world, block, thread, op),
    }
}

/// Instructions that touch registers only.
fn pure(world: &World<'_>, block: &mut Block, thread: usize, op: &Op) -> Result<(), Error> {
    let kernel = world.kernel;
    let at = &mut block.threads[thread];
    let unsupported = || Error::Unsupported(format!("{op:?}"));
    match op {
        Op::Alu {
            op: alu,
            ty,
            mods,
            dst,
            srcs,
        } => {
            let srcs: Vec<u64> = srcs.iter().map(|s| at.operand(*s)).collect();
            let value = match ty {
                Type::Pred => integer::evaluate(*alu, Type::B16, *mods, &srcs).map(|v| v & 1),
                _ if ty.is_float() => float::evaluate(*alu, *ty, *mods, &srcs),
                _ => integer::evaluate(*alu, *ty, *mods, &srcs),
            };
            at.set(kernel, *dst, value.ok_or_else(unsupported)?);
        }
        Op::Mov { dst, src, .. } => at.set(kernel, *dst, at.operand(*src)),
        Op::Pack { ty, dst, srcs } => {
            let part = 8 * ty.size_bytes() / u32::try_from(srcs.len()).unwrap_or(1).max(1);
            let value = srcs
                .iter()
                .rev()
                .fold(0, |out, s| out << part | truncate(at.operand(*s), part));
            at.set(kernel, *dst, value);
        }
        Op::Unpack { ty, dsts, src } => {
            let part = 8 * ty.size_bytes() / u32::try_from(dsts.len()).unwrap_or(1).max(1);
            let value = at.operand(*src);
            for (i, dst) in (0u32..).zip(dsts) {
                if let Some(dst) = dst {
                    at.set(kernel, *dst, truncate(value >> (part * i), part));
                }
            }
        }
        Op::AddrOf { dst, addr, .. } => at.set(kernel, *dst, access::address(at, addr)?),
        Op::Setp {
            cmp,
            ty,
            ftz,
            dst,
            dst_not,
            a,
            b,
            combine,
        } => {
            let result = compare::holds(*cmp, *ty, *ftz, at.operand(*a), at.operand(*b));
            let with = combine.map(|(op, pred, negated)| (op, (at.get(pred) != 0) != negated));
            at.set(kernel, *dst, compare::combine(result, with).into());
            if let Some(q) = dst_not {
                at.set(kernel, *q, compare::combine(!result, with).into());
            }
        }
        Op::Set {
            cmp,
            dst_ty,
            ty,
            ftz,
            dst,
            a,
            b,
        } => {
            let yes = if *dst_ty == Type::F32 {
                u64::from(1f32.to_bits())
            } else {
                u64::MAX
            };
            let result = compare::holds(*cmp, *ty, *ftz, at.operand(*a), at.operand(*b));
            at.set(kernel, *dst, if result { yes } else { 0 });
        }
        Op::Selp { dst, a, b, pred, .. } => {
            let chosen = if at.get(*pred) != 0 { *a } else { *b };
            at.set(kernel, *dst, at.operand(chosen));
        }
        Op::Cvt {
            dst_ty,
            src_ty,
            mods,
            dst,
            src,
        } => {
            let value = convert::convert(*dst_ty, *src_ty, *mods, at.operand(*src));
            at.set(kernel, *dst, value.ok_or_else(unsupported)?);
        }
        _ => return Err(unsupported()),
    }
    Ok(())
}

fn terminator(world: &mut World<'_>, block: &mut Block, thread: usize, terminator: &Terminator) -> Result<(), Error> {
    let linear = block.linear;
    match terminator {
        Terminator::Poll { resume_point, next } => {
            let stops = poll(world, block, thread, *resume_point);
            let at = &mut block.threads[thread];
            if stops {
                at.state = State::Stopped(*resume_point)
            } else {
                at.jump(*next)
            }
        }
        Terminator::Jump(next) => block.threads[thread].jump(*next),
        Terminator::Branch {
            guard,
            taken,
            not_taken,
        } => {
            let at = &mut block.threads[thread];
            at.jump(if at.holds(*guard) { *taken } else { *not_taken });
        }
        Terminator::Exit => block.threads[thread].state = State::Finished,
        Terminator::Trap => return Err(Error::Trapped { block: linear }),
        Terminator::Barrier { .. } => block.threads[thread].state = State::AtBarrier,
    }
    Ok(())
}

/// At the entry of a kernel with warp-level operations the first lane's answer is the warp's.
fn poll(world: &mut World<'_>, block: &mut Block, thread: usize, point: ResumePointId) -> bool {
    let kind = world.kernel.resume_points.get(point.index()).map(|p| p.kind);
    if kind != Some(ResumePointKind::Entry) || !world.has_warp_ops {
        return world.pause.poll(point);
    }
    *block.entry_decisions[thread / WARP].get_or_insert_with(|| world.pause.poll(point))
}

//! Warp-level operations: lanes wait for those of their mask that have not exited, then exchange values.
//!
//! # Source
//! PTX ISA 9.0, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "activemask", "bar.warp.sync". Lanes meet if they
//! execute the same operation with the same mask, wherever it stands.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Op, Operand, ReduxOp, WarpOp, WarpProbe};
use hetckpt_ir::kernel::{Kernel, ResumePointKind};
use hetckpt_ir::types::Type;

use super::block::{Block, WARP};
use super::thread::{State, Thread};
use super::world::World;
use crate::error::Error;
use crate::integer::{low, number, range, truncate};

/// The operation that a waiting lane is at.
#[derive(Clone, Copy)]
struct Waiting<'k> {
    /// Index of the thread in the block.
    thread: usize,
    op: WarpOp,
    mask: u64,
    dst: Option<RegId>,
    dst_pred: Option<RegId>,
    srcs: &'k [Operand],
    probe: Option<WarpProbe>,
}

/// What one lane gets.
#[derive(Clone, Copy, Default)]
struct Outcome {
    value: u64,
    pred: bool,
}

/// Lets lanes go on whose partners are all there. `first` is the warp's first thread. True if anything has changed.
pub(super) fn resolve(world: &mut World<'_>, block: &mut Block, first: usize) -> Result<bool, Error> {
    let kernel: &Kernel = world.kernel;
    let lanes = first..(first + WARP).min(block.threads.len());
    let mut has_moved = false;
    for thread in lanes.clone() {
        let Some(here) = waiting(kernel, &block.threads[thread], thread) else {
            continue;
        };
        let lane = thread - first;
        let is_member = |t: usize| here.op == WarpOp::ActiveMask || here.mask >> (t - first) & 1 == 1;
        if !is_member(thread) {
            return Err(Error::NotInMask { lane, mask: here.mask });
        }
        let members = lanes
            .clone()
            .filter(|&t| is_member(t) && block.threads[t].state != State::Finished);
        let members: Vec<usize> = members.collect();
        if members.iter().any(|&t| block.threads[t].state == State::Running) {
            continue;
        }
        let meet =
            |t: &usize| waiting(kernel, &block.threads[*t], *t).filter(|w| w.op == here.op && w.mask == here.mask);
        let group: Vec<Waiting<'_>> = members.iter().filter_map(meet).collect();
        let has_stopped = members
            .iter()
            .any(|&t| matches!(block.threads[t].state, State::Stopped(_)));
        if has_stopped {
            check_polls(kernel, block, &members, &group)?;
            has_moved |= stop_at_arrival(block, &group);
        } else if group.len() == members.len() || matches!(here.op, WarpOp::ActiveMask | WarpOp::Step) {
            complete(world, block, first, &group)?;
            has_moved = true;
        }
    }
    Ok(has_moved)
}

fn waiting<'k>(kernel: &'k Kernel, lane: &Thread, thread: usize) -> Option<Waiting<'k>> {
    if lane.state != State::AtWarpOp {
        return None;
    }
    match &kernel.blocks[lane.block.index()].insts.get(lane.index)?.op {
        Op::Warp {
            op,
            dst,
            dst_pred,
            srcs,
            mask,
            probe,
        } => {
            let mask = truncate(lane.operand(*mask), 32);
            Some(Waiting {
                thread,
                op: *op,
                mask,
                dst: *dst,
                dst_pred: *dst_pred,
                srcs,
                probe: *probe,
            })
        }
        _ => None,
    }
}

/// Where lanes may have stopped in a loop since the last operation, the operation's probe says so.
fn check_polls(kernel: &Kernel, block: &Block, members: &[usize], group: &[Waiting<'_>]) -> Result<(), Error> {
    let is_in_loop = |t: &usize| match block.threads[*t].state {
        State::Stopped(point) => kernel
            .resume_points
            .get(point.index())
            .is_some_and(|p| p.kind == ResumePointKind::Loop),
        _ => false,
    };
    let unasked = group.iter().find(|w| w.probe.is_some_and(|p| !p.poll));
    match unasked {
        Some(lane) if members.iter().any(is_in_loop) => Err(Error::MissingPoll {
            at: block.threads[lane.thread].block,
        }),
        _ => Ok(()),
    }
}

fn stop_at_arrival(block: &mut Block, group: &[Waiting<'_>]) -> bool {
    if group.iter().any(|w| w.probe.is_none()) {
        return false;
    }
    for lane in group {
        if let Some(probe) = lane.probe {
            block.threads[lane.thread].state = State::Stopped(probe.arrive);
        }
    }
    true
}

fn complete(world: &mut World<'_>, block: &mut Block, first: usize, group: &[Waiting<'_>]) -> Result<(), Error> {
    let probe = group.first().and_then(|w| w.probe);
    if probe.is_some_and(|p| world.pause.poll(p.arrive)) && stop_at_arrival(block, group) {
        return Ok(());
    }
    let outcomes: Vec<Outcome> = group.iter().map(|lane| outcome(block, first, group, lane)).collect();
    let stops = probe.is_some_and(|p| world.pause.poll(p.leave));
    for (lane, outcome) in group.iter().zip(outcomes) {
        let thread = &mut block.threads[lane.thread];
        if let Some(dst) = lane.dst {
            thread.set(world.kernel, dst, outcome.value);
        }
        if let Some(dst) = lane.dst_pred {
            thread.set(world.kernel, dst, outcome.pred.into());
        }
        thread.index += 1;
        thread.state = State::Running;
        if let Some(probe) = lane.probe {
            // A probed operation stands alone before a jump; its leave point is the jump's target.
            let successors = world.kernel.blocks[thread.block.index()].terminator.successors();
            if let Some(next) = successors.first() {
                thread.jump(*next);
            }
            if stops {
                thread.state = State::Stopped(probe.leave);
            }
        }
    }
    Ok(())
}

fn outcome(block: &Block, first: usize, group: &[Waiting<'_>], lane: &Waiting<'_>) -> Outcome {
    let source = |of: &Waiting<'_>, i: usize| of.srcs.get(i).map_or(0, |s| block.threads[of.thread].operand(*s));
    let values = |bits: u32| {
        group
            .iter()
            .map(move |w| (w.thread - first, truncate(source(w, 0), bits)))
    };
    let mask_of = |test: &dyn Fn(u64) -> bool, bits| {
        values(bits)
            .filter(|(_, v)| test(*v))
            .fold(0, |mask, (lane, _)| mask | 1 << lane)
    };
    let all = |test: &dyn Fn(u64) -> bool, bits| values(bits).all(|(_, v)| test(v));
    let mine = source(lane, 0);
    match lane.op {
        WarpOp::ShflUp | WarpOp::ShflDown | WarpOp::ShflBfly | WarpOp::ShflIdx => {
            shuffle(lane, lane.thread - first, (source(lane, 1), source(lane, 2)), &|from| {
                group
                    .iter()
                    .find(|w| w.thread - first == from)
                    .map_or(0, |w| source(w, 0))
            })
        }
        WarpOp::VoteAll => Outcome {
            pred: all(&|v| v != 0, 1),
            value: 0,
        },
        WarpOp::VoteAny => Outcome {
            pred: !all(&|v| v == 0, 1),
            value: 0,
        },
        WarpOp::VoteUni => Outcome {
            pred: all(&|v| v == mine, 1),
            value: 0,
        },
        WarpOp::VoteBallot => Outcome {
            value: mask_of(&|v| v != 0, 1),
            pred: false,
        },
        WarpOp::MatchAny(ty) => {
            let bits = 8 * ty.size_bytes();
            Outcome {
                value: mask_of(&|v| v == truncate(mine, bits), bits),
                pred: false,
            }
        }
        WarpOp::MatchAll(ty) => {
            let bits = 8 * ty.size_bytes();
            let pred = all(&|v| v == truncate(mine, bits), bits);
            Outcome {
                // Lanes that have exited are not among them: so does an H200.
                value: if pred { mask_of(&|_| true, bits) } else { 0 },
                pred,
            }
        }
        WarpOp::Redux(op, ty) => Outcome {
            value: reduce(op, ty, values(8 * ty.size_bytes())),
            pred: false,
        },
        WarpOp::ActiveMask => Outcome {
            value: mask_of(&|_| true, 1),
            pred: false,
        },
        WarpOp::Sync | WarpOp::Step => Outcome::default(),
    }
}

/// PTX ISA, "shfl.sync": the source lane, and whether it lies within the segment; outside, a lane gets its own value.
fn shuffle(lane: &Waiting<'_>, number: usize, (b, c): (u64, u64), value_of: &dyn Fn(usize) -> u64) -> Outcome {
    let number = number as u64;
    let (b, clamp, segment) = (b & 31, c & 31, c >> 8 & 31);
    let max = (number & segment) | (clamp & !segment);
    let min = number & segment;
    let (from, pred) = match lane.op {
        WarpOp::ShflUp => (
            number.wrapping_sub(b),
            number.cast_signed() - b.cast_signed() >= max.cast_signed(),
        ),
        WarpOp::ShflDown => (number + b, number + b <= max),
        WarpOp::ShflBfly => (number ^ b, number ^ b <= max),
        _ => (min | b & !segment, (min | b & !segment) <= max),
    };
    let from = if pred { from } else { number };
    Outcome {
        value: value_of(usize::try_from(from).unwrap_or(0)),
        pred,
    }
}

fn reduce(op: ReduxOp, ty: Type, values: impl Iterator<Item = (usize, u64)>) -> u64 {
    let (min, max) = range(ty);
    let mut numbers = values.map(|(_, v)| number(v, ty));
    low(match op {
        ReduxOp::Add => numbers.sum(),
        ReduxOp::Min => numbers.fold(max, i128::min),
        ReduxOp::Max => numbers.fold(min, i128::max),
        ReduxOp::And => numbers.fold(-1, |a, b| a & b),
        ReduxOp::Or => numbers.fold(0, |a, b| a | b),
        ReduxOp::Xor => numbers.by_ref().fold(0, |a, b| a ^ b),
    })
}

//! Warp-level operations, carried out on the saved registers of a warp's 32 threads (PTX ISA, "shfl.sync",
//! "vote.sync", "match.sync", "redux.sync", "activemask", "bar.warp.sync").
//!
//! An operation takes place when every lane of its member mask that has not finished waits at it. Lanes that have
//! finished are left out; a shuffle that reads from one gets its own value (PTX: undefined).

use hetckpt_abi::cpu_tables::{WarpOpcode, WarpTable};
use hetckpt_abi::thread_state::FINISHED;

use super::context::BlockMemory;
use super::kernel::{CpuKernel, Waits};
use super::thread_columns::ThreadColumns;

/// Threads in a warp.
pub const WARP_SIZE: usize = 32;

/// Lanes of one warp that carry out one operation together.
struct Group {
    /// Index of the warp's first thread.
    first: usize,
    /// Lanes that take part, a bit each.
    lanes: u32,
}

impl Group {
    fn lanes(&self) -> impl Iterator<Item = usize> + use<> {
        let lanes = self.lanes;
        (0..WARP_SIZE).filter(move |lane| lanes >> lane & 1 != 0)
    }

    fn threads(&self) -> impl Iterator<Item = usize> + use<> {
        let first = self.first;
        self.lanes().map(move |lane| first + lane)
    }
}

/// Carries out what is complete in the warp of threads `first..end`; true if anything was.
pub fn advance(kernel: &CpuKernel, memory: &mut BlockMemory, first: usize, end: usize) -> bool {
    let points = &memory.points[first..end];
    let mut running = 0u32;
    for (lane, &point) in points.iter().enumerate() {
        running |= u32::from(point != FINISHED) << lane;
    }
    let mut left = running;
    let mut advanced = false;
    while left != 0 {
        let lane = left.trailing_zeros() as usize;
        let point = memory.points[first + lane];
        let mut here = 0u32;
        for (lane, &p) in memory.points[first..end].iter().enumerate() {
            here |= u32::from(p == point) << lane;
        }
        here &= left;
        left &= !here;
        if let Waits::WarpOp(index) = kernel.waits(point) {
            advanced |= advance_at(&kernel.warp_ops()[index], memory, Group { first, lanes: here }, running);
        }
    }
    advanced
}

/// `waiting` are the lanes at `op`; those with the same member mask belong together.
fn advance_at(op: &WarpTable, memory: &mut BlockMemory, waiting: Group, running: u32) -> bool {
    let num_threads = memory.points.len();
    let mut left = waiting.lanes;
    let mut advanced = false;
    while left != 0 {
        let mut columns = ThreadColumns::new(memory.registers.bytes_mut(), num_threads);
        let lane = left.trailing_zeros() as usize;
        let mask_of = |columns: &ThreadColumns<'_>, lane: usize| columns.source(op.mask, waiting.first + lane) as u32;
        let mask = mask_of(&columns, lane);
        let mut together = 0u32;
        for lane in (Group { first: 0, lanes: left }).lanes() {
            together |= u32::from(mask_of(&columns, lane) == mask) << lane;
        }
        left &= !together;
        let is_complete = op.op == WarpOpcode::ActiveMask || mask & running & !together == 0;
        if is_complete {
            let group = Group {
                first: waiting.first,
                lanes: together,
            };
            carry_out(op, &mut columns, &group);
            for thread in group.threads() {
                memory.points[thread] = op.leave;
            }
            advanced = true;
        }
    }
    advanced
}

fn carry_out(op: &WarpTable, columns: &mut ThreadColumns<'_>, group: &Group) {
    let source = |columns: &ThreadColumns<'_>, index: usize, thread: usize| {
        op.sources.get(index).map_or(0, |s| columns.source(*s, thread))
    };
    match op.op {
        WarpOpcode::ShflUp | WarpOpcode::ShflDown | WarpOpcode::ShflBfly | WarpOpcode::ShflIdx => {
            shuffle(op, columns, group);
        }
        WarpOpcode::VoteAll | WarpOpcode::VoteAny | WarpOpcode::VoteUni | WarpOpcode::VoteBallot => {
            let mut ballot = 0u32;
            for lane in group.lanes() {
                ballot |= u32::from(source(columns, 0, group.first + lane) & 1 != 0) << lane;
            }
            let verdict = match op.op {
                WarpOpcode::VoteAll => ballot == group.lanes,
                WarpOpcode::VoteAny => ballot != 0,
                _ => ballot == 0 || ballot == group.lanes,
            };
            give(op, columns, group, u64::from(ballot), u64::from(verdict));
        }
        WarpOpcode::MatchAny | WarpOpcode::MatchAll => find_matches(op, columns, group),
        WarpOpcode::ReduxAdd
        | WarpOpcode::ReduxMinUnsigned
        | WarpOpcode::ReduxMinSigned
        | WarpOpcode::ReduxMaxUnsigned
        | WarpOpcode::ReduxMaxSigned
        | WarpOpcode::ReduxAnd
        | WarpOpcode::ReduxOr
        | WarpOpcode::ReduxXor => {
            let values = group.threads().map(|t| source(columns, 0, t) as u32);
            let result = values.reduce(|a, b| combine(op.op, a, b)).unwrap_or(0);
            give(op, columns, group, u64::from(result), 0);
        }
        WarpOpcode::ActiveMask => give(op, columns, group, u64::from(group.lanes), 0),
        WarpOpcode::Sync => {}
    }
}

/// The same results for all lanes.
fn give(op: &WarpTable, columns: &mut ThreadColumns<'_>, group: &Group, value: u64, verdict: u64) {
    for thread in group.threads() {
        if let Some(result) = op.result {
            columns.set(result, thread, value);
        }
        if let Some(result) = op.result_pred {
            columns.set(result, thread, verdict);
        }
    }
}

fn combine(op: WarpOpcode, a: u32, b: u32) -> u32 {
    match op {
        WarpOpcode::ReduxAdd => a.wrapping_add(b),
        WarpOpcode::ReduxMinUnsigned => a.min(b),
        WarpOpcode::ReduxMinSigned => a.cast_signed().min(b.cast_signed()).cast_unsigned(),
        WarpOpcode::ReduxMaxUnsigned => a.max(b),
        WarpOpcode::ReduxMaxSigned => a.cast_signed().max(b.cast_signed()).cast_unsigned(),
        WarpOpcode::ReduxAnd => a & b,
        WarpOpcode::ReduxOr => a | b,
        _ => a ^ b,
    }
}

/// PTX ISA, "shfl.sync": its pseudocode, lane by lane. All values are read before any is written.
fn shuffle(op: &WarpTable, columns: &mut ThreadColumns<'_>, group: &Group) {
    let mut values = [0u64; WARP_SIZE];
    let mut sources = [(0usize, false); WARP_SIZE];
    for lane in group.lanes() {
        let thread = group.first + lane;
        let operand = |i: usize| op.sources.get(i).map_or(0, |s| columns.source(*s, thread));
        values[lane] = operand(0);
        let (b, c) = (operand(1) as i32 & 31, operand(2) as i32);
        let (clamp, segment) = (c & 31, c >> 8 & 31);
        let own = lane as i32;
        let last = (own & segment) | (clamp & !segment);
        let first = own & segment;
        let (from, in_range) = match op.op {
            WarpOpcode::ShflUp => (own - b, own - b >= last),
            WarpOpcode::ShflDown => (own + b, own + b <= last),
            WarpOpcode::ShflBfly => (own ^ b, own ^ b <= last),
            _ => {
                let from = first | (b & !segment);
                (from, from <= last)
            }
        };
        let from = usize::try_from(if in_range { from } else { own }).unwrap_or(lane) & 31;
        let from = if group.lanes >> from & 1 != 0 { from } else { lane };
        sources[lane] = (from, in_range);
    }
    for lane in group.lanes() {
        let thread = group.first + lane;
        let (from, in_range) = sources[lane];
        if let Some(result) = op.result {
            columns.set(result, thread, values[from]);
        }
        if let Some(result) = op.result_pred {
            columns.set(result, thread, u64::from(in_range));
        }
    }
}

fn find_matches(op: &WarpTable, columns: &mut ThreadColumns<'_>, group: &Group) {
    let width_mask = if op.value_bytes == 8 {
        u64::MAX
    } else {
        u64::from(u32::MAX)
    };
    let mut values = [0u64; WARP_SIZE];
    for lane in group.lanes() {
        values[lane] = op.sources.first().map_or(0, |s| columns.source(*s, group.first + lane)) & width_mask;
    }
    let equal_to = |lane: usize| {
        group
            .lanes()
            .filter(|&other| values[other] == values[lane])
            .fold(0u32, |mask, other| mask | 1 << other)
    };
    if op.op == WarpOpcode::MatchAll {
        let all_equal = group.lanes().all(|lane| equal_to(lane) == group.lanes);
        let mask = if all_equal { group.lanes } else { 0 };
        give(op, columns, group, u64::from(mask), u64::from(all_equal));
        return;
    }
    for lane in group.lanes() {
        if let Some(result) = op.result {
            columns.set(result, group.first + lane, u64::from(equal_to(lane)));
        }
    }
}

//! Warp-level operations, carried out on the saved registers of a warp's 32 threads (PTX ISA, "shfl.sync",
//! "vote.sync", "match.sync", "redux.sync", "activemask", "bar.warp.sync").
//!
//! An operation takes place when every lane of its member mask that has not finished waits at it. Lanes that have
//! finished are left out; a shuffle that reads from a lane that takes no part gets 0, as on an H200 (PTX: undefined).

use hetckpt_abi::cpu_tables::{Source, WarpOpcode, WarpTable};
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
}

/// One value for each lane.
type Lanes = [u64; WARP_SIZE];

/// Carries out what is complete in the warp of threads `first..end`; true if anything was.
pub fn advance(kernel: &CpuKernel, memory: &mut BlockMemory, first: usize, end: usize) -> bool {
    let points = &memory.points[first..end];
    let is_at = |point: u32| {
        points
            .iter()
            .enumerate()
            .fold(0u32, |mask, (lane, &p)| mask | u32::from(p == point) << lane)
    };
    let all = if points.len() >= WARP_SIZE {
        u32::MAX
    } else {
        (1 << points.len()) - 1
    };
    let running = all & !is_at(FINISHED);
    let mut left = running;
    let mut groups = [(0u32, 0u32); WARP_SIZE];
    let mut num_groups = 0;
    while left != 0 {
        let point = points[left.trailing_zeros() as usize];
        let here = is_at(point);
        groups[num_groups] = (point, here);
        num_groups += 1;
        left &= !here;
    }
    let mut advanced = false;
    for &(point, lanes) in &groups[..num_groups] {
        if let Waits::WarpOp(index) = kernel.waits(point) {
            advanced |= advance_at(&kernel.warp_ops()[index], memory, Group { first, lanes }, running);
        }
    }
    advanced
}

/// `waiting` are the lanes at `op`; those with the same member mask belong together.
fn advance_at(op: &WarpTable, memory: &mut BlockMemory, waiting: Group, running: u32) -> bool {
    let num_threads = memory.points.len();
    let mut columns = ThreadColumns::new(memory.registers.bytes_mut(), num_threads);
    let masks: Lanes = columns.source_many(op.mask, waiting.first);
    let mut left = waiting.lanes;
    let mut advanced = false;
    while left != 0 {
        let mask = masks[left.trailing_zeros() as usize] as u32;
        let mut together = left;
        if !matches!(op.mask, Source::Imm(_)) {
            let has_mask = |lane: usize| masks[lane] as u32 == mask;
            together &= (0..WARP_SIZE).fold(0, |lanes, lane| lanes | u32::from(has_mask(lane)) << lane);
        }
        left &= !together;
        let is_complete = op.op == WarpOpcode::ActiveMask || mask & running & !together == 0;
        if is_complete {
            let group = Group {
                first: waiting.first,
                lanes: together,
            };
            carry_out(op, &mut columns, &group);
            for lane in group.lanes() {
                memory.points[group.first + lane] = op.leave;
            }
            advanced = true;
        }
    }
    advanced
}

fn carry_out(op: &WarpTable, columns: &mut ThreadColumns<'_>, group: &Group) {
    let source = |columns: &ThreadColumns<'_>, index: usize| -> Lanes {
        op.sources
            .get(index)
            .map_or([0; WARP_SIZE], |s| columns.source_many(*s, group.first))
    };
    match op.op {
        WarpOpcode::ShflUp | WarpOpcode::ShflDown | WarpOpcode::ShflBfly | WarpOpcode::ShflIdx => {
            let operands = [source(columns, 0), source(columns, 1), source(columns, 2)];
            shuffle(op, columns, group, &operands);
        }
        WarpOpcode::VoteAll | WarpOpcode::VoteAny | WarpOpcode::VoteUni | WarpOpcode::VoteBallot => {
            let votes = source(columns, 0);
            let ballot =
                group.lanes & (0..WARP_SIZE).fold(0, |mask, lane| mask | u32::from(votes[lane] & 1 != 0) << lane);
            let verdict = match op.op {
                WarpOpcode::VoteAll => ballot == group.lanes,
                WarpOpcode::VoteAny => ballot != 0,
                _ => ballot == 0 || ballot == group.lanes,
            };
            give(op, columns, group, u64::from(ballot), u64::from(verdict));
        }
        WarpOpcode::MatchAny | WarpOpcode::MatchAll => {
            let values = source(columns, 0);
            find_matches(op, columns, group, &values);
        }
        WarpOpcode::ReduxAdd
        | WarpOpcode::ReduxMinUnsigned
        | WarpOpcode::ReduxMinSigned
        | WarpOpcode::ReduxMaxUnsigned
        | WarpOpcode::ReduxMaxSigned
        | WarpOpcode::ReduxAnd
        | WarpOpcode::ReduxOr
        | WarpOpcode::ReduxXor => {
            let values = source(columns, 0);
            let result = group
                .lanes()
                .map(|lane| values[lane] as u32)
                .reduce(|a, b| combine(op.op, a, b));
            give(op, columns, group, u64::from(result.unwrap_or(0)), 0);
        }
        WarpOpcode::ActiveMask => give(op, columns, group, u64::from(group.lanes), 0),
        WarpOpcode::Sync => {}
    }
}

/// The same results for all lanes.
fn give(op: &WarpTable, columns: &mut ThreadColumns<'_>, group: &Group, value: u64, verdict: u64) {
    give_each(op, columns, group, &[value; WARP_SIZE], &[verdict; WARP_SIZE]);
}

fn give_each(op: &WarpTable, columns: &mut ThreadColumns<'_>, group: &Group, values: &Lanes, verdicts: &Lanes) {
    if let Some(result) = op.result {
        columns.set_many(result, group.first, group.lanes, values);
    }
    if let Some(result) = op.result_pred {
        columns.set_many(result, group.first, group.lanes, verdicts);
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

/// PTX ISA, "shfl.sync": its pseudocode, lane by lane. `operands` are value, lane or delta, clamp and segment mask.
fn shuffle(op: &WarpTable, columns: &mut ThreadColumns<'_>, group: &Group, operands: &[Lanes; 3]) {
    let (mut values, mut in_range) = ([0; WARP_SIZE], [0; WARP_SIZE]);
    for lane in 0..WARP_SIZE {
        let (b, c) = (operands[1][lane] as i32 & 31, operands[2][lane] as i32);
        let (clamp, segment) = (c & 31, c >> 8 & 31);
        let own = lane as i32;
        let last = (own & segment) | (clamp & !segment);
        let (from, is_in_range) = match op.op {
            WarpOpcode::ShflUp => (own - b, own - b >= last),
            WarpOpcode::ShflDown => (own + b, own + b <= last),
            WarpOpcode::ShflBfly => (own ^ b, own ^ b <= last),
            _ => {
                let from = (own & segment) | (b & !segment);
                (from, from <= last)
            }
        };
        let from = if is_in_range { from as usize % WARP_SIZE } else { lane };
        if group.lanes >> from & 1 != 0 {
            values[lane] = operands[0][from];
        }
        in_range[lane] = u64::from(is_in_range);
    }
    give_each(op, columns, group, &values, &in_range);
}

fn find_matches(op: &WarpTable, columns: &mut ThreadColumns<'_>, group: &Group, values: &Lanes) {
    let width_mask = if op.value_bytes == 8 {
        u64::MAX
    } else {
        u64::from(u32::MAX)
    };
    let equal_to = |lane: usize| {
        let is_equal = |other: &usize| (values[*other] ^ values[lane]) & width_mask == 0;
        group
            .lanes()
            .filter(is_equal)
            .fold(0u32, |mask, other| mask | 1 << other)
    };
    if op.op == WarpOpcode::MatchAll {
        let all_equal = group.lanes().all(|lane| equal_to(lane) == group.lanes);
        let mask = if all_equal { group.lanes } else { 0 };
        give(op, columns, group, u64::from(mask), u64::from(all_equal));
        return;
    }
    let mut masks = [0; WARP_SIZE];
    for lane in group.lanes() {
        masks[lane] = u64::from(equal_to(lane));
    }
    give_each(op, columns, group, &masks, &[0; WARP_SIZE]);
}

//! Barriers, carried out on the saved registers (PTX ISA, "bar", "barrier").
//!
//! Threads that have finished count as arrived. Threads that wait at different barrier instructions with the same
//! number wait for each other.

use hetckpt_abi::cpu_tables::{Reduction, ReductionOp};
use hetckpt_abi::thread_state::FINISHED;

use super::context::BlockMemory;
use super::kernel::{CpuKernel, Waits};
use super::thread_columns::ThreadColumns;

/// Lets the threads of each complete barrier go on; true if there was one.
pub fn release(kernel: &CpuKernel, memory: &mut BlockMemory) -> bool {
    if let Some(released) = release_uniform(kernel, memory) {
        return released;
    }
    let mut released = false;
    let mut ids: Vec<u64> = waiting(kernel, memory).map(|(_, _, id)| id).collect();
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        released |= release_id(kernel, memory, id);
    }
    released
}

/// The usual case, without looking at each thread's operands: all threads wait at the same plain barrier.
fn release_uniform(kernel: &CpuKernel, memory: &mut BlockMemory) -> Option<bool> {
    let first = *memory.points.first()?;
    let Waits::Barrier(index) = kernel.waits(first) else {
        return None;
    };
    let barrier = &kernel.barriers()[index];
    if barrier.reduction.is_some() || barrier.count.is_some() || memory.points.iter().any(|&p| p != first) {
        return None;
    }
    memory.points.fill(barrier.leave);
    Some(true)
}

/// Threads that wait at barriers: thread, index of the barrier, its number.
fn waiting<'a>(kernel: &'a CpuKernel, memory: &'a mut BlockMemory) -> impl Iterator<Item = (usize, usize, u64)> + 'a {
    let columns = ThreadColumns::new(memory.registers.bytes_mut(), memory.points.len());
    memory.points.iter().enumerate().filter_map(move |(thread, &point)| {
        let Waits::Barrier(index) = kernel.waits(point) else {
            return None;
        };
        Some((thread, index, columns.source(kernel.barriers()[index].id, thread)))
    })
}

fn release_id(kernel: &CpuKernel, memory: &mut BlockMemory, id: u64) -> bool {
    let arrived: Vec<(usize, usize)> = waiting(kernel, memory)
        .filter(|w| w.2 == id)
        .map(|(thread, index, _)| (thread, index))
        .collect();
    let running = memory.points.iter().filter(|&&p| p != FINISHED).count();
    let Some(&(first_thread, first)) = arrived.first() else {
        return false;
    };
    let mut columns = ThreadColumns::new(memory.registers.bytes_mut(), memory.points.len());
    // With a count, as many threads as that, or all there are.
    let wanted = kernel.barriers()[first]
        .count
        .map(|count| columns.source(count, first_thread) as usize);
    if arrived.len() < wanted.unwrap_or(running).min(running) {
        return false;
    }
    for &(_, index) in &arrived {
        let Some(reduction) = kernel.barriers()[index].reduction else {
            continue;
        };
        // The instruction that a thread waits at says how to combine; all say the same.
        let value = reduce(kernel, &columns, &arrived, reduction.op);
        for &(thread, _) in arrived.iter().filter(|(_, i)| *i == index) {
            if let Some(result) = reduction.result {
                columns.set(result, thread, value);
            }
        }
    }
    for &(thread, index) in &arrived {
        memory.points[thread] = kernel.barriers()[index].leave;
    }
    true
}

fn reduce(kernel: &CpuKernel, columns: &ThreadColumns<'_>, arrived: &[(usize, usize)], op: ReductionOp) -> u64 {
    let mut votes = arrived.iter().filter_map(|&(thread, index)| {
        let Reduction { source, negated, .. } = kernel.barriers()[index].reduction?;
        Some((columns.get(source, thread) != 0) != negated)
    });
    match op {
        ReductionOp::And => u64::from(votes.all(|v| v)),
        ReductionOp::Or => u64::from(votes.any(|v| v)),
        ReductionOp::Popc => votes.filter(|&v| v).count() as u64,
    }
}

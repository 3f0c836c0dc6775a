//! Threads in step: those of a block that wait at such a place go on together, once no other can go on.

use super::context::BlockMemory;
use super::kernel::{CpuKernel, Waits};

/// True if a thread waits at one.
pub fn is_waited_at(kernel: &CpuKernel, memory: &BlockMemory) -> bool {
    let waits = |point: &u32| matches!(kernel.waits(*point), Waits::Step(_));
    !kernel.steps().is_empty() && memory.points.iter().any(waits)
}

/// Lets all of them go on; true if there are any.
pub fn release(kernel: &CpuKernel, memory: &mut BlockMemory) -> bool {
    if kernel.steps().is_empty() {
        return false;
    }
    memory.turns_at_steps = 0;
    let mut released = false;
    for point in &mut memory.points {
        if let Waits::Step(leave) = kernel.waits(*point) {
            *point = leave;
            released = true;
        }
    }
    released
}

//! Threads in step: those of a block that wait at such a place go on together, once no other can go on.

use super::context::BlockMemory;
use super::kernel::{CpuKernel, Waits};

/// Lets all of them go on; true if there are any.
pub fn release(kernel: &CpuKernel, memory: &mut BlockMemory) -> bool {
    if kernel.steps().is_empty() {
        return false;
    }
    let mut released = false;
    for point in &mut memory.points {
        if let Waits::Step(leave) = kernel.waits(*point) {
            *point = leave;
            released = true;
        }
    }
    released
}

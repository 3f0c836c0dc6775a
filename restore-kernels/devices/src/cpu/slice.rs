//! Time slices: a block that has run for long is interrupted, so that others can have its worker.
//!
//! Blocks may wait for one another (cooperative launches, flags in memory, kernels in other streams), and there are
//! more of them than workers. An interrupted block stops at its probes like a paused one, and goes on from there in its
//! next turn; that needs functions for all resume points, which are compiled, beside the running code, only when the
//! first slice ends. Kernels whose blocks are short never notice.

use std::thread;
use std::time::Duration;

use super::worker::WorkerState;

/// A block's turn.
const SLICE: Duration = Duration::from_millis(50);
/// How often turns are looked at.
const TICK: Duration = Duration::from_millis(10);

/// Watches the workers until `wait_busy`, which waits while nothing runs, says that the pool is shut down.
pub fn run(workers: &[WorkerState], wait_busy: impl Fn() -> Option<()>) {
    while wait_busy().is_some() {
        thread::sleep(TICK);
        let mut to_prepare = None;
        for worker in workers {
            worker.end_long_turn(SLICE, |launch| {
                let Some(kernel) = launch.kernel() else { return false };
                if kernel.wants_resumable() {
                    to_prepare = Some(launch.clone());
                }
                kernel.is_resumable()
            });
        }
        if let Some(kernel) = to_prepare.as_ref().and_then(|launch| launch.kernel()) {
            kernel.make_resumable();
        }
    }
}

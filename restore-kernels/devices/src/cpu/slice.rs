//! Time slices: a block that has run for long is interrupted, so that others can have its worker.
//!
//! Blocks may wait for one another (cooperative launches, flags in memory, kernels in other streams), and there are
//! more of them than workers. An interrupted block stops at its probes like a paused one, and goes on from there in its
//! next turn; that needs functions for all resume points, which are compiled, beside the running code, only when the
//! first slice ends. Kernels whose blocks are short never notice.

use std::thread;
use std::time::Duration;

use super::launch::CpuLaunch;
use super::worker::WorkerState;

/// Turns, and how often they are looked at.
#[derive(Clone, Copy)]
struct Turns {
    slice: Duration,
    tick: Duration,
}

/// Where nobody is known to wait.
const LONG: Turns = Turns {
    slice: Duration::from_millis(50),
    tick: Duration::from_millis(10),
};
/// Of cooperative launches with more blocks than workers: each barrier of the grid takes as many turns as there are
/// blocks for a worker.
const SHORT: Turns = Turns {
    slice: Duration::from_millis(1),
    tick: Duration::from_micros(500),
};

impl Turns {
    fn of(launch: &CpuLaunch, num_workers: usize) -> Self {
        if launch.is_cooperative && launch.num_blocks() > num_workers as u64 {
            SHORT
        } else {
            LONG
        }
    }
}

/// Watches the workers until `wait_busy`, which waits while nothing runs, says that the pool is shut down.
pub fn run(workers: &[WorkerState], wait_busy: impl Fn() -> Option<()>) {
    let mut tick = LONG.tick;
    while wait_busy().is_some() {
        thread::sleep(tick);
        tick = LONG.tick;
        let mut to_prepare = None;
        for worker in workers {
            let slice = |launch: &CpuLaunch| {
                let turns = Turns::of(launch, workers.len());
                tick = tick.min(turns.tick);
                turns.slice
            };
            worker.end_long_turn(slice, |launch| {
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

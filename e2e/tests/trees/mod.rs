//! Trees of processes: several that use the device, each with a server of its own; some that do not; some that come, go
//! or become other programs while the tree is dumped; and several trees at a time. With the real CRIU, on the devices
//! of `functional`.
//!
//! `HETCKPT_PREEMPTIONS` is the number of random dumps of each tree (2), `HETCKPT_SEED` repeats a run.

mod tree;
mod whole_trees;
mod coming_and_going;
mod one_process_fails;
mod at_the_same_time;

use hetckpt_e2e::runner::Test;

/// The tests.
pub fn tests() -> Vec<Test> {
    let mut tests = whole_trees::tests();
    tests.extend(coming_and_going::tests());
    tests.extend(one_process_fails::tests());
    tests.extend(at_the_same_time::tests());
    tests
}

/// `HETCKPT_PREEMPTIONS`, as for random preemptions of single programs.
fn num_dumps() -> u32 {
    let given = std::env::var("HETCKPT_PREEMPTIONS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(2)
}

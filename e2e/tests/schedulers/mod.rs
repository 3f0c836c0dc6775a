//! `hetckpt job` under real batch schedulers: a job is preempted in mid-kernel, goes on on another node and another
//! kind of device, and comes to its right end.

mod cluster;
mod slurm;
mod unscheduled;
mod mpi;
mod stores;

use hetckpt_e2e::runner::Test;

/// The tests.
pub fn tests() -> Vec<Test> {
    let mut tests = slurm::tests();
    tests.extend(unscheduled::tests());
    tests.extend(mpi::tests());
    tests.extend(stores::tests());
    tests
}

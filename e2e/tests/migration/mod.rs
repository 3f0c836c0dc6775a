//! `hetckpt migrate` and `hetckpt serve`: from this machine to another node ([`node::Node`]), over a network of two,
//! with real TLS, also where either end or the network between them breaks.

mod authority;
mod node;
mod source;
mod moves;
mod memory;
mod connections;
mod refusals;
mod strangers;
mod ends;
mod breaks;
mod matrix;

use hetckpt_e2e::installation::Requirement;
use hetckpt_e2e::runner::Test;

/// The tests.
pub fn tests() -> Vec<Test> {
    let mut tests = moves::tests();
    tests.extend(memory::tests());
    tests.extend(connections::tests());
    tests.extend(refusals::tests());
    tests.extend(strangers::tests());
    tests.extend(breaks::tests());
    tests.extend(matrix::tests());
    let on_nodes = |test: Test| test.also_needs(Requirement::Mounting);
    tests.into_iter().map(on_nodes).collect()
}

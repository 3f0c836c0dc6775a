//! Two nodes: a program is dumped on this machine and goes on on another one ([`node::Node`]), where neither the
//! program nor its libraries are.

mod node;
mod goes_on;
mod differences;
mod refusals;

use hetckpt_e2e::installation::Requirement;
use hetckpt_e2e::runner::Test;

/// The tests.
pub fn tests() -> Vec<Test> {
    let mut tests = goes_on::tests();
    tests.extend(differences::tests());
    tests.extend(refusals::tests());
    // Nodes are namespaces, which only root can make like that.
    let on_nodes = |test: Test| test.also_needs(Requirement::Mounting);
    tests.into_iter().map(on_nodes).collect()
}

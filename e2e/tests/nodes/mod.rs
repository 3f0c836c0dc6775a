//! Two nodes: a program is dumped on this machine and goes on on another one ([`node::Node`]), where neither the program nor its
//! libraries are.

mod node;
mod goes_on;
mod differences;
mod refusals;

use std::process::ExitCode;

use hetckpt_e2e::installation::Requirement;
use hetckpt_e2e::runner::{self, Test};

fn main() -> ExitCode {
    let mut tests = goes_on::tests();
    tests.extend(differences::tests());
    tests.extend(refusals::tests());
    // Nodes are namespaces, which only root can make like that.
    let on_nodes = |test: Test| test.also_needs(Requirement::Mounting);
    runner::main(tests.into_iter().map(on_nodes).collect())
}

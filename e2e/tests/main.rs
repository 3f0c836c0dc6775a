//! The end-to-end tests: one program, its suites one folder each.
//!
//! Run with parts of names as arguments: `functional::`, `preempt_scan`.

mod functional;
mod faults;
mod trees;
mod nodes;
mod migration;
mod schedulers;
mod trace;
mod soak;

use std::process::ExitCode;

use hetckpt_e2e::runner;

fn main() -> ExitCode {
    runner::main(vec![
        ("functional", functional::tests()),
        ("faults", faults::tests()),
        ("trees", trees::tests()),
        ("nodes", nodes::tests()),
        ("migration", migration::tests()),
        ("schedulers", schedulers::tests()),
        ("trace", trace::tests()),
        ("soak", soak::tests()),
    ])
}

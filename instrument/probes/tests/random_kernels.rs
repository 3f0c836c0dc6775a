//! Random structured kernels store the same before and after probing, whatever the probes' density and wherever they
//! stop.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use hetckpt_conformance::one_thread::{End, Stops, run};
use hetckpt_conformance::random_kernels;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::text::print;
use hetckpt_probes::check::check;
use hetckpt_probes::options::Options;
use hetckpt_probes::pipeline;
use proptest::prelude::*;

const EVENTS: usize = 400;

fn densities() -> [Options; 4] {
    let sparse = Options {
        max_unroll: 4,
        budget_insts: 40,
        max_chunk: 3,
        ..Options::default()
    };
    [Options::dense(1), Options::dense(7), sparse, Options::default()]
}

fn assert_same(kernel: &Kernel) {
    let before = run(kernel, &[], EVENTS, Stops::Never);
    for options in densities() {
        let (probed, report) = pipeline::run(kernel, &options).unwrap();
        hetckpt_ir::validate::probed_kernel(&probed).unwrap();
        check(kernel, &probed)
            .unwrap_or_else(|e| panic!("{e:?}\n{}\n{}", print::kernel(kernel), print::kernel(&probed)));
        for stops in [Stops::Never, Stops::Every(1), Stops::Every(3)] {
            let after = run(&probed, &[], EVENTS, stops);
            let n = before.trace.len().min(after.trace.len());
            assert_eq!(
                before.trace[..n],
                after.trace[..n],
                "{report}\n{}",
                print::kernel(&probed)
            );
            if before.end == End::Exit && after.end == End::Exit {
                assert_eq!(before.trace.len(), after.trace.len());
            }
            // Loops that store nothing may run on for as long as the evaluator lets them.
            assert!(after.end == before.end || after.trace.len() < EVENTS);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn store_what_they_stored(seed in any::<u64>()) {
        assert_same(&random_kernels::kernel(seed));
    }

    #[test]
    fn poll_before_the_budget_is_spent(seed in any::<u64>()) {
        const BUDGET: u32 = 200;
        let options = Options { budget_insts: BUDGET, max_chunk: 50, ..Options::default() };
        let kernel = random_kernels::kernel(seed);
        let (probed, report) = pipeline::run(&kernel, &options).unwrap();
        let size: usize = probed.blocks.iter().map(|b| b.insts.len() + 1).sum();
        let gap = run(&probed, &[], usize::MAX, Stops::Never).longest_gap;
        // A whole chunk may start on the last drop of fuel, and straight-line code burns none.
        let bound = 3 * BUDGET as usize + 2 * size;
        prop_assert!(gap <= bound, "{gap} > {bound}\n{report}\n{}", print::kernel(&probed));
    }
}

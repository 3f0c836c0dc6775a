//! Single instructions, barriers, warp-level operations and control flow on the CPU device against the reference
//! interpreter, as `opencl_device` and `gpu_results` have them elsewhere: with probes, through the device's own launch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod run;
mod litmus;

use run::{Cpu, QuickCpu};

hetckpt_conformance::tests!(
    Cpu,
    integer,
    float,
    directed,
    convert,
    modifiers,
    edges,
    predicate,
    memory,
    barriers_and_warps,
    arrivals,
    listed_forms,
    contended
);

mod quick {
    use super::QuickCpu;

    hetckpt_conformance::tests!(
        QuickCpu,
        integer,
        float,
        directed,
        convert,
        modifiers,
        edges,
        predicate,
        memory,
        barriers_and_warps,
        arrivals,
        listed_forms,
        contended
    );
}

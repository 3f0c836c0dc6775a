//! Generated OpenCL C, built and run by an OpenCL device, against the reference interpreter: instruction by
//! instruction, and the test programs' kernels. Skipped by name where there is no OpenCL device.
//!
//! `HETCKPT_TEST_OPENCL` picks another device than the first (`1:0`). With `HETCKPT_TEST_OPENCL_IL` set it is given
//! SPIR-V. With `HETCKPT_TEST_REQUIRE_OPENCL=1` tests fail where they would be skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::print_stderr, reason = "tests that are skipped say so")]

mod device;
mod run;
mod uniform_branches;
mod long_names;
mod approximations;
mod programs;

use run::FirstDevice;

hetckpt_conformance::tests!(
    FirstDevice,
    integer,
    float,
    directed,
    convert,
    modifiers,
    predicate,
    memory,
    barriers_and_warps,
    listed_forms,
    contended
);

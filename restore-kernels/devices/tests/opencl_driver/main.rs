//! OpenCL devices with programs written by hand as generated ones are. Where there is no OpenCL device the tests say so
//! and pass, or fail if `HETCKPT_TEST_REQUIRE_OPENCL` is 1 or one is named: `HETCKPT_TEST_OPENCL` picks another than
//! the first (`1:0`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests"
)]

mod fixture;
mod programs;
mod loading;
mod memory;
mod launching;
mod pausing;
mod slices;
mod litmus;

//! Generated OpenCL C: golden files, and every kernel there is through clang for several kinds of devices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "tests that are skipped say so")]

mod kernels;
mod golden;

mod compile;
mod spirv;
mod errors;
mod requirements;
mod vectors;

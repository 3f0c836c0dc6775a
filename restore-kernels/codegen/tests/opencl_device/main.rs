//! Generated OpenCL C, built and run by an OpenCL device, against the reference interpreter: instruction by
//! instruction, and the test programs' kernels. Skipped by name where there is no OpenCL device.
//!
//! `HETCKPT_TEST_OPENCL` picks another device than the first (`1:0`). With `HETCKPT_TEST_OPENCL_IL` set it is given
//! SPIR-V. With `HETCKPT_TEST_REQUIRE_OPENCL=1` tests fail where they would be skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::print_stderr, reason = "tests that are skipped say so")]

mod device;
mod run;
// The instruction tests are those of the CPU's generator.
#[path = "../../../codegen-llvm/tests/against_interpreter/bench.rs"]
mod bench;
#[path = "../../../codegen-llvm/tests/against_interpreter/operands.rs"]
mod operands;
#[path = "../../../codegen-llvm/tests/against_interpreter/integer.rs"]
mod integer;
#[path = "../../../codegen-llvm/tests/against_interpreter/float.rs"]
mod float;
#[path = "../../../codegen-llvm/tests/against_interpreter/directed.rs"]
mod directed;
#[path = "../../../codegen-llvm/tests/against_interpreter/convert.rs"]
mod convert;
#[path = "../../../codegen-llvm/tests/against_interpreter/modifiers.rs"]
mod modifiers;
#[path = "../../../codegen-llvm/tests/against_interpreter/predicate.rs"]
mod predicate;
#[path = "../../../codegen-llvm/tests/against_interpreter/memory.rs"]
mod memory;
mod meeting;
mod contended;
mod uniform_branches;
mod long_names;
mod approximations;
mod programs;

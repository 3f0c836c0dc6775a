//! Single instructions on a real NVIDIA GPU against the reference interpreter, on the operands with which the CPU's and
//! OpenCL's code is compared with it too.
//!
//! The GPU's results lie in `data`, so that no GPU is needed. `HETCKPT_TEST_CUDA=N` takes those of GPU `N` instead, and
//! `HETCKPT_RECORD=FOLDER` keeps them there: do that, with an empty `data` for the folder, where the instruction tests
//! have changed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod run;
mod recorded;
mod gpu;
// The instruction tests are those of the CPU's and the OpenCL C generator.
#[path = "../../../codegen-llvm/tests/against_interpreter/bench.rs"]
mod bench;
#[path = "../../../codegen-llvm/tests/against_interpreter/operands.rs"]
mod operands;
#[path = "../../../codegen-llvm/tests/against_interpreter/integer.rs"]
mod integer;
#[path = "../../../codegen-llvm/tests/against_interpreter/float.rs"]
mod float;
#[path = "../../../codegen-llvm/tests/against_interpreter/convert.rs"]
mod convert;
#[path = "../../../codegen-llvm/tests/against_interpreter/edges.rs"]
mod edges;
#[path = "../../../codegen-llvm/tests/against_interpreter/predicate.rs"]
mod predicate;
#[path = "../../../codegen-llvm/tests/against_interpreter/memory.rs"]
mod memory;
#[path = "../../../codegen/tests/opencl_device/meeting.rs"]
mod meeting;

//! Single instructions, barriers, warp-level operations and control flow on the CPU device against the reference
//! interpreter, as `opencl_device` and `gpu_results` have them elsewhere: with probes, through the device's own launch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod run;
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
#[path = "../../../codegen-llvm/tests/against_interpreter/edges.rs"]
mod edges;
#[path = "../../../codegen-llvm/tests/against_interpreter/predicate.rs"]
mod predicate;
#[path = "../../../codegen-llvm/tests/against_interpreter/memory.rs"]
mod memory;
#[path = "../../../codegen/tests/opencl_device/meeting.rs"]
mod meeting;
#[path = "../../../codegen/tests/opencl_device/contended.rs"]
mod contended;
mod litmus;

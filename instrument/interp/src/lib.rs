//! Reference interpreter of hetIR, for tests: slow and obvious.
//!
//! It runs a grid of a kernel, probed or not, thread by thread, with PTX's arithmetic and CUDA's rules for barriers and
//! warp-level operations. It can be paused at any probe and goes on from what it hands out then, so that it says what a
//! device's memory must be, whole and paused at each resume point in turn. It makes no attempt to be fast.

pub mod error;
pub mod memory;
pub mod launch;
pub mod cases;
mod integer;
mod float;
mod compare;
mod convert;
mod machine;

pub use error::Error;
pub use launch::{Launch, Options, Pause, Run, run};
pub use memory::GlobalMemory;

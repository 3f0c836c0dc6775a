//! Devices: what runs generated code and owns device memory. The only crate that calls a driver.

pub mod device;
pub mod error;
pub mod control;
pub mod cuda;
pub mod opencl;
pub mod cpu;

// Sizes and places on devices are `u64`, and cast where they lie in this process.
const _: () = assert!(usize::BITS == u64::BITS);

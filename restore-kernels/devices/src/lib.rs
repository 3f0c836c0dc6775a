//! Devices: what runs generated code and owns device memory. The only crate that calls a driver.

pub mod device;
pub mod error;
pub mod control;
pub mod cuda;
pub mod opencl;
pub mod cpu;

//! Which driver this library stands for.

/// The CUDA version this library says it is: serves runtimes 12.x and 13.x.
pub const DRIVER_VERSION: u32 = 13_000;

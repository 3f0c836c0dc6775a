//! What a stopped process is: the model that a snapshot keeps, and its binary schema.
//!
//! Pure data: no device, no CRIU, no files. The device server fills it from a paused device and rebuilds a process from
//! it; the command line shows its [`summary`]. The binary form is bincode 2 (little-endian, variable-length integers)
//! behind a fixed header, see [`codec`].

pub mod bounded;
mod budget;
pub mod allocation;
pub mod array;
pub mod codec;
pub mod command;
pub mod kernel_run;
pub mod memory_index;
pub mod module;
pub mod names;
pub mod native_code;
pub mod process;
pub mod queue;
pub mod summary;
pub mod thread;
pub mod virtual_device;

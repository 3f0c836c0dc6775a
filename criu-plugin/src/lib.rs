//! `hetgpu_plugin.so`: through it a plain `criu dump` and `criu restore` capture and rebuild device state.
//!
//! CRIU calls the hooks (`hooks.rs`); each asks the device server of the process (`client.rs`). The plugin decides
//! nothing, keeps no state that a killed CRIU could take with it, and answers `-ENOTSUP` for every process and socket
//! that is not ours.

pub mod abi;
mod error;
mod guard;
mod go_ahead;
mod log;
mod host;
mod hooks;
mod client;
mod user;
mod eventfds;
mod threads;
mod restore;

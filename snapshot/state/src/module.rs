//! Modules that the process loaded.

use bincode::{Decode, Encode};

/// A loaded module.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ModuleState {
    /// Handle, as the process uses it.
    pub id: u64,
    /// The PTX chosen from the program.
    pub ptx: String,
    /// Its variables.
    pub globals: Vec<GlobalState>,
    /// Kernels the process has asked for.
    pub kernels: Vec<KernelHandle>,
}

/// A module variable.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct GlobalState {
    /// Mangled name.
    pub name: String,
    /// Device address.
    pub addr: u64,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// A kernel of a module as the process knows it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct KernelHandle {
    /// Handle.
    pub id: u64,
    /// Mangled name.
    pub name: String,
    /// Largest dynamic shared memory the process has asked for.
    pub max_dynamic_shared_bytes: u32,
}

//! Modules that the process loaded.

use crate::budget::decode_fields;
use bincode::Encode;

/// A loaded module.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct ModuleState {
    /// Handle, as the process uses it.
    pub id: u64,
    /// Index of its device.
    pub device: u32,
    /// The PTX texts chosen from the program; several for a device-linked one.
    pub ptx: Vec<String>,
    /// Images of kernels that are run as they came; the module can be restored only where they run.
    pub machine_code: Vec<Vec<u8>>,
    /// Its variables.
    pub globals: Vec<GlobalState>,
    /// Mangled names of its kernels; the process knows a kernel by its place in this list.
    pub kernels: Vec<String>,
}

decode_fields!(ModuleState {
    id: value,
    device: value,
    ptx: texts,
    machine_code: byte_lists,
    globals: list,
    kernels: texts,
});

/// A module variable.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct GlobalState {
    /// Mangled name.
    pub name: String,
    /// Device address.
    pub addr: u64,
    /// Size in bytes.
    pub size_bytes: u64,
}

decode_fields!(GlobalState {
    name: text,
    addr: value,
    size_bytes: value,
});

/// A module variable that the device has placed, in what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct PlacedVariable {
    /// Handle of its module, whose [`ModuleState::globals`] have its address.
    pub module: u64,
    /// Mangled name.
    pub name: String,
    /// Device memory seems to hold its address, or one inside of it: it must lie there again.
    pub is_pointed_at: bool,
    /// Content.
    pub bytes: Vec<u8>,
}

decode_fields!(PlacedVariable {
    module: value,
    name: text,
    is_pointed_at: value,
    bytes: bytes,
});

/// A part of a module that the process is still sending.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct ArrivingPart {
    /// Handle of the module.
    pub module: u64,
    /// Number of the part.
    pub part: u32,
    /// What has come so far.
    pub bytes: Vec<u8>,
}

decode_fields!(ArrivingPart {
    module: value,
    part: value,
    bytes: bytes,
});

//! CRIU's plugin interface, version 2, as its documentation describes it and as 4.1 to newer trees were seen to use it.

#![allow(
    unsafe_code,
    reason = "an exported symbol, and function pointers in a table that CRIU reads"
)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use hetckpt_ring::version::{PART_VERSION_BYTES, part_version};

use crate::hooks;

/// Number of hooks of the interface that this plugin knows. CRIU refuses a plugin that names more than it has itself;
/// 12 loads in 4.1 and everything since.
const MAX_HOOKS: c_uint = 12;
/// Version 0.2.0 of the interface.
const INTERFACE_VERSION: c_uint = 0x200;
/// Slots in the table; those past [`MAX_HOOKS`] stay empty.
const NUM_SLOTS: usize = 15;

/// Hook numbers.
mod hook {
    pub const DUMP_UNIX_SK: usize = 0;
    pub const RESTORE_UNIX_SK: usize = 1;
    pub const RESTORE_EXT_FILE: usize = 3;
    pub const RESUME_DEVICES_LATE: usize = 9;
    pub const PAUSE_DEVICES: usize = 10;
    pub const CHECKPOINT_DEVICES: usize = 11;
}

/// The descriptor that CRIU looks up by name.
#[repr(C)]
pub struct Descriptor {
    name: *const c_char,
    init: extern "C" fn(stage: c_int) -> c_int,
    exit: extern "C" fn(stage: c_int, result: c_int),
    version: c_uint,
    max_hooks: c_uint,
    hooks: [*const c_void; NUM_SLOTS],
}

const _: () = assert!(
    size_of::<Descriptor>() == 32 + NUM_SLOTS * 8,
    "CRIU expects this layout"
);

// SAFETY: the descriptor and all it points to are constant.
unsafe impl Sync for Descriptor {}

/// What `hetckpt doctor` compares with its own version.
#[unsafe(no_mangle)]
pub static HETCKPT_VERSION: [u8; PART_VERSION_BYTES] = part_version(env!("CARGO_PKG_VERSION"));

/// The plugin, as CRIU finds it.
#[unsafe(no_mangle)]
pub static CR_PLUGIN_DESC: Descriptor = Descriptor {
    name: c"hetgpu".as_ptr(),
    init: hooks::init,
    exit: hooks::exit,
    version: INTERFACE_VERSION,
    max_hooks: MAX_HOOKS,
    hooks: {
        let mut hooks = [std::ptr::null(); NUM_SLOTS];
        hooks[hook::DUMP_UNIX_SK] = hooks::dump_unix_sk as *const c_void;
        hooks[hook::RESTORE_UNIX_SK] = hooks::restore_unix_sk as *const c_void;
        hooks[hook::RESTORE_EXT_FILE] = hooks::restore_ext_file as *const c_void;
        hooks[hook::RESUME_DEVICES_LATE] = hooks::resume_devices_late as *const c_void;
        hooks[hook::PAUSE_DEVICES] = hooks::pause_devices as *const c_void;
        hooks[hook::CHECKPOINT_DEVICES] = hooks::checkpoint_devices as *const c_void;
        hooks
    },
};

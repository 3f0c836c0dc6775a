//! How the loader finds the platform: the three functions that are exported by name.
#![allow(unsafe_code, reason = "the functions' names are the interface")]

use std::ffi::c_void;

use crate::dispatch_table::{self, Entry, Lookups, NUM_ENTRIES};
use crate::guard;
use crate::handles::{self, Handle};
use crate::platform;
use crate::pointers::{Out, Text};
use crate::status::Status;

static DISPATCH_TABLE: [Entry; NUM_ENTRIES] = dispatch_table::table(Lookups {
    by_name: clGetExtensionFunctionAddress as *const c_void,
    by_platform: clGetExtensionFunctionAddressForPlatform as *const c_void,
});

/// The function of an extension, or of the loader's interface; NULL if there is none of that name.
#[unsafe(no_mangle)]
pub extern "C" fn clGetExtensionFunctionAddress(name: Text) -> usize {
    handles::set_dispatch_table(&DISPATCH_TABLE);
    let found = guard::run("clGetExtensionFunctionAddress", || {
        let function = match &*name.bytes()? {
            b"clIcdGetPlatformIDsKHR" => clIcdGetPlatformIDsKHR as *const (),
            b"clGetPlatformInfo" => clGetPlatformInfo as *const (),
            _ => return Ok(0),
        };
        Ok(function.expose_provenance())
    });
    found.unwrap_or(0)
}

/// The same, asked of a platform.
#[allow(non_snake_case, reason = "OpenCL's name")]
pub extern "C" fn clGetExtensionFunctionAddressForPlatform(platform: Handle, name: Text) -> usize {
    match platform::check(platform) {
        Ok(()) => clGetExtensionFunctionAddress(name),
        Err(_) => 0,
    }
}

/// The platforms of this library.
#[unsafe(no_mangle)]
pub extern "C" fn clIcdGetPlatformIDsKHR(room: u32, platforms: Out<Handle>, count: Out<u32>) -> Status {
    handles::set_dispatch_table(&DISPATCH_TABLE);
    guard::status("clIcdGetPlatformIDsKHR", || platform::ids(room, platforms, count))
}

/// The loader asks before it knows of a dispatch table.
#[unsafe(no_mangle)]
pub extern "C" fn clGetPlatformInfo(
    platform: Handle,
    name: u32,
    room: usize,
    value: Out<u8>,
    size: Out<usize>,
) -> Status {
    handles::set_dispatch_table(&DISPATCH_TABLE);
    platform::clGetPlatformInfo(platform, name, room, value, size)
}

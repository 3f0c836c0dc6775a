//! How the loader finds the platform: the three functions that are exported by name.
#![allow(unsafe_code, reason = "the functions' names are the interface")]

use crate::guard;
use crate::handles::Handle;
use crate::platform;
use crate::pointers::{Out, Text};
use crate::status::Status;

/// The function of an extension, or of the loader's interface; NULL if there is none of that name.
#[unsafe(no_mangle)]
pub extern "C" fn clGetExtensionFunctionAddress(name: Text) -> usize {
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
    platform::clGetPlatformInfo(platform, name, room, value, size)
}

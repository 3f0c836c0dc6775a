//! CRIU's own functions that plugins may call, looked up at run time so that the plugin loads outside CRIU too.

#![allow(unsafe_code, reason = "functions of the program that loaded us, found by name")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::fd::RawFd;
use std::path::PathBuf;

use crate::error::PluginError;

/// Name of the plugin in an image's inventory.
const NAME: &CStr = c"hetgpu";

fn lookup(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: dlsym with the default handle and a terminated name has no other precondition.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// Directory of the images, as a path that other processes can open.
pub fn image_dir() -> Result<PathBuf, PluginError> {
    let fd = image_dir_fd()?;
    std::fs::read_link(format!("/proc/self/fd/{fd}")).map_err(PluginError::UnknownImageDir)
}

/// CRIU's descriptor of the image directory.
pub fn image_dir_fd() -> Result<RawFd, PluginError> {
    let address = lookup(c"criu_get_image_dir").ok_or(PluginError::NotInCriu)?;
    // SAFETY: CRIU's plugin interface declares `int criu_get_image_dir(void)`.
    let get: extern "C" fn() -> c_int = unsafe { std::mem::transmute(address) };
    match get() {
        fd if fd >= 0 => Ok(fd),
        code => Err(PluginError::NoImageDir { code }),
    }
}

/// Notes in the inventory that the images need this plugin. CRIU before 4.1 has no inventory of plugins.
pub fn add_to_inventory() -> Result<(), PluginError> {
    let Some(address) = lookup(c"add_inventory_plugin") else {
        return Ok(());
    };
    // SAFETY: CRIU declares `int add_inventory_plugin(const char *name)`.
    let add: extern "C" fn(*const c_char) -> c_int = unsafe { std::mem::transmute(address) };
    match add(NAME.as_ptr()) {
        0 => Ok(()),
        code => Err(PluginError::InventoryRefused { code }),
    }
}

/// Claims the inventory entry; false if the images have none.
pub fn claim_inventory() -> bool {
    let Some(address) = lookup(c"check_and_remove_inventory_plugin") else {
        return true;
    };
    // SAFETY: CRIU declares `bool check_and_remove_inventory_plugin(const char *name, size_t n)`.
    let claim: extern "C" fn(*const c_char, usize) -> bool = unsafe { std::mem::transmute(address) };
    claim(NAME.as_ptr(), NAME.count_bytes())
}

/// Writes to CRIU's log; to stderr where there is none. Levels: 1 error, 2 warning, 3 info, 4 debug.
pub fn print_on_level(level: c_uint, text: &str) {
    let Ok(text) = CString::new(text.replace('\0', "?")) else {
        return;
    };
    let Some(address) = lookup(c"print_on_level") else {
        eprintln!("{}", text.to_string_lossy().trim_end());
        return;
    };
    // SAFETY: CRIU declares `void print_on_level(unsigned int level, const char *format, ...)`.
    let print: unsafe extern "C" fn(c_uint, *const c_char, ...) = unsafe { std::mem::transmute(address) };
    // SAFETY: the format takes exactly one string, which is given and terminated.
    unsafe { print(level, c"%s".as_ptr(), text.as_ptr()) };
}

/// The plugin's own file.
pub fn own_path() -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: an all-zero Dl_info is valid: it holds pointers only.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address lies in this library, and `info` is writable.
    let found = unsafe { libc::dladdr(own_path as *const c_void, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gives the terminated name of a library that stays loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
}

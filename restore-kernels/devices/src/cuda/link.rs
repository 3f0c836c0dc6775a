//! The driver's linker.
#![allow(unsafe_code, reason = "driver FFI")]

use std::ffi::{CStr, c_void};

use cudarc::driver::sys::{self, CUjit_option, CUjitInputType, CUlinkState};

use super::driver::{DriverError, Result, check};

const LOG_BYTES: usize = 16 * 1024;

/// A linking that has begun; it owns what it has made.
struct Linking(CUlinkState);

impl Drop for Linking {
    fn drop(&mut self) {
        // SAFETY: made by `cuLinkCreate`, and gone with this.
        let _ = check("cuLinkDestroy", unsafe { sys::cuLinkDestroy(self.0) });
    }
}

/// Links images, each a fatbin, a cubin or PTX, into a cubin.
///
/// # Errors
/// The failed call and the linker's log.
pub(super) fn link(images: &[&[u8]]) -> std::result::Result<Vec<u8>, (DriverError, String)> {
    let mut log = vec![0u8; LOG_BYTES];
    let mut options = [
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), LOG_BYTES as *mut c_void];
    let mut state = std::ptr::null_mut();
    // SAFETY: as many options and values as said, and a place for a handle; the log and both lists outlive the linking.
    let created = unsafe { sys::cuLinkCreate_v2(2, options.as_mut_ptr(), values.as_mut_ptr(), &raw mut state) };
    let linked = check("cuLinkCreate", created).and_then(|()| complete(&Linking(state), images));
    linked.map_err(|error| {
        let text = CStr::from_bytes_until_nul(&log).map(|text| text.to_string_lossy().trim().to_owned());
        (error, text.unwrap_or_default())
    })
}

fn complete(linking: &Linking, images: &[&[u8]]) -> Result<Vec<u8>> {
    for image in images {
        let kind = if image.starts_with(b"\x7fELF") {
            CUjitInputType::CU_JIT_INPUT_CUBIN
        } else if image.first().is_some_and(|byte| byte.is_ascii()) {
            CUjitInputType::CU_JIT_INPUT_PTX
        } else {
            CUjitInputType::CU_JIT_INPUT_FATBINARY
        };
        // Text ends with 0.
        let mut image = [image, &[0][..]].concat();
        let (data, size, none) = (image.as_mut_ptr().cast(), image.len(), std::ptr::null_mut());
        // SAFETY: a linking that lives, and as many bytes as said, which the driver reads before it returns; no
        // options.
        check("cuLinkAddData", unsafe {
            sys::cuLinkAddData_v2(linking.0, kind, data, size, c"".as_ptr(), 0, none, none.cast())
        })?;
    }
    let (mut cubin, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: places for a pointer and a number.
    check("cuLinkComplete", unsafe {
        sys::cuLinkComplete(linking.0, &raw mut cubin, &raw mut size)
    })?;
    // SAFETY: the driver keeps so many bytes there until the linking is destroyed.
    Ok(unsafe { std::slice::from_raw_parts(cubin.cast::<u8>(), size) }.to_vec())
}

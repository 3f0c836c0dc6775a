//! Texts of the caller's, and to it.

use std::ffi::{CStr, c_char};

use crate::result::{NvmlReturn, Outcome};

/// A place for a text, of a length that the caller says.
#[repr(transparent)]
pub struct Place(*mut c_char);

impl Place {
    /// Writes a text and a final zero.
    pub fn set(self, text: &str, length: u32) -> Outcome {
        if self.0.is_null() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        if text.len() >= length as usize {
            return Err(NvmlReturn::INSUFFICIENT_SIZE);
        }
        for (at, byte) in text.bytes().chain([0]).enumerate() {
            // SAFETY: the caller's place is as long as it says, and the text fits.
            unsafe { self.0.wrapping_add(at).write(byte.cast_signed()) };
        }
        Ok(())
    }
}

/// A text of the caller's.
#[repr(transparent)]
pub struct Given(*const c_char);

impl Given {
    pub fn get(&self) -> Outcome<&str> {
        if self.0.is_null() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        // SAFETY: NVML asks its callers for a C string.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| NvmlReturn::INVALID_ARGUMENT)
    }
}

/// The text in a fixed field, with zeros behind it.
pub fn field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (place, byte) in field.iter_mut().zip(text.bytes()).take(N.saturating_sub(1)) {
        *place = byte.cast_signed();
    }
    field
}

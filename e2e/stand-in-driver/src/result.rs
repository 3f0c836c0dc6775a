//! Results of calls.

use std::ffi::{CStr, c_char};

pub const SUCCESS: u32 = 0;
pub const INVALID_VALUE: u32 = 1;
pub const OUT_OF_MEMORY: u32 = 2;
pub const NO_BINARY_FOR_GPU: u32 = 209;
pub const NOT_FOUND: u32 = 500;
pub const INVALID_CLUSTER_SIZE: u32 = 912;

/// Writes an answer where the caller wants it.
pub fn put<T>(place: Option<&mut T>, value: T) -> u32 {
    match place {
        Some(place) => {
            *place = value;
            SUCCESS
        }
        None => INVALID_VALUE,
    }
}

/// A C string, for as long as the process.
pub struct Text(&'static CStr);

impl Text {
    pub const fn new(text: &'static CStr) -> Self {
        Self(text)
    }

    pub fn pointer(&self) -> *const c_char {
        self.0.as_ptr()
    }
}

const NAME: Text = Text::new(c"CUDA_ERROR");
const TEXT: Text = Text::new(c"as the stand-in says");

driver_api! {
    fn cuGetErrorName(_code: u32, name: Option<&mut *const c_char>) {
        put(name, NAME.pointer())
    }
    fn cuGetErrorString(_code: u32, text: Option<&mut *const c_char>) {
        put(text, TEXT.pointer())
    }
}

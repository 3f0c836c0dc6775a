//! Results of calls.

use std::ffi::{CStr, c_char};

/// `nvmlReturn_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct NvmlReturn(u32);

impl NvmlReturn {
    pub const SUCCESS: Self = Self(0);
    pub const INVALID_ARGUMENT: Self = Self(2);
    pub const NOT_SUPPORTED: Self = Self(3);
    pub const NOT_FOUND: Self = Self(6);
    pub const INSUFFICIENT_SIZE: Self = Self(7);
    pub const DRIVER_NOT_LOADED: Self = Self(9);
    pub const UNKNOWN: Self = Self(999);

    fn text(self) -> &'static CStr {
        match self {
            Self::SUCCESS => c"Success",
            Self::INVALID_ARGUMENT => c"Invalid Argument",
            Self::NOT_SUPPORTED => c"Not Supported",
            Self::NOT_FOUND => c"Not Found",
            Self::INSUFFICIENT_SIZE => c"Insufficient Size",
            Self::DRIVER_NOT_LOADED => c"Driver Not Loaded",
            _ => c"Unknown Error",
        }
    }
}

/// Success, or why not.
pub type Outcome<T = ()> = Result<T, NvmlReturn>;

/// What a function returns.
pub fn flat(outcome: Outcome) -> NvmlReturn {
    outcome.err().unwrap_or(NvmlReturn::SUCCESS)
}

/// Writes an answer where the caller wants it.
pub fn put<T>(place: Option<&mut T>, value: T) -> Outcome {
    *place.ok_or(NvmlReturn::INVALID_ARGUMENT)? = value;
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: NvmlReturn) -> *const c_char {
    result.text().as_ptr()
}

//! A call that OpenCL refused.

use opencl3::error_codes::{
    CL_INVALID_BUFFER_SIZE, CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES, ClError,
    DLOPEN_RUNTIME_LOAD_FAILED,
};

use crate::error::DeviceError;

/// The call and its error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClFailure {
    pub call: &'static str,
    pub code: i32,
}

pub(super) type Result<T> = std::result::Result<T, ClFailure>;

impl ClFailure {
    /// True if less might have been granted.
    pub fn is_lack_of_memory(&self) -> bool {
        matches!(
            self.code,
            CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_RESOURCES | CL_OUT_OF_HOST_MEMORY | CL_INVALID_BUFFER_SIZE
        )
    }

    /// The error's name and number.
    pub fn reason(&self) -> String {
        match self.code {
            DLOPEN_RUNTIME_LOAD_FAILED => {
                "no OpenCL library (libOpenCL.so.1, or what OPENCL_DYLIB_PATH names) can be loaded".into()
            }
            code => name_of(code),
        }
    }
}

impl std::fmt::Display for ClFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.call, self.reason())
    }
}

impl std::error::Error for ClFailure {}

/// Name and number of an error code.
pub(super) fn name_of(code: i32) -> String {
    format!("{} ({code})", ClError(code))
}

impl From<ClFailure> for DeviceError {
    fn from(failure: ClFailure) -> Self {
        Self::Driver {
            call: failure.call,
            reason: failure.reason(),
        }
    }
}

/// Names the call in an error.
pub(super) trait Named<T> {
    fn named(self, call: &'static str) -> Result<T>;
}

impl<T> Named<T> for std::result::Result<T, i32> {
    fn named(self, call: &'static str) -> Result<T> {
        self.map_err(|code| ClFailure { call, code })
    }
}

//! Why a module is not loaded.

use hetckpt_devices::error::DeviceError;
use hetckpt_ring::reply::ManagedVariable;

use crate::cuda_result;
use crate::kernel_names;

/// A module that could not be loaded.
#[derive(Debug)]
pub struct LoadFailure {
    /// CUresult.
    pub result: u32,
    /// Why, for the program's log buffer.
    pub log: String,
}

impl LoadFailure {
    /// With a CUresult, and why.
    pub fn new(result: u32, log: impl ToString) -> Self {
        Self {
            result,
            log: log.to_string(),
        }
    }

    /// With names of kernels that cannot be had therefore.
    #[must_use]
    pub fn naming(mut self, parts: &[Vec<u8>]) -> Self {
        let kernels = kernel_names::describe(parts);
        if !kernels.is_empty() {
            self.log = format!("{}; {kernels}", self.log);
        }
        self
    }
}

impl From<DeviceError> for LoadFailure {
    fn from(error: DeviceError) -> Self {
        Self::new(cuda_result::of_device_error(&error), error)
    }
}

/// Why a module is not loaded.
#[derive(Debug)]
pub enum NotLoaded {
    /// It cannot be.
    Failed(LoadFailure),
    /// The application is to say first where these variables lie, in managed memory. There may be more of them.
    Unplaced(Vec<ManagedVariable>),
}

impl<E: Into<LoadFailure>> From<E> for NotLoaded {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

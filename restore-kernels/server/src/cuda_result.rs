//! The CUresults that the server gives to its application.

use hetckpt_devices::error::DeviceError;

/// `CUDA_SUCCESS`.
pub const SUCCESS: u32 = 0;
/// `CUDA_ERROR_INVALID_VALUE`.
pub const INVALID_VALUE: u32 = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_INVALID_DEVICE`.
pub const INVALID_DEVICE: u32 = 101;
/// `CUDA_ERROR_INVALID_IMAGE`.
pub const INVALID_IMAGE: u32 = 200;
/// `CUDA_ERROR_NO_BINARY_FOR_GPU`.
pub const NO_BINARY_FOR_GPU: u32 = 209;
/// `CUDA_ERROR_INVALID_PTX`.
pub const INVALID_PTX: u32 = 218;
/// `CUDA_ERROR_INVALID_HANDLE`.
pub const INVALID_HANDLE: u32 = 400;
/// `CUDA_ERROR_NOT_FOUND`.
pub const NOT_FOUND: u32 = 500;
/// `CUDA_ERROR_NOT_READY`.
pub const NOT_READY: u32 = 600;
/// `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`.
pub const LAUNCH_OUT_OF_RESOURCES: u32 = 701;
/// `CUDA_ERROR_ASSERT`.
pub const ASSERT: u32 = 710;
/// `CUDA_ERROR_LAUNCH_FAILED`.
pub const LAUNCH_FAILED: u32 = 719;
/// `CUDA_ERROR_NOT_SUPPORTED`.
pub const NOT_SUPPORTED: u32 = 801;
/// `CUDA_ERROR_UNKNOWN`.
pub const UNKNOWN: u32 = 999;

/// What the application is told of a device's failure.
#[must_use]
pub fn of_device_error(error: &DeviceError) -> u32 {
    match error {
        DeviceError::NotPresent { .. } | DeviceError::Unusable { .. } | DeviceError::Driver { .. } => UNKNOWN,
        DeviceError::OutOfMemory { .. } => OUT_OF_MEMORY,
        DeviceError::Map { .. } => INVALID_VALUE,
        DeviceError::Build { .. } | DeviceError::NotBuilt(_) => INVALID_PTX,
        DeviceError::Launch { .. } => LAUNCH_OUT_OF_RESOURCES,
        DeviceError::Fault { cuda_result, .. } | DeviceError::Refused { cuda_result, .. } => *cuda_result,
    }
}

//! The library itself, and the driver.

use crate::cuda;
use crate::result::{NvmlReturn, flat, put};
use crate::text::Place;

/// The driver whose calls our CUDA library has (13.0).
const DRIVER: &str = "580.0";
const NVML: &str = "13.580.0";

fn cuda_version(version: Option<&mut i32>) -> NvmlReturn {
    flat(cuda::get().and_then(|cuda| put(version, cuda.version()?)))
}

nvml! {
    fn nvmlInit() {
        NvmlReturn::SUCCESS
    }
    fn nvmlInit_v2() {
        NvmlReturn::SUCCESS
    }
    fn nvmlInitWithFlags(_flags: u32) {
        NvmlReturn::SUCCESS
    }
    fn nvmlShutdown() {
        NvmlReturn::SUCCESS
    }
    fn nvmlSystemGetDriverVersion(version: Place, length: u32) {
        flat(version.set(DRIVER, length))
    }
    fn nvmlSystemGetNVMLVersion(version: Place, length: u32) {
        flat(version.set(NVML, length))
    }
    fn nvmlSystemGetCudaDriverVersion(version: Option<&mut i32>) {
        cuda_version(version)
    }
    fn nvmlSystemGetCudaDriverVersion_v2(version: Option<&mut i32>) {
        cuda_version(version)
    }
}

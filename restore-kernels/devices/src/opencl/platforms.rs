//! The devices of this machine, by the numbers of their platform and of the device in it.

use opencl3::device as device_api;
use opencl3::error_codes::{CL_DEVICE_NOT_FOUND, CL_PLATFORM_NOT_FOUND_KHR};
use opencl3::platform::platform as platform_api;
use opencl3::types::cl_platform_id;
use parking_lot::Mutex;

use super::arena::most_bytes;
use super::capabilities::OpenClCapabilities;
use super::failure::{ClFailure, Named as _, Result};
use super::handles::{DeviceId, number};
use crate::device::DeviceDescription;
use crate::error::DeviceError;

/// More than a CUDA device allows is offered to no program.
const MAX_THREADS_PER_BLOCK: u64 = 1024;

/// What OpenCL offers on this machine.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The devices, and what they have beyond the core.
    pub devices: Vec<(DeviceDescription, OpenClCapabilities)>,
    /// Platforms that do not tell their devices.
    pub failed: Vec<FailedPlatform>,
}

/// A platform that does not tell its devices. It keeps its number, so that those of others do not depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPlatform {
    /// `opencl:PLATFORM`.
    pub id: String,
    /// What it calls itself; empty if it does not say.
    pub name: String,
    /// The call that failed, and how.
    pub reason: String,
}

/// Describes all OpenCL devices of this machine, without using any.
///
/// # Errors
/// [`DeviceError::NotPresent`] if there is no OpenCL library or it knows no platform.
pub fn list() -> std::result::Result<Listing, DeviceError> {
    let mut all = Listing::default();
    for (p, platform) in (0..).zip(platforms("opencl")?) {
        match devices_of(platform) {
            Ok(devices) => all.devices.extend(
                (0..)
                    .zip(devices)
                    .map(|(d, device)| (describe(p, d, device), OpenClCapabilities::of(device))),
            ),
            Err(error) => all.failed.push(FailedPlatform {
                id: format!("opencl:{p}"),
                name: name_of(platform),
                reason: error.to_string(),
            }),
        }
    }
    Ok(all)
}

/// Device `device` of platform `platform`.
pub(super) fn find(platform: u32, device: u32) -> std::result::Result<DeviceId, DeviceError> {
    let name = id(platform, device);
    let platforms = platforms(&name)?;
    let missing = |count: usize, what: &str| DeviceError::NotPresent {
        device: name.clone(),
        reason: format!("there are {count} {what}"),
    };
    let found = platforms
        .get(platform as usize)
        .ok_or_else(|| missing(platforms.len(), "OpenCL platform(s)"))?;
    let devices = devices_of(*found).map_err(|e| absent(&name, e))?;
    devices
        .get(device as usize)
        .copied()
        .ok_or_else(|| missing(devices.len(), "device(s) of this platform"))
}

fn platforms(device: &str) -> std::result::Result<Vec<cl_platform_id>, DeviceError> {
    match platform_api::get_platform_ids() {
        Ok(ids) => Ok(ids),
        Err(CL_PLATFORM_NOT_FOUND_KHR) => Err(DeviceError::NotPresent {
            device: device.to_owned(),
            reason: "the OpenCL library knows no platform (none is named in /etc/OpenCL/vendors)".into(),
        }),
        Err(code) => Err(absent(
            device,
            ClFailure {
                call: "clGetPlatformIDs",
                code,
            },
        )),
    }
}

fn absent(device: &str, failure: ClFailure) -> DeviceError {
    DeviceError::NotPresent {
        device: device.to_owned(),
        reason: failure.to_string(),
    }
}

fn devices_of(platform: cl_platform_id) -> Result<Vec<DeviceId>> {
    // PoCL begins with the first call, and does not bear a second meanwhile.
    static STARTING: Mutex<()> = Mutex::new(());
    let _starting = STARTING.lock();
    match device_api::get_device_ids(platform, device_api::CL_DEVICE_TYPE_ALL) {
        Err(CL_DEVICE_NOT_FOUND) => Ok(Vec::new()),
        ids => Ok(ids.named("clGetDeviceIDs")?.into_iter().map(DeviceId).collect()),
    }
}

/// What the platform calls itself; empty if it does not say.
fn name_of(platform: cl_platform_id) -> String {
    let bytes = platform_api::get_platform_data(platform, platform_api::CL_PLATFORM_NAME).unwrap_or_default();
    text(&bytes)
}

fn id(platform: u32, device: u32) -> String {
    format!("opencl:{platform}:{device}")
}

/// What the driver says of a device; what it does not say is empty or 0.
pub(super) fn describe(platform: u32, number: u32, device: DeviceId) -> DeviceDescription {
    let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let total_bytes = device.number(device_api::CL_DEVICE_GLOBAL_MEM_SIZE);
    DeviceDescription {
        id: id(platform, number),
        kind: "opencl",
        name: device.text(device_api::CL_DEVICE_NAME),
        vendor: device.text(device_api::CL_DEVICE_VENDOR),
        driver: format!(
            "{}, driver {}",
            device.text(device_api::CL_DEVICE_VERSION),
            device.text(device_api::CL_DRIVER_VERSION)
        ),
        total_bytes,
        free_bytes: most_bytes(total_bytes, device.number(device_api::CL_DEVICE_MAX_MEM_ALLOC_SIZE)),
        max_threads_per_block: small(
            device
                .number(device_api::CL_DEVICE_MAX_WORK_GROUP_SIZE)
                .min(MAX_THREADS_PER_BLOCK),
        ),
        max_shared_bytes: small(device.number(device_api::CL_DEVICE_LOCAL_MEM_SIZE)),
        num_multiprocessors: small(device.number(device_api::CL_DEVICE_MAX_COMPUTE_UNITS)),
        cuda_attributes: Vec::new(),
        uuid: [0; 16],
    }
}

impl DeviceId {
    /// Bytes that describe the device; empty where the driver does not know the question.
    pub fn bytes(self, what: u32) -> Vec<u8> {
        device_api::get_device_data(self.0, what).unwrap_or_default()
    }

    /// A number that describes the device.
    pub fn number(self, what: u32) -> u64 {
        number(&self.bytes(what))
    }

    /// A text that describes the device.
    pub fn text(self, what: u32) -> String {
        text(&self.bytes(what))
    }

    /// True for a device that is the host's processor: it runs blocks to their end, one after another on each core.
    pub fn is_cpu(self) -> bool {
        self.number(device_api::CL_DEVICE_TYPE) & device_api::CL_DEVICE_TYPE_CPU != 0
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_matches(['\0', ' ']).to_owned()
}

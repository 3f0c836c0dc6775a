//! Which device: `auto`, `cpu`, `cuda` or `cuda:N`.

use std::sync::Arc;

use hetckpt_devices::device::{Device, DeviceDescription};
use hetckpt_devices::error::DeviceError;
use hetckpt_ring::message::DeviceSummary;

use crate::error::ServerError;
use crate::generate::Generator;

/// A device and what code it takes.
pub struct Chosen {
    /// The device.
    pub device: Arc<dyn Device>,
    /// The code.
    pub generator: Generator,
}

/// A wish for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// CUDA if there is one, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The CUDA device of this number.
    Cuda(u32),
}

impl Wish {
    /// As `--device` and `HETCKPT_DEVICE` write it.
    ///
    /// # Errors
    /// [`ServerError::Usage`].
    pub fn parse(text: &str) -> Result<Self, ServerError> {
        match text {
            "" | "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|n| n.parse().ok())
                .map(Self::Cuda)
                .ok_or_else(|| ServerError::Usage(format!("device `{text}`: expected auto, cpu, cuda or cuda:N"))),
        }
    }
}

fn open_cpu() -> Result<Chosen, DeviceError> {
    Err(DeviceError::NotPresent {
        device: "cpu".to_owned(),
        reason: "this server was built without it".to_owned(),
    })
}

fn open_cuda(number: u32) -> Result<Chosen, DeviceError> {
    let reason = "this server was built without it".to_owned();
    Err(DeviceError::NotPresent {
        device: format!("cuda:{number}"),
        reason,
    })
}

/// Opens the device.
///
/// # Errors
/// [`ServerError::Device`].
pub fn choose(wish: Wish) -> Result<Chosen, ServerError> {
    Ok(match wish {
        Wish::Cpu => open_cpu()?,
        Wish::Cuda(number) => open_cuda(number)?,
        Wish::Auto => match open_cuda(0) {
            Ok(chosen) => chosen,
            Err(error) => {
                tracing::info!(%error, "no CUDA device; the CPU is used");
                open_cpu()?
            }
        },
    })
}

/// The devices of this machine.
#[must_use]
pub fn summaries() -> Vec<DeviceSummary> {
    let mut all = Vec::new();
    for number in 0.. {
        match open_cuda(number) {
            Ok(chosen) => all.push(summary(&chosen.device.describe())),
            Err(error) => {
                tracing::debug!(%error, "no further CUDA device");
                break;
            }
        }
    }
    match open_cpu() {
        Ok(chosen) => all.push(summary(&chosen.device.describe())),
        Err(error) => tracing::warn!(%error, "the CPU cannot be used as a device"),
    }
    all
}

fn summary(device: &DeviceDescription) -> DeviceSummary {
    DeviceSummary {
        id: device.id.clone(),
        kind: device.kind.to_owned(),
        name: device.name.clone(),
        vendor: device.vendor.clone(),
        driver: device.driver.clone(),
        total_bytes: device.total_bytes,
        free_bytes: device.free_bytes,
        num_multiprocessors: device.num_multiprocessors,
    }
}

//! Which device: `auto`, `cpu`, `cuda` or `cuda:N`.

use std::path::PathBuf;
use std::sync::Arc;

use hetckpt_codegen::ptx::PtxOptions;
use hetckpt_devices::cpu::{CpuDevice, CpuOptions};
use hetckpt_devices::cuda::{CudaDevice, CudaOptions};
use hetckpt_devices::device::{Device, DeviceDescription};
use hetckpt_devices::error::DeviceError;
use hetckpt_ring::message::DeviceSummary;

use crate::error::ServerError;
use crate::generate::Generator;

/// Newest `.target` that generated PTX names.
const NEWEST_TARGET: u32 = 90;

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
    let options = CpuOptions {
        code_generator: None,
        cache_dir: cache_dir(),
        num_workers: None,
    };
    Ok(Chosen {
        device: Arc::new(CpuDevice::open(&options)?),
        generator: Generator::Cpu,
    })
}

fn open_cuda(number: u32) -> Result<Chosen, DeviceError> {
    let device = CudaDevice::open(number, &CudaOptions { cache_dir: cache_dir() })?;
    let options = PtxOptions {
        // PTX runs on newer devices too; what newer targets add is not generated.
        sm: device.sm().min(NEWEST_TARGET),
        shared_base: device.shared_base(),
        ..PtxOptions::default()
    };
    Ok(Chosen {
        device: Arc::new(device),
        generator: Generator::Ptx(options),
    })
}

/// Folder for translated code: `$HETCKPT_CACHE_DIR` (`off`: none), else the user's cache folder.
fn cache_dir() -> Option<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    match variable("HETCKPT_CACHE_DIR") {
        Some(dir) if dir.as_os_str() == "off" => None,
        Some(dir) => Some(dir),
        None => variable("XDG_CACHE_HOME")
            .or_else(|| Some(variable("HOME")?.join(".cache")))
            .map(|dir| dir.join("hetckpt")),
    }
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
    let cuda = hetckpt_devices::cuda::list().unwrap_or_else(|error| {
        tracing::debug!(%error, "no CUDA devices");
        Vec::new()
    });
    cuda.iter().chain(&[CpuDevice::describe_host()]).map(summary).collect()
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

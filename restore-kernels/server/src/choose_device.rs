//! Which device: `auto`, `cpu`, `cuda:N` or `opencl:PLATFORM:DEVICE`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use hetckpt_abi::opencl_program::Requirements;
use hetckpt_cache::place::cache_dir;
use hetckpt_codegen::opencl::OpenClOptions;
use hetckpt_codegen::ptx::PtxOptions;
use hetckpt_codegen::spirv::Compiler;
use hetckpt_devices::cpu::{CpuDevice, CpuOptions};
use hetckpt_devices::cuda::{CudaDevice, CudaOptions};
use hetckpt_devices::device::{Device, DeviceDescription};
use hetckpt_devices::error::DeviceError;
use hetckpt_devices::opencl::{
    FailedPlatform, Listing, OpenClCapabilities, OpenClDevice, OpenClOptions as OpenClDeviceOptions,
};
use hetckpt_ring::message::{DeviceSummary, OpenClSummary};

use crate::error::ServerError;
use crate::generate::Generator;

/// Newest `.target` that generated PTX names.
const NEWEST_TARGET: u32 = 90;
/// Memory for trying out a device.
const TRIAL_BYTES: u64 = 4 << 20;

/// A device and what code it takes.
pub struct Chosen {
    /// The device.
    pub device: Arc<dyn Device>,
    /// The code.
    pub generator: Generator,
}

/// Which device is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// CUDA if there is one, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The CUDA device of this number.
    Cuda(u32),
    /// The OpenCL device of this number on the platform of this number.
    OpenCl(u32, u32),
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
            Self::OpenCl(platform, device) => write!(f, "opencl:{platform}:{device}"),
        }
    }
}

impl DeviceChoice {
    /// As `--device` and `HETCKPT_DEVICE` write it.
    ///
    /// # Errors
    /// [`ServerError::Usage`].
    pub fn parse(text: &str) -> Result<Self, ServerError> {
        match text {
            "" | "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => Self::parse_numbered(text).ok_or_else(|| {
                ServerError::Usage(format!(
                    "device `{text}`: expected auto, cpu, cuda, cuda:N, opencl, opencl:PLATFORM or opencl:PLATFORM:DEVICE"
                ))
            }),
        }
    }

    fn parse_numbered(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let kind = parts.next()?;
        let numbers: Vec<u32> = parts.map(|part| part.parse().ok()).collect::<Option<_>>()?;
        match (kind, numbers.as_slice()) {
            ("cuda", &[number]) => Some(Self::Cuda(number)),
            ("opencl", []) => Some(Self::OpenCl(0, 0)),
            ("opencl", &[platform]) => Some(Self::OpenCl(platform, 0)),
            ("opencl", &[platform, device]) => Some(Self::OpenCl(platform, device)),
            _ => None,
        }
    }
}

fn open_cpu(cache_dir: Option<PathBuf>) -> Result<Chosen, DeviceError> {
    let options = CpuOptions {
        cache_dir,
        ..CpuOptions::default()
    };
    Ok(Chosen {
        device: Arc::new(CpuDevice::open(&options)?),
        generator: Generator::Cpu,
    })
}

fn open_cuda(number: u32, cache_dir: Option<PathBuf>) -> Result<Chosen, DeviceError> {
    let device = CudaDevice::open(number, &CudaOptions { cache_dir })?;
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

fn opencl_options(cache_dir: Option<PathBuf>) -> OpenClDeviceOptions {
    OpenClDeviceOptions {
        cache_dir,
        il_compiler: Some(|program| {
            let made = Compiler::find().and_then(|compiler| compiler.binary(program));
            Ok(made?)
        }),
        sees_host_writes: wants_bounded_launches().then_some(false),
        ..OpenClDeviceOptions::default()
    }
}

fn open_opencl(platform: u32, device: u32, cache_dir: Option<PathBuf>) -> Result<Chosen, DeviceError> {
    let device = OpenClDevice::open(platform, device, &opencl_options(cache_dir))?;
    let options = OpenClOptions {
        has_int64_extended_atomics: device.capabilities().int64_extended_atomics,
        has_votes_of_sub_groups: device.capabilities().votes_of_sub_groups,
        counts_looks: device.cuts_launches(),
        ..OpenClOptions::default()
    };
    Ok(Chosen {
        device: Arc::new(device),
        generator: Generator::OpenCl(options),
    })
}

/// True if `HETCKPT_OPENCL_BOUNDED` is 1: OpenCL devices are taken for such whose running kernels do not see what the
/// host writes, for tests.
fn wants_bounded_launches() -> bool {
    std::env::var_os("HETCKPT_OPENCL_BOUNDED").is_some_and(|value| value == "1")
}

/// Opens the device.
///
/// # Errors
/// [`ServerError::Device`].
pub fn choose(wish: DeviceChoice) -> Result<Chosen, ServerError> {
    choose_with_cache(wish, cache_dir())
}

/// Opens the device, which keeps what it builds in a folder, if one is given.
///
/// # Errors
/// [`ServerError::Device`].
pub fn choose_with_cache(wish: DeviceChoice, cache_dir: Option<PathBuf>) -> Result<Chosen, ServerError> {
    Ok(match wish {
        DeviceChoice::Cpu => open_cpu(cache_dir)?,
        DeviceChoice::Cuda(number) => open_cuda(number, cache_dir)?,
        DeviceChoice::OpenCl(platform, device) => open_opencl(platform, device, cache_dir)?,
        DeviceChoice::Auto => match open_cuda(0, cache_dir.clone()) {
            Ok(chosen) => chosen,
            Err(error) => {
                tracing::info!(%error, "no CUDA device; the CPU is used");
                open_cpu(cache_dir)?
            }
        },
    })
}

/// The devices of this machine; with `tries`, also what only an open device shows.
#[must_use]
pub fn summaries(tries: bool) -> Vec<DeviceSummary> {
    let cuda = hetckpt_devices::cuda::list().unwrap_or_else(|error| {
        tracing::debug!(%error, "no CUDA devices");
        Vec::new()
    });
    let opencl = hetckpt_devices::opencl::list().unwrap_or_else(|error| {
        tracing::debug!(%error, "no OpenCL devices");
        Listing::default()
    });
    let cpu = CpuDevice::describe_host();
    let failed = opencl.failed.iter().map(|platform| {
        let FailedPlatform { id, name, reason } = platform;
        tracing::warn!(id, name, reason, "an OpenCL platform does not tell its devices");
        failed_summary(platform)
    });
    let devices = opencl.devices.iter().map(|(device, capabilities)| {
        let tried = tries.then(|| sees_host_writes(&device.id));
        let (sees_host_writes, unusable) = match tried {
            Some(Ok(sees)) => (Some(sees), None),
            Some(Err(why)) => (None, Some(why.to_string())),
            None => (None, None),
        };
        DeviceSummary {
            opencl: Some(OpenClSummary {
                sees_host_writes,
                unusable,
                ..opencl_summary(capabilities)
            }),
            ..summary(device)
        }
    });
    let opencl = devices.chain(failed);
    cuda.iter().map(summary).chain(opencl).chain([summary(&cpu)]).collect()
}

/// In the place of the platform's devices, which nobody knows.
fn failed_summary(platform: &FailedPlatform) -> DeviceSummary {
    DeviceSummary {
        id: platform.id.clone(),
        kind: "opencl".to_owned(),
        name: platform.name.clone(),
        opencl: Some(OpenClSummary {
            unusable: Some(platform.reason.clone()),
            ..OpenClSummary::default()
        }),
        ..DeviceSummary::default()
    }
}

fn opencl_summary(capabilities: &OpenClCapabilities) -> OpenClSummary {
    // No kernel needs the extended atomics where there are none: the generator is told.
    let lacks = capabilities.missing(&Requirements {
        int64_extended_atomics: false,
        ..Requirements::ALL
    });
    OpenClSummary {
        max_allocation_bytes: capabilities.max_allocation_bytes,
        fp64: capabilities.fp64,
        fp16: capabilities.fp16,
        int64_atomics: capabilities.int64_base_atomics,
        sub_group_sizes: capabilities.sub_group_sizes.clone(),
        il_version: capabilities.il_version.clone(),
        max_cooperative_blocks: capabilities.max_cooperative_blocks,
        lacks: lacks.into_iter().map(str::to_owned).collect(),
        sees_host_writes: None,
        unusable: None,
    }
}

/// Opens an OpenCL device and tells whether its running kernels see what the host writes.
fn sees_host_writes(id: &str) -> Result<bool, ServerError> {
    let DeviceChoice::OpenCl(platform, device) = DeviceChoice::parse(id)? else {
        return Err(ServerError::Usage(format!("{id} is no OpenCL device")));
    };
    let options = OpenClDeviceOptions {
        max_arena_bytes: Some(TRIAL_BYTES),
        ..opencl_options(cache_dir())
    };
    Ok(OpenClDevice::open(platform, device, &options)?.sees_host_writes)
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
        max_threads_per_block: device.max_threads_per_block,
        max_shared_bytes_per_block: device.max_shared_bytes,
        compute_capability: device.compute_capability(),
        opencl: None,
    }
}

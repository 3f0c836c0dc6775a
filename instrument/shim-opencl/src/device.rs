//! The device: there is one, the virtual device that the driver API shows.

use std::sync::OnceLock;

use crate::compiler;
use crate::cuda::{self, Driver};
use crate::handles::{Cell, Handle};
use crate::info::{Bytes, Query, bytes};
use crate::platform;
use crate::pointers::{In, Out};
use crate::status::{Outcome, Status};

entry_points! {
    status clGetDeviceIDs(platform: Handle, kinds: u64, room: u32, devices: Out<Handle>, count: Out<u32>) => ids;
    status clGetDeviceInfo(device: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) => info;
    status clRetainDevice(device: Handle) => check;
    status clReleaseDevice(device: Handle) => check;
    status clCreateSubDevices
        (device: Handle, properties: In<usize>, room: u32, devices: Out<Handle>, count: Out<u32>) => create_sub_devices;
}

/// Numbers of `cl_device_type`.
pub mod kind {
    /// Whatever a platform offers first.
    pub const DEFAULT: u64 = 1;
    /// What the virtual device looks like, wherever it really runs.
    pub const GPU: u64 = 4;
    /// Every device.
    pub const ALL: u64 = 0xffff_ffff;
    /// The kinds there are.
    pub const KNOWN: u64 = 0x1f;
}

/// Numbers of `CUdevice_attribute`.
pub mod attribute {
    /// Threads of a block.
    pub const MAX_THREADS: i32 = 1;
    /// Threads of a block in x; y and z follow.
    pub const MAX_BLOCK_X: i32 = 2;
    /// Blocks of a grid in x; y and z follow.
    pub const MAX_GRID_X: i32 = 5;
    /// Shared memory of a block.
    pub const SHARED_BYTES: i32 = 8;
    /// Threads of a warp.
    pub const WARP: i32 = 10;
    /// Clock rate, kHz.
    pub const CLOCK: i32 = 13;
    /// Multiprocessors.
    pub const MULTIPROCESSORS: i32 = 16;
    /// Whether the device uses the host's memory.
    pub const INTEGRATED: i32 = 18;
    /// Whether memory has error correction.
    pub const ECC: i32 = 32;
    /// L2 cache, bytes.
    pub const L2_BYTES: i32 = 38;
}

/// What sub-buffers must be aligned to: no vector type of OpenCL is longer.
pub const ALIGNMENT_BYTES: usize = 128;

/// What a device's compiler and memory can do.
pub const EXTENSIONS: &str = "cl_khr_byte_addressable_store cl_khr_fp64 cl_khr_global_int32_base_atomics \
     cl_khr_global_int32_extended_atomics cl_khr_local_int32_base_atomics cl_khr_local_int32_extended_atomics";

/// The device's handle.
pub fn handle() -> Handle {
    static CELL: OnceLock<Cell> = OnceLock::new();
    CELL.get_or_init(Cell::new).handle()
}

/// Refuses any device but the one there is.
pub fn check(device: Handle) -> Outcome {
    if device == handle() {
        Ok(())
    } else {
        Err(Status::INVALID_DEVICE)
    }
}

/// Refuses lists with another device, and lists with a count that does not fit.
pub fn check_list(count: u32, devices: In<Handle>) -> Outcome {
    if (count == 0) != devices.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    devices.all(count as usize)?.into_iter().try_for_each(check)
}

/// Refuses what is no `cl_device_type`, and kinds that the device is none of.
pub fn check_kind(kinds: u64) -> Outcome {
    if kinds == 0 || (kinds != kind::ALL && kinds & !kind::KNOWN != 0) {
        return Err(Status::INVALID_DEVICE_TYPE);
    }
    if kinds & (kind::GPU | kind::DEFAULT) == 0 {
        return Err(Status::DEVICE_NOT_FOUND);
    }
    Ok(())
}

/// Sizes of groups and launches that the device takes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Work-items of a group.
    pub group: usize,
    /// Work-items of a group in each dimension.
    pub group_sides: [usize; 3],
    /// Groups in each dimension.
    pub grid_sides: [usize; 3],
    /// Local memory of a group.
    pub local_bytes: u64,
}

impl Limits {
    /// Those of the device.
    pub fn of(driver: &Driver) -> Self {
        let sides = |first: i32| [0, 1, 2].map(|axis| driver.attribute(first + axis) as usize);
        Self {
            group: driver.attribute(attribute::MAX_THREADS) as usize,
            group_sides: sides(attribute::MAX_BLOCK_X),
            grid_sides: sides(attribute::MAX_GRID_X),
            local_bytes: u64::from(driver.attribute(attribute::SHARED_BYTES)),
        }
    }
}

/// Largest buffer: the least that the specification allows. Programs that size their buffers by it leave room for
/// others.
pub fn max_buffer_bytes(driver: &Driver) -> u64 {
    driver.memory() / 4
}

fn ids(platform: Handle, kinds: u64, room: u32, devices: Out<Handle>, count: Out<u32>) -> Outcome {
    platform::check(platform)?;
    if (room == 0 && !devices.is_null()) || (devices.is_null() && count.is_null()) {
        return Err(Status::INVALID_VALUE);
    }
    check_kind(kinds)?;
    cuda::driver()?;
    devices.set(handle());
    count.set(1);
    Ok(())
}

fn info(device: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) -> Outcome {
    check(device)?;
    let driver = cuda::driver()?;
    let found = sizes(driver, name)
        .or_else(|| description(driver, name))
        .or_else(|| abilities(name));
    Query { room, value, size }.give(found.ok_or(Status::INVALID_VALUE)?)
}

/// What the device has how much of.
fn sizes(driver: &Driver, name: u32) -> Option<Bytes> {
    let limits = Limits::of(driver);
    Some(match name {
        0x1002 => bytes(driver.attribute(attribute::MULTIPROCESSORS)),
        0x1003 => bytes(3_u32), // MAX_WORK_ITEM_DIMENSIONS
        0x1004 => bytes(limits.group),
        0x1005 => bytes(limits.group_sides),
        0x100C => bytes(driver.attribute(attribute::CLOCK) / 1000), // MHz
        0x100D => bytes(64_u32),                                    // ADDRESS_BITS
        0x1010 => bytes(max_buffer_bytes(driver)),
        0x1017 => bytes(4096_usize - 64), // MAX_PARAMETER_SIZE: what CUDA takes, less the hidden one
        0x1019 => bytes(ALIGNMENT_BYTES as u32 * 8),
        0x101A => bytes(ALIGNMENT_BYTES as u32),
        0x101C => bytes(if driver.attribute(attribute::L2_BYTES) > 0 {
            2_u32
        } else {
            0
        }), // read-write cache
        0x101D => bytes(128_u32), // its line
        0x101E => bytes(u64::from(driver.attribute(attribute::L2_BYTES))),
        0x101F => bytes(driver.memory()),
        0x1020 => bytes(max_buffer_bytes(driver)), // constant memory is global memory here
        0x1021 => bytes(1024_u32),                 // MAX_CONSTANT_ARGS: no limit but the parameters'
        0x1022 => bytes(1_u32),                    // LOCAL_MEM_TYPE
        0x1023 => bytes(limits.local_bytes),
        0x1024 => bytes(driver.attribute(attribute::ECC) != 0),
        0x1025 => bytes(1_usize), // PROFILING_TIMER_RESOLUTION, ns
        0x1035 => bytes(driver.attribute(attribute::INTEGRATED) != 0),
        0x1049 => bytes(1_usize << 20), // PRINTF_BUFFER_SIZE
        _ => return None,
    })
}

/// Who the device is.
fn description(driver: &Driver, name: u32) -> Option<Bytes> {
    Some(match name {
        0x1000 => bytes(kind::GPU),
        0x1001 => bytes(0x10de_u32), // VENDOR_ID of what the virtual device looks like
        0x102B => bytes(driver.name()),
        0x102C => bytes(platform::VENDOR),
        0x102D => bytes(env!("CARGO_PKG_VERSION")),
        0x102E => bytes(platform::PROFILE),
        0x102F => bytes(platform::VERSION),
        0x1030 => bytes(EXTENSIONS),
        0x1031 => bytes(platform::handle()),
        0x103D => bytes("OpenCL C 1.2 "),
        0x103F => bytes(""),           // BUILT_IN_KERNELS
        0x1042 => bytes(Handle::NULL), // PARENT_DEVICE
        0x1047 => bytes(1_u32),        // REFERENCE_COUNT of a root device
        _ => return None,
    })
}

/// What the device can do.
fn abilities(name: u32) -> Option<Bytes> {
    const INF_NAN: u64 = 2;
    const DENORMALS: u64 = 1;
    const TO_NEAREST: u64 = 4;
    const FMA: u64 = 0x20;
    const DOUBLE_REQUIRED: u64 = DENORMALS | INF_NAN | TO_NEAREST | 8 | 0x10 | FMA;
    Some(match name {
        // Preferred and native vector widths: of char, short, int, long, float, double; then of half.
        0x1006..=0x100B | 0x1036..=0x103B => bytes(1_u32),
        0x1034 | 0x103C => bytes(0_u32),
        // Images and samplers: support, numbers, sizes.
        0x1016 => bytes(false),
        0x100E | 0x100F | 0x1018 => bytes(0_u32),
        0x1011..=0x1015 | 0x1040 | 0x1041 => bytes(0_usize),
        0x101B => bytes(DENORMALS | INF_NAN | TO_NEAREST | FMA),
        0x1032 => bytes(DOUBLE_REQUIRED),
        0x1033 => bytes(0_u64),                             // HALF_FP_CONFIG
        0x1026 => bytes(true),                              // ENDIAN_LITTLE
        0x1027 => bytes(true),                              // AVAILABLE
        0x1028 | 0x103E => bytes(compiler::is_available()), // and LINKER_AVAILABLE
        0x1029 => bytes(1_u64),                             // EXECUTION_CAPABILITIES: kernels
        0x102A => bytes(3_u64),                             // QUEUE_PROPERTIES: out of order, profiling
        0x1043 => bytes(0_u32),                             // PARTITION_MAX_SUB_DEVICES
        0x1044 | 0x1046 => bytes([0_usize]),                // partitions
        0x1045 => bytes(0_u64),                             // PARTITION_AFFINITY_DOMAIN
        0x1048 => bytes(true),                              // PREFERRED_INTEROP_USER_SYNC
        _ => return None,
    })
}

fn create_sub_devices(
    device: Handle,
    properties: In<usize>,
    _room: u32,
    _devices: Out<Handle>,
    _count: Out<u32>,
) -> Outcome {
    check(device)?;
    properties.nth(0)?;
    Err(Status::DEVICE_PARTITION_FAILED)
}

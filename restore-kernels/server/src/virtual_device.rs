//! The device that the application sees: the real one of a CUDA device, else an emulated one.
//!
//! # Source
//! The attributes of an H200 as its driver reports them, with 0 for what is not there: unified addressing tricks,
//! clusters, textures' host accesses and the like.

use hetckpt_devices::device::DeviceDescription;
use hetckpt_ring::message::VirtualDevice;
use hetckpt_ring::virtual_gpu::VirtualGpu;

use crate::memory::ROOM_BYTES;

/// Attributes of the emulated device that do not depend on its compute capability, except the number of
/// multiprocessors.
const EMULATED_ATTRIBUTES: &[(u32, i32)] = &[
    (1, 1024), // threads a block
    (2, 1024),
    (3, 1024),
    (4, 64),
    (5, 2_147_483_647),
    (6, 65_535),
    (7, 65_535),
    (8, 49_152),         // shared memory a block
    (9, 65_536),         // constant memory
    (10, 32),            // warp size
    (11, 2_147_483_647), // largest pitch
    (12, 65_536),        // registers a block
    (13, 1_980_000),     // clock, kHz
    (14, 512),           // texture alignment
    (15, 1),             // copy overlaps with kernels
    (19, 1),             // can map host memory
    (21, 131_072),
    (22, 131_072),
    (23, 65_536),
    (24, 16_384),
    (25, 16_384),
    (26, 16_384),
    (27, 32_768),
    (28, 32_768),
    (29, 2048),
    (30, 512), // surface alignment
    (31, 1),   // concurrent kernels
    (34, 1),   // PCI device
    (36, 3_201_000),
    (37, 6016),
    (38, 62_914_560), // L2
    (40, 3),          // copy engines
    (41, 1),          // unified addressing
    (42, 32_768),
    (43, 2048),
    (45, 32_768),
    (46, 32_768),
    (47, 8192),
    (48, 8192),
    (49, 32_768),
    (51, 32),
    (52, 32_768),
    (53, 32_768),
    (54, 2046),
    (55, 32_768),
    (56, 131_072),
    (57, 65_536),
    (58, 16_384),
    (59, 16_384),
    (60, 16_384),
    (61, 32_768),
    (62, 2048),
    (63, 32_768),
    (64, 32_768),
    (65, 2048),
    (66, 32_768),
    (67, 32_768),
    (68, 2046),
    (69, 268_435_456),
    (70, 131_072),
    (71, 65_000),
    (72, 2_097_120),
    (73, 32_768),
    (74, 32_768),
    (77, 32_768),
    (78, 1), // stream priorities
    (79, 1),
    (80, 1),
    (82, 65_536), // registers a multiprocessor
    (MANAGED_MEMORY, 1),
    (87, 2),
    (CONCURRENT_MANAGED_ACCESS, 1),
    (95, 1), // cooperative launch
    (VIRTUAL_MEMORY_MANAGEMENT, 1),
    (115, 1),  // memory pools
    (131, -1), // NUMA node
];
const NUM_MULTIPROCESSORS: u32 = 16;
const MANAGED_MEMORY: u32 = 83;
const CONCURRENT_MANAGED_ACCESS: u32 = 89;
const VIRTUAL_MEMORY_MANAGEMENT: u32 = 102;
/// Multiprocessors of the emulated device; programs size persistent grids by it.
const EMULATED_MULTIPROCESSORS: i32 = 16;

/// Those that do.
fn attributes_of(gpu: VirtualGpu) -> [(u32, i32); 7] {
    let VirtualGpu {
        major,
        minor,
        threads,
        blocks,
        shared_bytes,
        block_shared_bytes,
    } = gpu;
    [
        (39, threads.cast_signed()),
        (75, major.cast_signed()),
        (76, minor.cast_signed()),
        (81, shared_bytes.cast_signed()),
        (97, block_shared_bytes.cast_signed()),
        (106, blocks.cast_signed()),
        // What each block has besides.
        (111, (shared_bytes - block_shared_bytes).cast_signed()),
    ]
}

/// The virtual device of an application that starts on `device`, whose kernels reach the host's memory or do not; it is
/// to be like `gpu` if `device` is none itself.
#[must_use]
pub fn of_device(device: &DeviceDescription, reaches_host_memory: bool, gpu: VirtualGpu) -> VirtualDevice {
    if !device.cuda_attributes.is_empty() {
        let mut attributes = device.cuda_attributes.clone();
        // The host's atomics need not be atomic for a GPU that reaches the memory over a bus.
        attributes.retain(|&(number, _)| number != CONCURRENT_MANAGED_ACCESS);
        attributes.sort_unstable_by_key(|&(number, _)| number);
        return VirtualDevice {
            name: device.name.clone(),
            uuid: device.uuid,
            total_bytes: device.total_bytes,
            attributes,
        };
    }
    let mut attributes = EMULATED_ATTRIBUTES.to_vec();
    attributes.extend(attributes_of(gpu));
    attributes.push((NUM_MULTIPROCESSORS, EMULATED_MULTIPROCESSORS));
    if device.kind == "opencl" {
        // It has only as many addresses as memory.
        attributes.retain(|&(number, _)| number != VIRTUAL_MEMORY_MANAGEMENT);
    }
    if !reaches_host_memory {
        attributes.retain(|&(number, _)| !matches!(number, MANAGED_MEMORY | CONCURRENT_MANAGED_ACCESS));
    }
    attributes.sort_unstable_by_key(|&(number, _)| number);
    VirtualDevice {
        name: format!("hetckpt virtual GPU ({})", device.name),
        uuid: VirtualDevice::EMULATED,
        // Programs may ask for all of it at once.
        total_bytes: device.total_bytes.saturating_sub(ROOM_BYTES),
        attributes,
    }
}

/// As the state keeps it.
#[must_use]
pub fn to_state(device: &VirtualDevice) -> hetckpt_state::virtual_device::VirtualDevice {
    hetckpt_state::virtual_device::VirtualDevice {
        name: device.name.clone(),
        uuid: device.uuid,
        total_bytes: device.total_bytes,
        attributes: device.attributes.clone(),
    }
}

/// Inverse of [`to_state`].
#[must_use]
pub fn from_state(device: &hetckpt_state::virtual_device::VirtualDevice) -> VirtualDevice {
    VirtualDevice {
        name: device.name.clone(),
        uuid: device.uuid,
        total_bytes: device.total_bytes,
        attributes: device.attributes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use hetckpt_devices::cpu::CpuDevice;

    use super::*;

    #[test]
    fn only_what_is_no_gpu_claims_what_is_asked_for() {
        let newest = VirtualGpu::ALL[VirtualGpu::ALL.len() - 1];
        let emulated = of_device(&CpuDevice::describe_host(), true, newest);
        assert_eq!([75, 76, 39, 106].map(|n| emulated.attribute(n)), [12, 1, 1536, 24]);
        let numbers: Vec<u32> = emulated.attributes.iter().map(|&(number, _)| number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "each once, by number: {numbers:?}");

        let gpu = DeviceDescription {
            cuda_attributes: vec![(75, 9), (76, 0)],
            ..CpuDevice::describe_host()
        };
        assert_eq!(of_device(&gpu, true, newest).attribute(75), 9);
    }
}

//! The device that the application sees: the real one of a CUDA device, else an emulated one of compute capability 9.0.
//!
//! # Source
//! The attributes of an H200 as its driver reports them, with 0 for what is not there: unified addressing tricks,
//! clusters, textures' host accesses and the like.

use hetckpt_devices::device::DeviceDescription;
use hetckpt_ring::message::VirtualDevice;

use crate::memory::ROOM_BYTES;

/// Attributes of the emulated device, except the number of multiprocessors.
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
    (39, 2048),       // threads a multiprocessor
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
    (75, 9), // compute capability
    (76, 0),
    (77, 32_768),
    (78, 1), // stream priorities
    (79, 1),
    (80, 1),
    (81, 233_472), // shared memory a multiprocessor
    (82, 65_536),  // registers a multiprocessor
    (MANAGED_MEMORY, 1),
    (87, 2),
    (CONCURRENT_MANAGED_ACCESS, 1),
    (95, 1),       // cooperative launch
    (97, 232_448), // shared memory a block, with opt-in
    (VIRTUAL_MEMORY_MANAGEMENT, 1),
    (106, 32),   // blocks a multiprocessor
    (111, 1024), // shared memory reserved
    (115, 1),    // memory pools
    (131, -1),   // NUMA node
];
const NUM_MULTIPROCESSORS: u32 = 16;
const MANAGED_MEMORY: u32 = 83;
const CONCURRENT_MANAGED_ACCESS: u32 = 89;
const VIRTUAL_MEMORY_MANAGEMENT: u32 = 102;
/// Multiprocessors of the emulated device; programs size persistent grids by it.
const EMULATED_MULTIPROCESSORS: i32 = 16;

/// The virtual device of an application that starts on `device`, whose kernels reach the host's memory or do not.
#[must_use]
pub fn of_device(device: &DeviceDescription, reaches_host_memory: bool) -> VirtualDevice {
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

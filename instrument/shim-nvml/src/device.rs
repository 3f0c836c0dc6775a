//! The device that the program sees.

use std::ffi::c_char;

use crate::cuda::{self, Description};
use crate::result::{NvmlReturn, Outcome, flat, put};
use crate::text::{Given, Place, field};

/// `nvmlDevice_t`: there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Device(usize);

const FIRST: Device = Device(0x1000);

/// `nvmlPciInfo_t`.
#[repr(C)]
pub struct PciInfo {
    old_bus_id: [c_char; 16],
    domain: u32,
    bus: u32,
    device: u32,
    device_id: u32,
    subsystem_id: u32,
    bus_id: [c_char; 32],
}

/// `nvmlMemory_t`.
#[repr(C)]
pub struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

fn describe(device: Device) -> Outcome<Description> {
    match device {
        FIRST => cuda::get()?.describe(),
        _ => Err(NvmlReturn::INVALID_ARGUMENT),
    }
}

fn count(count: Option<&mut u32>) -> NvmlReturn {
    flat(cuda::get().and_then(|cuda| put(count, cuda.count()?)))
}

fn by_index(index: u32, device: Option<&mut Device>) -> NvmlReturn {
    flat(cuda::get().and_then(|cuda| match index < cuda.count()? {
        true => put(device, FIRST),
        false => Err(NvmlReturn::INVALID_ARGUMENT),
    }))
}

/// Domains have four digits here and eight there.
fn by_bus_id(id: &Given, device: Option<&mut Device>) -> NvmlReturn {
    let find = || {
        let wanted = id.get()?.trim_start_matches('0').to_ascii_lowercase();
        let own = describe(FIRST)?.pci_bus_id.to_ascii_lowercase();
        match own.trim_start_matches('0') == wanted {
            true => put(device, FIRST),
            false => Err(NvmlReturn::NOT_FOUND),
        }
    };
    flat(find())
}

/// A UUID as NVML writes it.
fn uuid_text(uuid: [u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from, to| hex.get(from..to).unwrap_or_default();
    let parts = [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)];
    format!("GPU-{}", parts.join("-"))
}

fn by_uuid(uuid: &Given, device: Option<&mut Device>) -> NvmlReturn {
    let find = || match uuid.get()? == uuid_text(describe(FIRST)?.uuid) {
        true => put(device, FIRST),
        false => Err(NvmlReturn::NOT_FOUND),
    };
    flat(find())
}

fn pci(device: Device, info: Option<&mut PciInfo>) -> NvmlReturn {
    let find = || {
        let id = describe(device)?.pci_bus_id;
        let mut numbers = id
            .split([':', '.'])
            .map(|part| u32::from_str_radix(part, 16).unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        let [domain, bus, slot] = [next(), next(), next()];
        put(
            info,
            PciInfo {
                old_bus_id: field(&id),
                domain,
                bus,
                device: slot,
                device_id: 0,
                subsystem_id: 0,
                bus_id: field(&format!("{domain:08X}:{bus:02X}:{slot:02X}.0")),
            },
        )
    };
    flat(find())
}

fn no_processes(device: Device, number: Option<&mut u32>) -> NvmlReturn {
    flat(describe(device).and_then(|_| put(number, 0)))
}

nvml! {
    fn nvmlDeviceGetCount(number: Option<&mut u32>) {
        count(number)
    }
    fn nvmlDeviceGetCount_v2(number: Option<&mut u32>) {
        count(number)
    }
    fn nvmlDeviceGetHandleByIndex(index: u32, device: Option<&mut Device>) {
        by_index(index, device)
    }
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: Option<&mut Device>) {
        by_index(index, device)
    }
    fn nvmlDeviceGetHandleByPciBusId(id: Given, device: Option<&mut Device>) {
        by_bus_id(&id, device)
    }
    fn nvmlDeviceGetHandleByPciBusId_v2(id: Given, device: Option<&mut Device>) {
        by_bus_id(&id, device)
    }
    fn nvmlDeviceGetHandleByUUID(uuid: Given, device: Option<&mut Device>) {
        by_uuid(&uuid, device)
    }
    fn nvmlDeviceGetIndex(device: Device, index: Option<&mut u32>) {
        flat(describe(device).and_then(|_| put(index, 0)))
    }
    fn nvmlDeviceGetMinorNumber(device: Device, number: Option<&mut u32>) {
        flat(describe(device).and_then(|_| put(number, 0)))
    }
    fn nvmlDeviceGetName(device: Device, name: Place, length: u32) {
        flat(describe(device).and_then(|described| name.set(&described.name, length)))
    }
    fn nvmlDeviceGetUUID(device: Device, uuid: Place, length: u32) {
        flat(describe(device).and_then(|described| uuid.set(&uuid_text(described.uuid), length)))
    }
    fn nvmlDeviceGetPciInfo(device: Device, info: Option<&mut PciInfo>) {
        pci(device, info)
    }
    fn nvmlDeviceGetPciInfo_v2(device: Device, info: Option<&mut PciInfo>) {
        pci(device, info)
    }
    fn nvmlDeviceGetPciInfo_v3(device: Device, info: Option<&mut PciInfo>) {
        pci(device, info)
    }
    fn nvmlDeviceGetCudaComputeCapability(device: Device, major: Option<&mut i32>, minor: Option<&mut i32>) {
        flat(describe(device).and_then(|described| {
            put(major, described.capability.0)?;
            put(minor, described.capability.1)
        }))
    }
    fn nvmlDeviceGetMemoryInfo(device: Device, memory: Option<&mut Memory>) {
        flat(usage(device).and_then(|(free, total)| put(memory, Memory { total, free, used: total - free })))
    }
    fn nvmlDeviceGetMemoryInfo_v2(device: Device, memory: Option<&mut MemoryV2>) {
        flat(usage(device).and_then(|(free, total)| {
            let memory = memory.ok_or(NvmlReturn::INVALID_ARGUMENT)?;
            let (version, reserved, used) = (memory.version, 0, total - free);
            put(Some(memory), MemoryV2 { version, total, reserved, free, used })
        }))
    }
    fn nvmlDeviceGetP2PStatus(one: Device, other: Device, _capability: u32, status: Option<&mut u32>) {
        // A device reaches its own memory, and there is no other.
        const OK: u32 = 0;
        flat(describe(one).and(describe(other)).and_then(|_| put(status, OK)))
    }
    fn nvmlDeviceGetComputeRunningProcesses(device: Device, number: Option<&mut u32>, _processes: usize) {
        no_processes(device, number)
    }
    fn nvmlDeviceGetComputeRunningProcesses_v2(device: Device, number: Option<&mut u32>, _processes: usize) {
        no_processes(device, number)
    }
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Device, number: Option<&mut u32>, _processes: usize) {
        no_processes(device, number)
    }
}

/// Free and all memory. Without a context nothing is in use.
fn usage(device: Device) -> Outcome<(u64, u64)> {
    let all = describe(device)?.total_bytes;
    let (free, total) = cuda::get()?.memory().unwrap_or((all, all));
    Ok((free.min(total), total))
}

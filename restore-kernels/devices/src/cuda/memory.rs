//! Device memory at addresses that the server chooses.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::driver::{self, DriverError, OUT_OF_MEMORY};
use super::handles::Context;
use crate::device::DEVICE_BASE;
use crate::error::DeviceError;

/// Size of the address range that is reserved as a whole: the driver grants a wished address only for ranges of 32 MiB
/// and more (observed with driver 580), while mappings are as small as 2 MiB.
const WINDOW_BYTES: usize = 4 << 40;
/// The least of which it grants one.
const APART_BYTES: usize = 32 << 20;

/// What is mapped, and which host memory is pinned.
#[derive(Default)]
pub(super) struct Memory {
    /// The window at [`DEVICE_BASE`] is reserved.
    is_reserved: Mutex<bool>,
    /// Beginnings of ranges outside of the window that are reserved, one for each mapping.
    apart: Mutex<BTreeMap<u64, usize>>,
    /// Address: size, physical memory.
    mapped: Mutex<BTreeMap<u64, (u64, u64)>>,
    /// Address: size.
    registered: Mutex<BTreeMap<u64, u64>>,
}

impl Memory {
    /// Backs `addr` with physical memory; its content is whatever was there.
    pub fn map(&self, context: &Context, addr: u64, size: u64) -> Result<(), DeviceError> {
        let fault = |reason: String| DeviceError::Map {
            addr,
            size_bytes: size,
            reason,
        };
        let refused = |e: DriverError| fault(e.to_string());
        context.enter().map_err(refused)?;
        self.reserve_window(addr, size)?;
        self.back(context, addr, size)
    }

    /// As [`Self::map`], at an address outside of the window, which is a multiple of [`APART_BYTES`].
    pub fn map_apart(&self, context: &Context, addr: u64, size: u64) -> Result<(), DeviceError> {
        let fault = |reason: String| DeviceError::Map {
            addr,
            size_bytes: size,
            reason,
        };
        let refused = |e: DriverError| fault(e.to_string());
        context.enter().map_err(refused)?;
        let bytes = usize::try_from(size).map_err(|e| fault(e.to_string()))?;
        let reserved = bytes.next_multiple_of(APART_BYTES);
        let got = driver::cuMemAddressReserve(reserved, addr).map_err(refused)?;
        if got != addr {
            let _ = driver::cuMemAddressFree(got, reserved);
            return Err(fault(format!("the driver offers {got:#x} instead")));
        }
        self.back(context, addr, size).inspect_err(|_| {
            let _ = driver::cuMemAddressFree(addr, reserved);
        })?;
        self.apart.lock().insert(addr, reserved);
        Ok(())
    }

    /// Undoes [`Self::map_apart`].
    pub fn unmap_apart(&self, context: &Context, addr: u64, size: u64) -> Result<(), DeviceError> {
        self.unmap(context, addr, size)?;
        let Some(reserved) = self.apart.lock().remove(&addr) else {
            return Ok(());
        };
        driver::cuMemAddressFree(addr, reserved).map_err(|error| DeviceError::Map {
            addr,
            size_bytes: size,
            reason: error.to_string(),
        })
    }

    /// Backs reserved addresses.
    fn back(&self, context: &Context, addr: u64, size: u64) -> Result<(), DeviceError> {
        let fault = |reason: String| DeviceError::Map {
            addr,
            size_bytes: size,
            reason,
        };
        let refused = |e: DriverError| fault(e.to_string());
        let bytes = usize::try_from(size).map_err(|e| fault(e.to_string()))?;
        let handle = driver::cuMemCreate(bytes, context.device).map_err(|e| {
            if e.code == OUT_OF_MEMORY {
                let free_bytes = driver::cuMemGetInfo().map_or(0, |(free, _)| free);
                DeviceError::OutOfMemory {
                    requested_bytes: size,
                    free_bytes,
                }
            } else {
                refused(e)
            }
        })?;
        let done = driver::cuMemMap(addr, bytes, 0, handle, 0)
            .and_then(|()| driver::cuMemSetAccess(addr, bytes, context.device));
        if let Err(error) = done {
            let _ = driver::cuMemUnmap(addr, bytes);
            let _ = driver::cuMemRelease(handle);
            return Err(refused(error));
        }
        self.mapped.lock().insert(addr, (size, handle));
        Ok(())
    }

    pub fn unmap(&self, context: &Context, addr: u64, size: u64) -> Result<(), DeviceError> {
        let fault = |reason: String| DeviceError::Map {
            addr,
            size_bytes: size,
            reason,
        };
        let refused = |e: DriverError| fault(e.to_string());
        context.enter().map_err(refused)?;
        let mut mapped = self.mapped.lock();
        let handle = match mapped.get(&addr) {
            Some((known, handle)) if *known == size => *handle,
            _ => return Err(fault("it is not a range that was mapped".into())),
        };
        let bytes = usize::try_from(size).map_err(|e| fault(e.to_string()))?;
        driver::cuMemUnmap(addr, bytes).map_err(refused)?;
        mapped.remove(&addr);
        driver::cuMemRelease(handle).map_err(refused)
    }

    /// Reserves the window at the first call, and sees to it that the range lies inside.
    fn reserve_window(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        let fault = |reason: String| DeviceError::Map {
            addr,
            size_bytes,
            reason,
        };
        let end = DEVICE_BASE + WINDOW_BYTES as u64;
        if addr < DEVICE_BASE || addr.checked_add(size_bytes).is_none_or(|e| e > end) {
            return Err(fault(format!("it lies outside of {DEVICE_BASE:#x} to {end:#x}")));
        }
        let mut is_reserved = self.is_reserved.lock();
        if *is_reserved {
            return Ok(());
        }
        let got = driver::cuMemAddressReserve(WINDOW_BYTES, DEVICE_BASE).map_err(|e| fault(e.to_string()))?;
        if got != DEVICE_BASE {
            let _ = driver::cuMemAddressFree(got, WINDOW_BYTES);
            return Err(fault(format!("the driver offers {got:#x} instead")));
        }
        *is_reserved = true;
        Ok(())
    }

    pub fn register_host(&self, context: &Context, addr: u64, size: u64) -> Result<(), DeviceError> {
        let fault = |reason: String| DeviceError::Map {
            addr,
            size_bytes: size,
            reason,
        };
        let refused = |e: DriverError| fault(e.to_string());
        context.enter().map_err(refused)?;
        let bytes = usize::try_from(size).map_err(|e| fault(e.to_string()))?;
        driver::cuMemHostRegister(addr, bytes).map_err(refused)?;
        self.registered.lock().insert(addr, size);
        Ok(())
    }

    pub fn unregister_host(&self, context: &Context, addr: u64) -> Result<(), DeviceError> {
        let refused = |e: DriverError| DeviceError::Map {
            addr,
            size_bytes: 0,
            reason: e.to_string(),
        };
        context.enter().map_err(refused)?;
        driver::cuMemHostUnregister(addr).map_err(refused)?;
        self.registered.lock().remove(&addr);
        Ok(())
    }

    /// True if all of the host range is pinned.
    pub fn is_registered(&self, start: *const u8, size: usize) -> bool {
        let (start, size) = (start as u64, size as u64);
        let registered = self.registered.lock();
        registered
            .range(..=start)
            .next_back()
            .is_some_and(|(&first, &bytes)| start + size <= first + bytes)
    }

    /// Unmaps everything; for a device that is closed.
    pub fn clear(&self, context: &Context) {
        let all: Vec<(u64, u64)> = self
            .mapped
            .lock()
            .iter()
            .map(|(&addr, &(size, _))| (addr, size))
            .collect();
        for (addr, size) in all {
            let _ = self.unmap(context, addr, size);
        }
        for (addr, reserved) in std::mem::take(&mut *self.apart.lock()) {
            let _ = driver::cuMemAddressFree(addr, reserved);
        }
        if std::mem::take(&mut *self.is_reserved.lock()) {
            let _ = driver::cuMemAddressFree(DEVICE_BASE, WINDOW_BYTES);
        }
    }
}

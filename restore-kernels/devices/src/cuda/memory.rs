//! Device memory at addresses that the server chooses.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::driver::{self, DriverError, OUT_OF_MEMORY};
use super::handles::Context;
use super::lock;
use crate::error::DeviceError;

/// What is mapped, and which host memory is pinned.
#[derive(Default)]
pub(super) struct Memory {
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
        let refused = |e: DriverError| fault(format!("{}: {}", e.call, e.reason()));
        context.enter().map_err(refused)?;
        let bytes = usize::try_from(size).map_err(|e| fault(e.to_string()))?;
        let got = driver::cuMemAddressReserve(bytes, addr).map_err(refused)?;
        if got != addr {
            let _ = driver::cuMemAddressFree(got, bytes);
            return Err(fault(format!("the driver offers {got:#x} instead")));
        }
        let handle = driver::cuMemCreate(bytes, context.device).map_err(|e| {
            let _ = driver::cuMemAddressFree(addr, bytes);
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
            let _ = driver::cuMemAddressFree(addr, bytes);
            return Err(refused(error));
        }
        lock(&self.mapped).insert(addr, (size, handle));
        Ok(())
    }

    pub fn unmap(&self, context: &Context, addr: u64, size: u64) -> Result<(), DeviceError> {
        let fault = |reason: String| DeviceError::Map {
            addr,
            size_bytes: size,
            reason,
        };
        let refused = |e: DriverError| fault(format!("{}: {}", e.call, e.reason()));
        context.enter().map_err(refused)?;
        let mut mapped = lock(&self.mapped);
        let handle = match mapped.get(&addr) {
            Some((known, handle)) if *known == size => *handle,
            _ => return Err(fault("it is not a range that was mapped".into())),
        };
        let bytes = usize::try_from(size).map_err(|e| fault(e.to_string()))?;
        driver::cuMemUnmap(addr, bytes).map_err(refused)?;
        mapped.remove(&addr);
        driver::cuMemRelease(handle).map_err(refused)?;
        driver::cuMemAddressFree(addr, bytes).map_err(refused)
    }

    pub fn register_host(&self, context: &Context, addr: u64, size: u64) -> Result<(), DeviceError> {
        let fault = |reason: String| DeviceError::Map {
            addr,
            size_bytes: size,
            reason,
        };
        let refused = |e: DriverError| fault(format!("{}: {}", e.call, e.reason()));
        context.enter().map_err(refused)?;
        let bytes = usize::try_from(size).map_err(|e| fault(e.to_string()))?;
        driver::cuMemHostRegister(addr, bytes).map_err(refused)?;
        lock(&self.registered).insert(addr, size);
        Ok(())
    }

    pub fn unregister_host(&self, context: &Context, addr: u64) -> Result<(), DeviceError> {
        let refused = |e: DriverError| DeviceError::Map {
            addr,
            size_bytes: 0,
            reason: format!("{}: {}", e.call, e.reason()),
        };
        context.enter().map_err(refused)?;
        driver::cuMemHostUnregister(addr).map_err(refused)?;
        lock(&self.registered).remove(&addr);
        Ok(())
    }

    /// True if all of the host range is pinned.
    pub fn is_registered(&self, start: *const u8, size: usize) -> bool {
        let (start, size) = (start as u64, size as u64);
        let registered = lock(&self.registered);
        registered
            .range(..=start)
            .next_back()
            .is_some_and(|(&first, &bytes)| start + size <= first + bytes)
    }

    /// Unmaps everything; for a device that is closed.
    pub fn clear(&self, context: &Context) {
        let all: Vec<(u64, u64)> = lock(&self.mapped)
            .iter()
            .map(|(&addr, &(size, _))| (addr, size))
            .collect();
        for (addr, size) in all {
            let _ = self.unmap(context, addr, size);
        }
    }
}

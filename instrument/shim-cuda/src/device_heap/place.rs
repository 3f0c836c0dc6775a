//! Where a device's heap is, and how large it is to be.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// `CU_LIMIT_MALLOC_HEAP_SIZE` by default.
pub const DEFAULT_LIMIT: u64 = 8 << 20;

/// The heap of a device.
#[derive(Debug)]
pub struct DeviceHeap {
    limit: AtomicU64,
    place: Mutex<Option<Place>>,
}

/// Where it is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The device's generation to which it belongs.
    pub generation: u64,
    /// Its address.
    pub addr: u64,
}

impl Default for DeviceHeap {
    fn default() -> Self {
        Self {
            limit: AtomicU64::new(DEFAULT_LIMIT),
            place: Mutex::default(),
        }
    }
}

impl DeviceHeap {
    /// Bytes that kernels are to be able to take.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets that. Of no effect on a heap that is there.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Where it is, if it has been set aside.
    pub fn place(&self) -> MutexGuard<'_, Option<Place>> {
        self.place.lock()
    }
}

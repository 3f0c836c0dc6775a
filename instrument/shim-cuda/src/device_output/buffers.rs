//! The buffers of device output, and how far they have been printed.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use hetckpt_ring::command::StreamId;

/// The buffers of all modules that are loaded.
#[derive(Debug, Default)]
pub struct OutputBuffers {
    is_there: AtomicBool,
    has_asserted: AtomicBool,
    buffers: Mutex<Vec<Buffer>>,
    printed: Mutex<()>,
}

/// The buffer of one module.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Its address on the device.
    pub addr: u64,
    /// Size of a record.
    pub record_bytes: u32,
    /// Its own, so that fetching waits for nothing else.
    pub stream: StreamId,
    /// Records printed so far. Kernels see it in the buffer, as long as the device works.
    pub printed: u32,
    /// Lost calls that have been spoken of.
    pub num_lost: u32,
}

impl OutputBuffers {
    /// True once there has been a buffer.
    pub fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire)
    }

    /// Adds a buffer, unless there is one at its address; `make` may fail to make it.
    pub fn add(&self, addr: u64, make: impl FnOnce() -> Option<Buffer>) {
        let mut buffers = self.lock();
        if buffers.iter().any(|b| b.addr == addr) {
            return;
        }
        if let Some(buffer) = make() {
            buffers.push(buffer);
            self.is_there.store(true, Ordering::Release);
        }
    }

    /// Forgets all of them; their streams have ended with the device's state.
    pub fn forget_all(&self) {
        self.lock().clear();
    }

    /// True once an assertion has failed.
    pub fn has_asserted(&self) -> bool {
        self.has_asserted.load(Ordering::Relaxed)
    }

    /// Notes that an assertion has failed.
    pub fn note_assertion(&self) {
        self.has_asserted.store(true, Ordering::Relaxed);
    }

    /// What kernels of machine code have printed, for this thread alone.
    pub fn lock_printed(&self) -> MutexGuard<'_, ()> {
        self.printed.lock()
    }

    /// The buffers, for this thread alone.
    pub fn lock(&self) -> MutexGuard<'_, Vec<Buffer>> {
        self.buffers.lock()
    }
}

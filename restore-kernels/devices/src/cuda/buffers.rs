//! Pinned memory for short reads and writes, used again.

use parking_lot::Mutex;

use super::driver::Result;
use super::handles::Pinned;
use crate::device::MAX_QUEUED_BYTES;

/// Buffers that nobody uses, of [`MAX_QUEUED_BYTES`] each.
#[derive(Default)]
pub(super) struct Buffers(Mutex<Vec<Pinned>>);

impl Buffers {
    pub fn take(&self) -> Result<Pinned> {
        let idle = self.0.lock().pop();
        idle.map_or_else(|| Pinned::new(MAX_QUEUED_BYTES as usize), Ok)
    }

    pub fn give_back(&self, buffer: Pinned) {
        self.0.lock().push(buffer);
    }
}

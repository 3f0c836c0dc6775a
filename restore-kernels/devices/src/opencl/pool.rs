//! What every launch needs for itself: its counts and its list of blocks turned away. Both are used again, since a
//! program may launch very many small kernels.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use hetckpt_abi::opencl_program::count;

use super::buffers::DeviceBuffer;
use super::failure::{ClFailure, Result};
use super::handles::{CommandQueue, Context, Event};
use super::host_memory::HostMemory;

/// Bytes of the counts.
const COUNTS_BYTES: usize = count::NUM * 4;
/// The shortest list, in bytes.
const MIN_LIST_BYTES: usize = 1 << 10;
/// Bytes of lists that are kept, of each length.
const MAX_KEPT_BYTES: usize = 16 << 20;

/// Counts and list of one launch.
#[derive(Debug)]
pub(super) struct LaunchWords {
    pub counts: DeviceBuffer,
    pub turned_away: DeviceBuffer,
    /// Where the counts are copied to after the launch, if the host does not see them where they are.
    landing: Option<HostMemory>,
}

impl LaunchWords {
    fn new(context: &Context, is_shared: bool, list_bytes: usize, queue: &CommandQueue) -> Result<Self> {
        let landing = (!is_shared).then(|| HostMemory::zeroed(COUNTS_BYTES)).transpose();
        let landing = landing.map_err(|_| ClFailure { call: "mmap", code: -6 })?;
        Ok(Self {
            counts: DeviceBuffer::zeroed(context, is_shared, COUNTS_BYTES, queue)?,
            turned_away: DeviceBuffer::zeroed(context, is_shared, list_bytes, queue)?,
            landing,
        })
    }

    /// Has the counts copied to the host behind the launch just given to `queue`; the copy's end, if there is anything
    /// to do.
    pub fn fetch_counts(&self, queue: &CommandQueue) -> Result<Option<Event>> {
        let Some(landing) = &self.landing else {
            return Ok(None);
        };
        #[allow(unsafe_code, reason = "lends host memory to the driver")]
        // SAFETY: the landing is kept with the buffers until this event has come.
        unsafe { queue.read_later(&self.counts.mem, COUNTS_BYTES, landing.at()) }.map(Some)
    }

    /// The counts, after the launch.
    pub fn counts(&self) -> [u32; count::NUM] {
        let mut bytes = [0; COUNTS_BYTES];
        if let Some(host) = self.landing.as_ref().or(self.counts.host()) {
            host.read(0, &mut bytes);
        }
        std::array::from_fn(|i| {
            let at = i * 4;
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        })
    }
}

/// Counts and lists that are not in use, by the list's size.
#[derive(Debug, Default)]
pub(super) struct WordsPool {
    free: Mutex<BTreeMap<usize, Vec<LaunchWords>>>,
}

impl WordsPool {
    /// Zero counts and a list of `num_blocks`, for a launch that is given to `queue`.
    pub fn take(
        &self,
        context: &Context,
        is_shared: bool,
        num_blocks: usize,
        queue: &CommandQueue,
    ) -> Result<LaunchWords> {
        let list_bytes = (num_blocks * 4).next_power_of_two().max(MIN_LIST_BYTES);
        let free = self.free.lock().get_mut(&list_bytes).and_then(Vec::pop);
        free.map_or_else(|| LaunchWords::new(context, is_shared, list_bytes, queue), Ok)
    }

    /// Takes back what a launch that is over has used.
    pub fn give_back(&self, words: LaunchWords) {
        if words.counts() != [0; count::NUM] {
            return;
        }
        let list_bytes = words.turned_away.size();
        let mut free = self.free.lock();
        let same = free.entry(list_bytes).or_default();
        if (same.len() + 1) * list_bytes <= MAX_KEPT_BYTES {
            same.push(words);
        }
    }
}

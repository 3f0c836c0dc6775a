//! The request to stop.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use super::buffers::DeviceBuffer;
use super::failure::Result;
use super::handles::{CommandQueue, Context, Event, Mem};
use super::lock;

static GO: [u8; 4] = [0; 4];
static STOP: [u8; 4] = [0xff; 4];

/// The word that all kernels look at.
#[derive(Debug)]
pub(super) struct PauseWord {
    buffer: DeviceBuffer,
    /// Of its own, so that no transfer holds it up.
    queue: CommandQueue,
}

impl PauseWord {
    pub fn new(context: &Context, is_shared: bool) -> Result<Self> {
        let queue = context.queue()?;
        let buffer = DeviceBuffer::zeroed(context, is_shared, 128, &queue)?;
        Ok(Self { buffer, queue })
    }

    /// The buffer that holds it.
    pub fn mem(&self) -> &Mem {
        &self.buffer.mem
    }

    /// Sets it; `None` if that is done already.
    pub fn set(&self, is_stop: bool) -> Result<Option<Event>> {
        let bytes = if is_stop { &STOP } else { &GO };
        if let Some(host) = self.buffer.host() {
            host.set_first_word(u32::from_le_bytes(*bytes));
            return Ok(None);
        }
        let event = self.queue.write_later(self.mem(), bytes)?;
        self.queue.flush()?;
        Ok(Some(event))
    }
}

/// What launching and pausing share.
pub(super) struct Pausing {
    pub word: PauseWord,
    is_paused: AtomicBool,
    /// Pauses that have ended. Launches are given while it is read.
    num_ended: RwLock<u64>,
    /// The last launch of each queue; the others of it have ended before.
    last: Mutex<BTreeMap<u64, Arc<Event>>>,
}

impl Pausing {
    pub fn new(word: PauseWord) -> Self {
        Self {
            word,
            is_paused: AtomicBool::new(false),
            num_ended: RwLock::new(0),
            last: Mutex::default(),
        }
    }

    /// True if launches are not to run now.
    pub fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::SeqCst)
    }

    /// Holds off the end of a pause while a launch is given; the number of pauses that have ended.
    pub fn enter(&self) -> RwLockReadGuard<'_, u64> {
        self.num_ended.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the last launch of a queue.
    pub fn note(&self, queue: u64, event: Arc<Event>) {
        lock(&self.last).insert(queue, event);
    }

    /// Forgets a queue, unless its last launch runs on.
    pub fn forget_done(&self) {
        lock(&self.last).retain(|_, event| !event.is_over());
    }

    pub fn request(&self) -> Result<()> {
        self.is_paused.store(true, Ordering::SeqCst);
        let told = self
            .word
            .set(true)
            .and_then(|told| told.map_or(Ok(()), |event| event.wait()));
        if told.is_err() {
            self.is_paused.store(false, Ordering::SeqCst);
        }
        told
    }

    /// Lets launches run again, once all that were told to stop have.
    pub fn end(&self) -> Result<()> {
        let mut num_ended = self.num_ended.write().unwrap_or_else(PoisonError::into_inner);
        if !self.is_paused() {
            return Ok(());
        }
        let under_way = std::mem::take(&mut *lock(&self.last));
        for event in under_way.values() {
            // A failure is told by the launch.
            let _ = event.wait();
        }
        self.word.set(false)?.map_or(Ok(()), |event| event.wait())?;
        *num_ended += 1;
        self.is_paused.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Stops everything for good; false if some kernel does not stop in time.
    pub fn stop_within(&self, limit: Duration) -> bool {
        self.is_paused.store(true, Ordering::SeqCst);
        // The word is not waited for: it may come only after the kernels.
        let _told = self.word.set(true);
        let begin = Instant::now();
        loop {
            self.forget_done();
            if lock(&self.last).is_empty() {
                return true;
            }
            if begin.elapsed() > limit {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

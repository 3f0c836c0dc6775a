//! The request to stop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use hetckpt_abi::opencl_program::looks;

use super::Limits;
use super::buffers::DeviceBuffer;
use super::failure::Result;
use super::handles::{CommandQueue, Context, Event, Mem};
use super::slices::Slices;

static GO: [u8; 4] = [0; 4];
static STOP: [u8; 4] = [0xff; 4];
/// The same for kernels that count their looks.
static COUNT: [u8; 4] = looks::FULL.to_le_bytes();
static STOP_COUNTING: [u8; 4] = looks::STOP.to_le_bytes();

/// The word that all kernels look at.
#[derive(Debug)]
pub(super) struct PauseWord {
    buffer: DeviceBuffer,
    /// Of its own, so that no transfer holds it up.
    queue: CommandQueue,
    /// Kernels count their looks at it.
    is_counting: bool,
}

impl PauseWord {
    pub fn new(context: &Context, is_shared: bool) -> Result<Self> {
        let queue = context.queue()?;
        // There once this is over: kernels of other queues look at it.
        let buffer = DeviceBuffer::filled(context, is_shared, &[0; 128], &queue)?;
        Ok(Self {
            buffer,
            queue,
            is_counting: false,
        })
    }

    /// The buffer that holds it.
    pub fn mem(&self) -> &Mem {
        &self.buffer.mem
    }

    /// From now on kernels count their looks at it.
    pub fn count_looks(&mut self) -> Result<()> {
        self.is_counting = true;
        self.set(false)?.map_or(Ok(()), |event| event.wait())
    }

    /// True if it says stop; only where no kernel runs.
    fn says_stop(&self) -> Result<bool> {
        let mut bytes = [0; 4];
        self.buffer.read(&self.queue, &mut bytes)?;
        let word = u32::from_le_bytes(bytes);
        Ok(if self.is_counting {
            word >= looks::STOP
        } else {
            word != 0
        })
    }

    /// Sets it; `None` if that is done already.
    pub fn set(&self, is_stop: bool) -> Result<Option<Event>> {
        let bytes = match (is_stop, self.is_counting) {
            (true, false) => &STOP,
            (false, false) => &GO,
            (true, true) => &STOP_COUNTING,
            (false, true) => &COUNT,
        };
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
    /// Where kernels count their looks.
    slices: Option<Slices>,
}

/// A launch that is being submitted.
pub(super) struct SubmittedLaunch<'a> {
    slices: Option<&'a Slices>,
    /// What its looks at the pause word cost, if they are counted.
    pub look_price: u32,
}

impl Drop for SubmittedLaunch<'_> {
    fn drop(&mut self) {
        if let Some(slices) = self.slices {
            slices.has_given();
        }
    }
}

impl Pausing {
    pub fn new(word: PauseWord, limits: &Limits) -> Self {
        Self {
            slices: word.is_counting.then(|| Slices::new(limits)),
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
        self.num_ended.read()
    }

    /// True if launches stop after a while, asked or not.
    pub fn cuts_launches(&self) -> bool {
        self.slices.is_some()
    }

    /// Begins to give a launch of a kernel, which ends when it is noted and the result dropped. Where nothing runs the
    /// kernel has a slice of its own: programs that wait for their launches are not cut at the sum of them.
    pub fn give(&self, kernel: &str) -> Result<SubmittedLaunch<'_>> {
        let Some(slices) = &self.slices else {
            return Ok(SubmittedLaunch {
                slices: None,
                look_price: 0,
            });
        };
        let mut current = slices.current();
        let nothing_runs = || self.last.lock().values().all(|event| event.is_over());
        // Behind a launch that has stopped, and of which nobody has heard yet, nothing is to run.
        if current.is_worth_renewing() && nothing_runs() && !self.is_paused() && !self.word.says_stop()? {
            self.word.set(false)?.map_or(Ok(()), |event| event.wait())?;
            current.renew();
        }
        Ok(SubmittedLaunch {
            look_price: slices.gives(&mut current, kernel),
            slices: Some(slices),
        })
    }

    /// Notes that a launch has stopped.
    pub fn note_stop(&self) {
        if let Some(slices) = self.slices.as_ref().filter(|_| !self.is_paused()) {
            slices.note_end();
        }
    }

    /// Notes the last launch of a queue.
    pub fn note(&self, queue: u64, event: Arc<Event>) {
        self.last.lock().insert(queue, event);
    }

    /// Forgets a queue, unless its last launch runs on.
    pub fn forget_done(&self) {
        self.last.lock().retain(|_, event| !event.is_over());
    }

    pub fn request(&self) -> Result<()> {
        let told = {
            // No new slice is to begin behind it.
            let _current = self.slices.as_ref().map(Slices::current);
            self.is_paused.store(true, Ordering::SeqCst);
            self.word.set(true)
        };
        let told = told.and_then(|told| told.map_or(Ok(()), |event| event.wait()));
        if told.is_err() {
            self.is_paused.store(false, Ordering::SeqCst);
        }
        told
    }

    /// Lets launches run again, once all that were told to stop have.
    pub fn end(&self) -> Result<()> {
        let mut num_ended = self.num_ended.write();
        if !self.is_paused() {
            return Ok(());
        }
        let under_way = std::mem::take(&mut *self.last.lock());
        for event in under_way.values() {
            // A failure is told by the launch.
            let _ = event.wait();
        }
        self.word.set(false)?.map_or(Ok(()), |event| event.wait())?;
        if let Some(slices) = &self.slices {
            slices.current().renew();
        }
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
            if self.last.lock().is_empty() {
                return true;
            }
            if begin.elapsed() > limit {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

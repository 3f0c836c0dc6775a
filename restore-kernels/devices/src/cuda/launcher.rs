//! A thread that calls the driver for launches in a row, so that whoever gives them can prepare the next one meanwhile:
//! the driver takes longer for a launch than all that comes before it.
//!
//! It costs a hand-over between processors, so a launch that somebody may wait for is better given at once
//! ([`super::progress::Progress::give_launch`] decides).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::DeviceError;

/// How long it looks for more before it sleeps.
const LOOK: Duration = Duration::from_micros(50);
/// The program, the reader of the ring, this, and something else.
const ENOUGH_PROCESSORS: usize = 4;

/// Gives a launch to the driver.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// What the thread and its users share.
#[derive(Default)]
struct Shared {
    jobs: Mutex<Jobs>,
    /// Looked at without the lock.
    has_jobs: AtomicBool,
    more: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: Vec<Job>,
    sleeps: bool,
    ends: bool,
}

/// The thread.
pub(super) struct Launcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Launcher {
    /// Starts it, unless it would have to share a processor with those that it is to relieve. Before jobs it calls
    /// `prepare`.
    pub fn start_if_useful(prepare: impl Fn() + Send + 'static) -> Result<Option<Self>, DeviceError> {
        if std::thread::available_parallelism().is_ok_and(|n| n.get() >= ENOUGH_PROCESSORS) {
            Self::start(prepare).map(Some)
        } else {
            Ok(None)
        }
    }

    fn start(prepare: impl Fn() + Send + 'static) -> Result<Self, DeviceError> {
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("launcher".to_owned())
            .spawn(move || own.work(&prepare));
        let thread = thread.map_err(|error| DeviceError::Driver {
            call: "thread creation",
            reason: error.to_string(),
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Has the thread do a job behind all that it was given before.
    pub fn give(&self, job: Job) {
        let mut jobs = self.shared.jobs.lock();
        jobs.waiting.push(job);
        self.shared.has_jobs.store(true, Ordering::Release);
        if std::mem::take(&mut jobs.sleeps) {
            drop(jobs);
            self.shared.more.notify_one();
        }
    }
}

impl Shared {
    fn work(&self, prepare: &dyn Fn()) {
        let mut batch = Vec::new();
        loop {
            let began = Instant::now();
            while !self.has_jobs.load(Ordering::Acquire) && began.elapsed() < LOOK {
                std::hint::spin_loop();
            }
            let mut jobs = self.jobs.lock();
            while jobs.waiting.is_empty() {
                if jobs.ends {
                    return;
                }
                jobs.sleeps = true;
                self.more.wait(&mut jobs);
            }
            std::mem::swap(&mut batch, &mut jobs.waiting);
            self.has_jobs.store(false, Ordering::Release);
            drop(jobs);
            prepare();
            for job in batch.drain(..) {
                job();
            }
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let mut jobs = self.shared.jobs.lock();
        jobs.ends = true;
        self.shared.has_jobs.store(true, Ordering::Release);
        drop(jobs);
        self.shared.more.notify_one();
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn jobs_are_done_in_their_order_and_before_it_ends() {
        let done = Arc::<Mutex<Vec<usize>>>::default();
        let prepared = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&prepared);
        let launcher = Launcher::start(move || {
            count.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        for number in 0..10_000 {
            let done = Arc::clone(&done);
            launcher.give(Box::new(move || done.lock().push(number)));
            if number % 1000 == 0 {
                // It falls asleep.
                std::thread::sleep(LOOK * 4);
            }
        }
        drop(launcher);
        assert_eq!(*done.lock(), (0..10_000).collect::<Vec<_>>());
        assert!(prepared.load(Ordering::Relaxed) > 0);
    }
}

//! Work of many pieces, done by all cores at once.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Cores that this process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// What `job` gives for each of `0..count`, on as many as `threads` threads.
pub fn map_in_parallel<T: Send>(threads: usize, count: usize, job: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let results: Mutex<Vec<Option<T>>> = Mutex::new((0..count).map(|_| None).collect());
    let work = |at: usize, (): &mut ()| -> Result<(), Infallible> {
        let result = job(at);
        results.lock()[at] = Some(result);
        Ok(())
    };
    in_parallel(threads, count, work).unwrap_or_else(|never| match never {});
    // Each has been done once.
    results.into_inner().into_iter().flatten().collect()
}

/// Runs `job` for each of `0..count`, on as many as `threads` threads, each with a `T` of its own; after an error no
/// further one is started.
///
/// # Errors
/// The first one of `job`.
pub fn in_parallel<T: Default, E: Send>(
    threads: usize,
    count: usize,
    job: impl Fn(usize, &mut T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let first_error = Mutex::new(None);
    let work = || {
        let mut kept = T::default();
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            if let Err(error) = job(at, &mut kept) {
                failed.store(true, Ordering::Relaxed);
                first_error.lock().get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            scope.spawn(work);
        }
        work();
    });
    first_error.into_inner().map_or(Ok(()), Err)
}

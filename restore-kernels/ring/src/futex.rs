//! Futexes in memory shared between processes (never the private kind), and the short spin before them.
#![allow(unsafe_code, reason = "futex has no safe wrapper")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Sleeps while `word` is `expected`, at most `timeout`. May return for no reason: the caller checks its condition.
///
/// After a restore a timed wait returns early and an untimed one is restarted; both are covered by the caller's check.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let time = timeout.map(|t| libc::timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    let time_ptr = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word and the time live across the call.
    let _ = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, time_ptr) };
}

/// Wakes up to `count` threads that sleep on `word`.
pub fn wake(word: &AtomicU32, count: i32) {
    // SAFETY: the word lives across the call.
    let _ = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
}

/// Rings a bell: wakes all that sleep on `bell`, provided that somebody said so in `wanted`.
pub fn ring(bell: &AtomicU32, wanted: &AtomicU32) {
    if wanted.swap(0, Ordering::SeqCst) != 0 {
        bell.fetch_add(1, Ordering::SeqCst);
        wake(bell, i32::MAX);
    }
}

/// Spins until `done` or some microseconds have passed; true if done. With one processor it does not spin.
pub fn spin(mut done: impl FnMut() -> bool) -> bool {
    const SPIN: Duration = Duration::from_micros(15);
    if done() {
        return true;
    }
    if !*MANY_PROCESSORS {
        return false;
    }
    let start = Instant::now();
    while start.elapsed() < SPIN {
        for _ in 0..16 {
            std::hint::spin_loop();
        }
        if done() {
            return true;
        }
    }
    false
}

static MANY_PROCESSORS: std::sync::LazyLock<bool> =
    std::sync::LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|n| n.get() > 1));

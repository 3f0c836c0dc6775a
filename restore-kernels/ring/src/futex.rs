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
    // Looking first leaves the word in the other side's cache.
    if wanted.load(Ordering::SeqCst) != 0 && wanted.swap(0, Ordering::SeqCst) != 0 {
        bell.fetch_add(1, Ordering::SeqCst);
        wake(bell, i32::MAX);
    }
}

/// How long to look for something before sleeping: twice as long as it has taken lately, if that was short.
#[derive(Debug)]
pub struct Patience {
    limit_us: AtomicU32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            limit_us: AtomicU32::new(3 * Self::SHORTEST_US),
        }
    }
}

impl Patience {
    const SHORTEST_US: u32 = 5;

    /// How long to look.
    #[must_use]
    pub fn limit(&self) -> Duration {
        Duration::from_micros(self.limit_us.load(Ordering::Relaxed).into())
    }

    /// What was waited for has taken `time`; nobody is to look longer than `longest_us`.
    pub fn waited(&self, time: Duration, longest_us: u32) {
        let limit = self.limit_us.load(Ordering::Relaxed);
        let us = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let next = if us <= longest_us {
            limit.max(us.saturating_mul(2)).min(longest_us)
        } else {
            limit / 2
        };
        self.limit_us.store(next.max(Self::SHORTEST_US), Ordering::Relaxed);
    }

    /// Looks until `done` or the limit has passed; true if done. With one processor it does not look for long.
    pub fn look(&self, mut done: impl FnMut() -> bool) -> bool {
        if done() {
            return true;
        }
        if !has_many_processors() {
            return false;
        }
        let (start, limit) = (Instant::now(), self.limit());
        while start.elapsed() < limit {
            // The clock is dearer than a look, and the processor's pause may take as long as both.
            for _ in 0..16 {
                std::hint::spin_loop();
                if done() {
                    return true;
                }
            }
        }
        false
    }
}

/// True if looking does not keep what is looked for from happening.
#[must_use]
pub fn has_many_processors() -> bool {
    static MANY: std::sync::LazyLock<bool> =
        std::sync::LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|n| n.get() > 1));
    *MANY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_follows_what_waits_take() {
        let patience = Patience::default();
        assert_eq!(patience.limit(), Duration::from_micros(15));
        patience.waited(Duration::from_micros(30), 100);
        assert_eq!(patience.limit(), Duration::from_micros(60));
        patience.waited(Duration::from_micros(90), 100);
        assert_eq!(patience.limit(), Duration::from_micros(100));
        for _ in 0..10 {
            patience.waited(Duration::from_secs(1), 100);
        }
        assert_eq!(patience.limit(), Duration::from_micros(5));
    }
}

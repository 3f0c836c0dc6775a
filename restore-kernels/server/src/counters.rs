//! Counts of what the server does, for `hetckpt stats`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hetckpt_ring::server_stats::{Done, NUM_BUCKETS};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A launch given to the device.
    Launch,
    /// A copy from the program to the device.
    CopyIn,
    /// A copy from the device to the program.
    CopyOut,
    /// A copy between places that the server knows.
    Copy,
    /// A fill.
    Fill,
    /// A wait for streams or an event.
    Wait,
    /// An allocation.
    Allocate,
    /// A free.
    Free,
    /// A program built for the device.
    Build,
}

const ALL: [(Activity, &str); 9] = [
    (Activity::Launch, "launch"),
    (Activity::CopyIn, "copy_in"),
    (Activity::CopyOut, "copy_out"),
    (Activity::Copy, "copy"),
    (Activity::Fill, "fill"),
    (Activity::Wait, "wait"),
    (Activity::Allocate, "allocate"),
    (Activity::Free, "free"),
    (Activity::Build, "build"),
];

/// All counts.
pub struct Counters {
    started: Instant,
    counts: [Count; ALL.len()],
}

struct Count {
    bytes: AtomicU64,
    time_ns: AtomicU64,
    buckets: [AtomicU64; NUM_BUCKETS],
}

impl Default for Count {
    fn default() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            time_ns: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; NUM_BUCKETS],
        }
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            counts: std::array::from_fn(|_| Count::default()),
        }
    }
}

impl Counters {
    /// Counts one, of so many bytes, that has taken `time`.
    pub fn add(&self, activity: Activity, bytes: u64, time: Duration) {
        self.add_several(activity, 1, bytes, time);
    }

    /// Counts several that have taken `time` together.
    pub fn add_several(&self, activity: Activity, count: u64, bytes: u64, time: Duration) {
        if count == 0 {
            return;
        }
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = (ns / count).max(1).ilog2() as usize;
        let counts = &self.counts[activity as usize];
        counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        counts.time_ns.fetch_add(ns, Ordering::Relaxed);
        counts.buckets[bucket.min(NUM_BUCKETS - 1)].fetch_add(count, Ordering::Relaxed);
    }

    /// Since when it is counted.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// What has been counted.
    #[must_use]
    pub fn done(&self) -> Vec<Done> {
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let done = |(activity, what): (Activity, &str)| {
            let counts = &self.counts[activity as usize];
            let histogram: Vec<u64> = counts.buckets.iter().map(read).collect();
            Done {
                what: what.to_owned(),
                // Not a word of its own: it would differ from them while somebody counts.
                count: histogram.iter().sum(),
                bytes: read(&counts.bytes),
                time_ns: read(&counts.time_ns),
                histogram,
            }
        };
        ALL.into_iter().map(done).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_activity_and_time() {
        let counters = Counters::default();
        counters.add(Activity::CopyIn, 100, Duration::from_nanos(1500));
        counters.add_several(Activity::Launch, 16, 0, Duration::from_nanos(16 * 4000));
        counters.add(Activity::Wait, 0, Duration::from_secs(1 << 40));
        let done = counters.done();
        assert_eq!((done[1].count, done[1].bytes, done[1].time_ns), (1, 100, 1500));
        assert_eq!(done[1].histogram[10], 1);
        assert_eq!((done[0].count, done[0].histogram[11]), (16, 16));
        assert_eq!(done[5].histogram[NUM_BUCKETS - 1], 1);
        assert!(ALL.iter().enumerate().all(|(i, &(activity, _))| activity as usize == i));
    }
}

//! Random moments that can be repeated: xorshift from a printed seed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Marsaglia's 64-bit xorshift generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator for the test `name`, so that a test draws the same numbers whichever other tests run.
    #[must_use]
    pub fn for_test(seed: u64, name: &str) -> Self {
        let mixed = name.bytes().fold(seed ^ 0x9e37_79b9_7f4a_7c15, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut random = Self(mixed.max(1));
        // Neighbouring seeds give similar first numbers.
        for _ in 0..8 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number from 0 (included) to `end` (not included).
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A moment from 0 to `end`, in whole microseconds.
    pub fn moment(&mut self, end: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(end.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// The seed of this run: `HETCKPT_SEED`, else from the clock.
#[must_use]
pub fn seed() -> u64 {
    let given = std::env::var("HETCKPT_SEED").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_secs().wrapping_mul(1_000_000) + u64::from(now.subsec_micros())
    })
}

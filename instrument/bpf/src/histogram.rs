//! How long calls took, in powers of two.

use serde::{Deserialize, Serialize};

/// Number of buckets.
pub const NUM_BUCKETS: usize = 40;

/// Calls by how long they took.
///
/// # Shape
/// Bucket `i` counts the calls that took from 2^i to 2^(i+1) - 1 ns; the first also those of 0 ns, the last also longer
/// ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram(pub Vec<u64>);

impl Histogram {
    /// The length of time, in nanoseconds, that `percent` of the calls did not exceed: within a bucket as if its calls
    /// were spread evenly. 0 if there was no call.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> u64 {
        let total: u64 = self.0.iter().sum();
        let rank = total.saturating_mul(percent).div_ceil(100).max(1);
        let mut before = 0;
        for (bucket, &count) in self.0.iter().enumerate() {
            if before + count >= rank {
                let low = 1u64
                    .checked_shl(u32::try_from(bucket).unwrap_or(63))
                    .unwrap_or(u64::MAX);
                let share = (rank - before) as f64 / count as f64;
                // Of nanoseconds no fraction is of interest.
                #[expect(
                    clippy::cast_sign_loss,
                    clippy::cast_possible_truncation,
                    reason = "positive and small"
                )]
                return low + (low as f64 * share) as u64;
            }
            before += count;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_in_the_bucket_of_their_rank() {
        let mut buckets = vec![0; NUM_BUCKETS];
        (buckets[10], buckets[20]) = (99, 1);
        let histogram = Histogram(buckets);
        assert!((1024..=2048).contains(&histogram.percentile(50)));
        assert!((1024..=2048).contains(&histogram.percentile(99)));
        assert!((1 << 20..=1 << 21).contains(&histogram.percentile(100)));
        assert_eq!(Histogram::default().percentile(50), 0);
    }
}

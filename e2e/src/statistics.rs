//! Times of many runs in one line.

use std::time::Duration;

/// Durations collected.
#[derive(Clone, Debug, Default)]
pub struct Durations(Vec<Duration>);

impl Durations {
    /// Adds one.
    pub fn add(&mut self, duration: Duration) {
        self.0.push(duration);
    }

    /// The smallest that at least `percent` % of them do not exceed; zero if there is none.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).or(sorted.last()).copied().unwrap_or_default()
    }

    /// `p50 1.20 ms, max 3.40 ms`.
    #[must_use]
    pub fn summary(&self) -> String {
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        format!(
            "p50 {:.2} ms, max {:.2} ms",
            ms(self.percentile(50)),
            ms(self.percentile(100))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_take_the_nearest_rank() {
        let mut durations = Durations::default();
        assert_eq!(durations.percentile(50), Duration::ZERO);
        for ms in [40, 10, 30, 20] {
            durations.add(Duration::from_millis(ms));
        }
        assert_eq!(durations.percentile(50), Duration::from_millis(20));
        assert_eq!(durations.percentile(99), Duration::from_millis(40));
        assert_eq!(durations.percentile(1), Duration::from_millis(10));
    }
}

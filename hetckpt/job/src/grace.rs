//! Does the time that a scheduler leaves do for a dump?

use std::time::Duration;

use hetckpt_report::quantity;
use hetckpt_store::record::Record;

/// What is left of the grace time when the dump must be over: for the record, and the word to the scheduler.
pub const MARGIN: Duration = Duration::from_secs(1);

/// A dump may take longer than those before.
const CAUTION: f64 = 1.25;

/// How long a dump of `memory_bytes` takes, by what earlier ones of the store took; `None` if there are none.
pub fn estimate(memory_bytes: u64, earlier: &[Record]) -> Option<Duration> {
    // The slowest of the last few: a store has good and bad moments.
    let last = earlier.iter().take(5).filter(|record| record.draft.memory_bytes > 0);
    let slowest = last
        .map(|record| record.draft.dump_seconds / record.draft.memory_bytes as f64)
        .fold(None, |most, rate| Some(most.map_or(rate, |most: f64| most.max(rate))))?;
    Duration::try_from_secs_f64(memory_bytes as f64 * slowest * CAUTION).ok()
}

/// Whether the time does, and whether that has been said.
#[derive(Debug)]
pub struct Promise {
    grace: Option<Duration>,
    told: Option<bool>,
}

impl Promise {
    /// For a scheduler that leaves `grace`.
    pub fn new(grace: Option<Duration>) -> Self {
        Self { grace, told: None }
    }

    /// What there is to say of a program with `memory_bytes`: at first, and whenever it changes.
    pub fn remark(&mut self, memory_bytes: u64, earlier: &[Record]) -> Option<String> {
        let grace = self.grace?;
        let needed = estimate(memory_bytes, earlier)?;
        let is_enough = needed + MARGIN <= grace;
        if self.told.replace(is_enough) == Some(is_enough) {
            return None;
        }
        let (needed, grace) = (quantity::duration(needed), quantity::duration(grace));
        Some(match is_enough {
            true => format!("a dump takes about {needed}; the scheduler leaves {grace}"),
            false => format!(
                "a dump takes about {needed}, but the scheduler leaves {grace}: ask for a longer grace time, or let `--every` take snapshots before"
            ),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn record(memory_bytes: u64, dump_seconds: f64) -> Record {
        let text = format!(
            r#"{{"format_version": 1, "job": "a", "time": "", "stored_bytes": 1, "archive_bytes": 1, "blake3": "",
                "encrypted": false, "id": "20260301T123000000Z-1a2b3c4d", "device": {{"kind": "cpu", "name": "cpu"}},
                "host": "n1", "occasion": "final", "dump_seconds": {dump_seconds}, "memory_bytes": {memory_bytes}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_slowest_dump_counts() {
        assert_eq!(estimate(1, &[]), None);
        let earlier = [record(1_000_000, 1.0), record(1_000_000, 2.0)];
        assert_eq!(estimate(2_000_000, &earlier).unwrap(), Duration::from_secs(5));
    }

    #[test]
    fn it_is_said_once_and_again_when_it_changes() {
        let earlier = [record(1_000_000, 1.0)];
        let mut promise = Promise::new(Some(Duration::from_secs(10)));
        assert!(promise.remark(1_000_000, &earlier).unwrap().contains("leaves"));
        assert_eq!(promise.remark(2_000_000, &earlier), None);
        assert!(promise.remark(20_000_000, &earlier).unwrap().contains("longer grace"));
        assert_eq!(promise.remark(21_000_000, &earlier), None);
        assert!(Promise::new(None).remark(1, &earlier).is_none());
    }
}

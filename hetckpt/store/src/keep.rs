//! Which snapshots of a job are kept, by the rules of restic's `forget`.
//!
//! Each rule looks at the snapshots from the newest on and keeps the newest of each hour or day, until it has kept as
//! many as it may. The oldest snapshot is kept too if a rule could keep more. What any rule keeps is kept. Hours and
//! days are those of UTC.
//!
//! # Source
//! restic, `internal/data/snapshot_policy.go`, `ApplyPolicy`.

use std::time::{SystemTime, UNIX_EPOCH};

/// Tells what a rule takes for one: of a snapshot's number and time.
type Bucket<'a> = &'a dyn Fn(usize, &SystemTime) -> u64;

/// What to keep of each job. Without any rule all is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// How many of the newest; 0: no such rule.
    pub last: u32,
    /// For how many hours that have snapshots, the newest of each; 0: no such rule.
    pub hourly: u32,
    /// For how many days that have snapshots, the newest of each; 0: no such rule.
    pub daily: u32,
}

impl Keep {
    /// True if there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether each of the snapshots made at `times`, the newest first, is kept.
    #[must_use]
    pub fn apply(&self, times: &[SystemTime]) -> Vec<bool> {
        let mut kept = vec![self.is_empty(); times.len()];
        let seconds = |time: &SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // As many different buckets as there are snapshots.
        let each = |number: usize, _: &SystemTime| number as u64;
        let hour = |_: usize, time: &SystemTime| seconds(time) / 3600;
        let day = |_: usize, time: &SystemTime| seconds(time) / 86400;
        let rules: [(u32, Bucket<'_>); 3] = [(self.last, &each), (self.hourly, &hour), (self.daily, &day)];
        for (mut left, bucket) in rules {
            let mut previous = None;
            for (number, time) in times.iter().enumerate() {
                let found = Some(bucket(number, time));
                if left > 0 && (found != previous || number + 1 == times.len()) {
                    kept[number] = true;
                    previous = found;
                    left -= 1;
                }
            }
        }
        kept
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn kept(keep: Keep, times: &[&str]) -> Vec<usize> {
        let times: Vec<SystemTime> = times
            .iter()
            .map(|time| humantime::parse_rfc3339(&format!("{time}Z")).unwrap())
            .collect();
        let kept = keep.apply(&times);
        (0..times.len()).filter(|&number| kept[number]).collect()
    }

    const TIMES: [&str; 7] = [
        "2026-01-08T20:02:03",
        "2026-01-08T20:01:00",
        "2026-01-08T19:30:00",
        "2026-01-07T23:59:59",
        "2026-01-07T00:00:00",
        "2026-01-05T12:00:00",
        "2026-01-05T11:00:00",
    ];

    #[test]
    fn rules_keep_what_they_do_in_restic() {
        let rule = |last, hourly, daily| Keep { last, hourly, daily };
        assert_eq!(kept(rule(0, 0, 0), &TIMES), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(kept(rule(2, 0, 0), &TIMES), [0, 1]);
        assert_eq!(kept(rule(0, 3, 0), &TIMES), [0, 2, 3]);
        assert_eq!(kept(rule(0, 0, 2), &TIMES), [0, 3]);
        // Three days have snapshots; a fourth may be kept, so the oldest is.
        assert_eq!(kept(rule(0, 0, 4), &TIMES), [0, 3, 5, 6]);
        assert_eq!(kept(rule(2, 3, 2), &TIMES), [0, 1, 2, 3]);
        assert_eq!(kept(rule(1, 0, 0), &[]), Vec::<usize>::new());
    }

    proptest! {
        #[test]
        fn the_newest_is_always_kept(
            mut ages in proptest::collection::vec(0u64..1_000_000, 1..40),
            last in 0u32..5, hourly in 0u32..5, daily in 0u32..5,
        ) {
            ages.sort_unstable();
            let start = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
            let times: Vec<SystemTime> = ages.iter().map(|&age| start - Duration::from_secs(age)).collect();
            let keep = Keep { last, hourly, daily };
            let kept = keep.apply(&times);
            prop_assert!(kept[0]);
            let most = (last + hourly + daily) as usize;
            prop_assert!(keep.is_empty() || kept.iter().filter(|&&kept| kept).count() <= most);
            // More rules keep no less.
            let more = Keep { daily: daily + 1, ..keep };
            if !keep.is_empty() {
                prop_assert!(more.apply(&times).iter().zip(&kept).all(|(&more, &kept)| more || !kept));
            }
        }
    }
}

//! Quantities as people read them.

use std::time::{Duration, UNIX_EPOCH};

/// The last second of the year 9999.
const LAST_MOMENT: u64 = 253_402_300_799;

/// A number of bytes for people: `4.0 GiB`.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// A length of time for people: `33.9 ms`, `2.4 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        _ if seconds < 1e-3 => format!("{:.0} µs", seconds * 1e6),
        _ if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

/// A moment for people, in UTC: `2026-03-01 12:30:00 UTC`.
pub fn moment(seconds_since_1970: u64) -> String {
    let moment = UNIX_EPOCH.checked_add(Duration::from_secs(seconds_since_1970));
    // A year that has more than four digits cannot be told like that.
    let text = moment.filter(|_| seconds_since_1970 <= LAST_MOMENT);
    text.map_or_else(
        || format!("{seconds_since_1970} s after 1970"),
        |moment| {
            format!(
                "{} UTC",
                humantime::format_rfc3339_seconds(moment)
                    .to_string()
                    .replace('T', " ")
                    .trim_end_matches('Z')
            )
        },
    )
}

/// `count` things by name: `1 pause`, `2 pauses`.
pub fn counted(count: usize, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_well() {
        assert_eq!(duration(Duration::from_nanos(33_907_542)), "33.9 ms");
        assert_eq!(duration(Duration::from_micros(12)), "12 µs");
        assert_eq!(duration(Duration::from_millis(2449)), "2.4 s");
        assert_eq!(counted(1, "pause"), "1 pause");
        assert_eq!(counted(0, "pause"), "0 pauses");
        assert_eq!(moment(1_772_368_200), "2026-03-01 12:30:00 UTC");
        assert_eq!(moment(u64::MAX), format!("{} s after 1970", u64::MAX));
    }
}

//! How much memory the host has left.

/// Memory that can be had without taking it from others.
#[must_use]
pub fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    // Where the system does not tell, it is tried.
    let available = kib("MemAvailable:").map(|n| n.saturating_add(kib("SwapFree:").unwrap_or(0)));
    available.map_or(u64::MAX, |n| n.saturating_mul(1024))
}

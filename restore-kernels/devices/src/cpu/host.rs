//! Facts about this machine.

use std::fs;

/// Memory of the machine.
pub struct Memory {
    /// All of it.
    pub total_bytes: u64,
    /// What can be had now.
    pub free_bytes: u64,
}

/// Total and available memory; zeros if the kernel does not say.
pub fn memory() -> Memory {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|rest| rest.split_whitespace().next())
            .and_then(|n| n.parse::<u64>().ok())
            .unwrap_or(0)
            * 1024
    };
    Memory {
        total_bytes: field("MemTotal:"),
        free_bytes: field("MemAvailable:"),
    }
}

/// Processors that this process may use.
pub fn num_processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The processor's name.
pub fn processor_name() -> String {
    cpuinfo("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The processor's vendor.
pub fn processor_vendor() -> String {
    match cpuinfo("vendor_id").as_deref() {
        Some("GenuineIntel") => "Intel".to_owned(),
        Some("AuthenticAMD") => "AMD".to_owned(),
        Some(other) => other.to_owned(),
        None => "unknown".to_owned(),
    }
}

fn cpuinfo(field: &str) -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

//! Is there room for what is to be unpacked, on a disk or in memory?

use std::io;
use std::path::Path;

use nix::sys::statvfs::statvfs;

/// Makes sure that `needed_bytes` fit into the folder.
///
/// # Errors
/// [`io::ErrorKind::StorageFull`], with both numbers, if they do not.
pub(crate) fn ensure(folder: &Path, needed_bytes: u64) -> io::Result<()> {
    let found = statvfs(folder)?;
    let free_bytes = found.blocks_available().saturating_mul(found.fragment_size());
    // Some file systems do not tell their size.
    if found.blocks() == 0 || needed_bytes <= free_bytes {
        return Ok(());
    }
    let text = format!("{needed_bytes} bytes are needed, {free_bytes} are free");
    Err(io::Error::new(io::ErrorKind::StorageFull, text))
}

/// Memory that can be had without taking it from others; `None` if the system does not tell.
pub(crate) fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    let total = kib("MemAvailable:")?.saturating_add(kib("SwapFree:").unwrap_or(0));
    Some(total.saturating_mul(1024))
}

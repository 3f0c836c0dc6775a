//! Files that processes map.

use std::path::Path;

use procfs::process::MMapPath;

/// True if a process maps a file in `folder`.
pub fn is_mapped(folder: &Path) -> bool {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    processes.filter_map(|process| process.maps().ok()).any(|maps| {
        maps.into_iter()
            .any(|map| matches!(map.pathname, MMapPath::Path(path) if path.starts_with(folder)))
    })
}

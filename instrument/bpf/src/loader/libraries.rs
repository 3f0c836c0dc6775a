//! Driver libraries: those that processes have mapped, and those that they are likely to map.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procfs::process::{MMPermissions, MMapPath, Process};

use hetckpt_bpf::boundary::prefix_of;

/// Where the dynamic linker keeps what libraries there are.
const LINKER_CACHE: &str = "/etc/ld.so.cache";

/// Where OpenCL's loader looks for implementations.
const VENDORS: &str = "/etc/OpenCL/vendors";

/// Device and inode of a file.
pub type Identity = (u64, u64);

/// A library.
#[derive(Clone, Debug)]
pub struct Found {
    /// By which it is opened.
    pub path: PathBuf,
    /// What it is called.
    pub name: PathBuf,
    /// Which file it is.
    pub identity: Identity,
}

impl Found {
    fn at(path: PathBuf, name: PathBuf) -> Option<Self> {
        let metadata = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let identity = (metadata.dev(), metadata.ino());
        Some(Self { path, name, identity })
    }
}

/// The driver libraries that the process has mapped; `None` if it is not there.
pub fn mapped_by(pid: u32) -> Option<Vec<Found>> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let maps = process.maps().ok()?;
    let mut names = HashSet::new();
    let mapped = maps.into_iter().filter_map(|map| {
        let MMapPath::Path(name) = map.pathname else {
            return None;
        };
        if !map.perms.contains(MMPermissions::EXECUTE) || prefix_of(&name).is_none() || !names.insert(name.clone()) {
            return None;
        }
        // By its own root, which may be another than ours; if it was replaced on disk, by the mapping.
        let by_root = PathBuf::from(format!("/proc/{pid}/root{}", name.display()));
        let (from, to) = map.address;
        let by_mapping = PathBuf::from(format!("/proc/{pid}/map_files/{from:x}-{to:x}"));
        let is_it = |found: &Found| found.identity.1 == map.inode;
        Found::at(by_root, name.clone())
            .filter(is_it)
            .or_else(|| Found::at(by_mapping, name))
    });
    Some(mapped.collect())
}

/// Driver libraries that programs on this machine are likely to load: `named`, and those in the dynamic linker's
/// cache, in `LD_LIBRARY_PATH` and in the list of OpenCL implementations.
pub fn likely(named: &[PathBuf]) -> Vec<Found> {
    let mut paths = named.to_vec();
    let cache = fs::read(LINKER_CACHE).unwrap_or_default();
    let texts = cache
        .split(|&byte| byte == 0)
        .filter(|text| text.first() == Some(&b'/'));
    paths.extend(
        texts
            .filter_map(|text| std::str::from_utf8(text).ok())
            .map(PathBuf::from),
    );
    let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    for folder in std::env::split_paths(&folders) {
        paths.extend(files_of(&folder));
    }
    let vendors = std::env::var_os("OCL_ICD_VENDORS").map_or_else(|| PathBuf::from(VENDORS), PathBuf::from);
    for list in files_of(&vendors) {
        let text = fs::read_to_string(list).unwrap_or_default();
        paths.extend(text.lines().map(|line| PathBuf::from(line.trim())));
    }
    let mut seen = HashSet::new();
    let libraries = paths
        .into_iter()
        .filter(|path| path.is_absolute() && prefix_of(path).is_some());
    libraries
        .filter_map(|path| {
            // Links lead to the name that mappings have.
            let path = fs::canonicalize(path).ok()?;
            Found::at(path.clone(), path)
        })
        .filter(|found| seen.insert(found.identity))
        .collect()
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The process's children, with theirs.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![];
    let mut left = vec![pid];
    while let Some(parent) = left.pop() {
        let tasks = i32::try_from(parent).ok().and_then(|parent| Process::new(parent).ok());
        let tasks = tasks
            .and_then(|process| process.tasks().ok())
            .into_iter()
            .flatten()
            .flatten();
        for child in tasks.filter_map(|task| task.children().ok()).flatten() {
            found.push(child);
            left.push(child);
        }
    }
    found
}

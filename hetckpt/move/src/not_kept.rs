//! What a program has that neither CRIU nor its plugin keeps, and that goes unnoticed: a dump names it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use procfs::process::{FDTarget, MMPermissions, MMapPath, Process};

use hetckpt_supervise::namespaces::pids;

/// Sentences of what the processes `tree` have and a restore does not give back.
pub fn of(tree: &[i32]) -> Vec<String> {
    let own = sched_getaffinity(Pid::from_raw(0)).ok();
    let mut found = vec![];
    let processes = || tree.iter().filter_map(|&pid| Process::new(pid).ok());
    found.extend(named(
        "CPU affinity",
        " (a restored program has that of `hetckpt restore`; set it with `taskset`)",
        {
            processes()
                .filter(|process| has_other_affinity(process, own))
                .map(|process| process.pid)
        },
    ));
    found.extend(named(
        "personality",
        " (`setarch`; addresses that are mapped now stay)",
        processes().filter(has_personality).map(|process| process.pid),
    ));
    let shared: BTreeSet<PathBuf> = processes().flat_map(|process| shared_memory(&process)).collect();
    if !shared.is_empty() {
        let names: Vec<String> = shared.iter().map(|path| path.display().to_string()).collect();
        found.push(format!(
            "content of shared memory that has a name (a restore takes it as it is by then): {}",
            names.join(", ")
        ));
    }
    let removed: BTreeSet<PathBuf> = processes()
        .flat_map(|process| removed_with_attributes(&process))
        .collect();
    if !removed.is_empty() {
        let names: Vec<String> = removed.iter().map(|path| path.display().to_string()).collect();
        found.push(format!("extended attributes of removed files: {}", names.join(", ")));
    }
    found
}

fn named(what: &str, more: &str, processes: impl Iterator<Item = i32>) -> Option<String> {
    let all: Vec<String> = processes.map(|pid| pids::called(pid).to_string()).collect();
    let (word, all) = (if all.len() == 1 { "process" } else { "processes" }, all.join(", "));
    (!all.is_empty()).then(|| format!("{what} of {word} {all}{more}"))
}

/// Whoever restores decides where the program runs: what it had is lost unless that is what everybody has here.
fn has_other_affinity(process: &Process, own: Option<CpuSet>) -> bool {
    let threads = process.tasks().into_iter().flatten().flatten();
    let affinity = |tid: i32| sched_getaffinity(Pid::from_raw(tid)).ok();
    let mut all = threads.filter_map(|thread| affinity(thread.tid));
    all.any(|affinity| own.is_some_and(|own| affinity != own))
}

/// POSIX shared memory (shm_open(3)) that the process can write to, and that others can still open by its name. CRIU
/// takes it for a file.
fn shared_memory(process: &Process) -> Vec<PathBuf> {
    let maps = process.maps().into_iter().flatten();
    let named = maps.filter_map(|map| match map.pathname {
        MMapPath::Path(path) if map.perms.contains(MMPermissions::SHARED | MMPermissions::WRITE) => Some(path),
        _ => None,
    });
    let is_there =
        |path: &PathBuf| path.starts_with("/dev/shm") && !path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)");
    named.filter(is_there).collect()
}

fn has_personality(process: &Process) -> bool {
    let text = fs::read_to_string(format!("/proc/{}/personality", process.pid)).unwrap_or_default();
    u32::from_str_radix(text.trim(), 16).is_ok_and(|personality| personality != 0)
}

/// Files that the process has open, and nobody else can open, with attributes of users.
fn removed_with_attributes(process: &Process) -> Vec<PathBuf> {
    let descriptors = process.fd().into_iter().flatten().flatten();
    let removed = descriptors.filter_map(|open| match open.target {
        FDTarget::Path(path) => {
            let name = path.to_str()?.strip_suffix(" (deleted)").map(PathBuf::from)?;
            has_attributes(Path::new(&format!("/proc/{}/fd/{}", process.pid, open.fd))).then_some(name)
        }
        _ => None,
    });
    removed.collect()
}

fn has_attributes(file: &Path) -> bool {
    let mut names = vec![0; 1 << 16];
    let found = rustix::fs::listxattr(file, &mut names[..]).unwrap_or(0);
    names.truncate(found);
    names.split(|&byte| byte == 0).any(|name| name.starts_with(b"user."))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_unusual_is_named() {
        let own = i32::try_from(std::process::id()).unwrap();
        let processes = |pids: Vec<i32>| named("CPU affinity", "", pids.into_iter());
        assert_eq!(processes(vec![]), None);
        assert_eq!(processes(vec![own]).unwrap(), format!("CPU affinity of process {own}"));
        assert!(
            of(&[own]).iter().all(|sentence| !sentence.contains("affinity")),
            "{:?}",
            of(&[own])
        );
    }
}

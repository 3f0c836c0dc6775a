//! Files below `/proc/PID` that the program had open, of its own processes: `/proc/self/maps` and the like.
//!
//! They are not there now: a restore makes them, by making the processes with the ids that they had. CRIU opens files
//! when all processes have been forked and none has its threads yet, and each descriptor in its turn.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Whether such a file can be opened again.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// Yes, if this machine's Linux has this file of a process.
    ComesBack(PathBuf),
    /// No, for this reason.
    IsLost(&'static str),
}

/// What becomes of `path`; `None` if it is no such file. The `processes` are those that live, `pids` are also threads
/// and such as have ended.
pub fn fate(path: &Path, processes: &BTreeSet<u32>, pids: &BTreeSet<u32>) -> Option<Fate> {
    let mut names = path.strip_prefix("/proc").ok()?.components();
    let pid = number(names.next()?)?;
    if !pids.contains(&pid) {
        return None;
    }
    let rest: Vec<Component> = names.collect();
    if rest.iter().any(|name| !matches!(name, Component::Normal(_))) {
        return None;
    }
    let like =
        |rest: &[Component]| Fate::ComesBack(rest.iter().fold(PathBuf::from("/proc/self"), |p, name| p.join(name)));
    Some(match rest.as_slice() {
        _ if !processes.contains(&pid) => {
            Fate::IsLost("it belongs to a thread, and a restore opens files before it makes threads")
        }
        [first, thread, rest @ ..] if is_named(first, "task") => match number(*thread) == Some(pid) {
            true => like(rest),
            false => Fate::IsLost("it belongs to a thread, and a restore opens files before it makes threads"),
        },
        [first, _, ..] if is_named(first, "fdinfo") || is_named(first, "fd") => {
            Fate::IsLost("it belongs to a descriptor that a restore may open later")
        }
        [first, _, ..] if is_named(first, "map_files") => {
            Fate::IsLost("it belongs to a mapping, and a restore opens files before it maps memory")
        }
        rest => like(rest),
    })
}

fn is_named(component: &Component<'_>, name: &str) -> bool {
    component.as_os_str() == name
}

fn number(component: Component<'_>) -> Option<u32> {
    component.as_os_str().to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_has_from_its_start_comes_back() {
        let (processes, pids) = (BTreeSet::from([7]), BTreeSet::from([7, 8]));
        let fate = |path: &str| fate(Path::new(path), &processes, &pids);
        let comes_back = |like: &str| Some(Fate::ComesBack(like.into()));
        assert_eq!(fate("/proc/7/maps"), comes_back("/proc/self/maps"));
        assert_eq!(fate("/proc/7/fd"), comes_back("/proc/self/fd"));
        assert_eq!(fate("/proc/7"), comes_back("/proc/self"));
        assert_eq!(fate("/proc/7/task/7/stat"), comes_back("/proc/self/stat"));
        for lost in [
            "/proc/7/task/8/stat",
            "/proc/8/stat",
            "/proc/7/fdinfo/3",
            "/proc/7/map_files/0-1",
        ] {
            assert!(matches!(fate(lost), Some(Fate::IsLost(_))), "{lost}");
        }
        for other in [
            "/proc/9/maps",
            "/proc/meminfo",
            "/proc/7/../9/maps",
            "/tmp/7/maps",
            "/proc",
        ] {
            assert_eq!(fate(other), None, "{other}");
        }
    }
}

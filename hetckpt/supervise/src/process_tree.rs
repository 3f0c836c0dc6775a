//! A process and its descendants: which there are, ending them, letting them run on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::{Process, Stat};

use crate::child_lists;

/// Ends the tree of `root` and waits (two seconds at most) until its process ids are free again; the root's may stay
/// with a zombie until its parent takes notice, which is not for us to hasten.
pub fn end(root: i32) -> bool {
    let tree = tree(root);
    signal(tree.iter().copied(), Signal::SIGKILL);
    let is_over = |&pid: &i32| is_gone(pid) && (pid == root || !is_in_use(pid));
    wait_until(|| tree.iter().all(is_over))
}

/// `root` and all its descendants, parents first.
pub fn tree(root: i32) -> Vec<i32> {
    child_lists::tree(root).unwrap_or_else(|| tree_among_all(root))
}

/// The same, by looking at every process of the machine.
fn tree_among_all(root: i32) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for stat in procfs::process::all_processes()
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|p| p.stat().ok())
    {
        children.entry(stat.ppid).or_default().push(stat.pid);
    }
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(pid) = tree.get(next) {
        tree.extend(children.get(pid).into_iter().flatten().copied().collect::<Vec<_>>());
        next += 1;
    }
    tree
}

/// Processes that this one has started, or adopted.
pub fn children() -> BTreeSet<i32> {
    let own = nix::unistd::getpid().as_raw();
    if let Some(listed) = child_lists::children(own) {
        return listed.into_iter().collect();
    }
    let all = procfs::process::all_processes().into_iter().flatten().flatten();
    let stats = all.filter_map(|process| process.stat().ok());
    stats.filter(|stat| stat.ppid == own).map(|stat| stat.pid).collect()
}

/// Those in the tree of `root` that somebody has stopped, by SIGSTOP or at a terminal.
pub fn stopped(root: i32) -> BTreeSet<i32> {
    tree(root).into_iter().filter(|&pid| is_stopped(pid)).collect()
}

/// Lets the tree of `root` run on, but for those `stopped_before`.
pub fn resume(root: i32, stopped_before: &BTreeSet<i32>) {
    let were_running = tree(root).into_iter().filter(|pid| !stopped_before.contains(pid));
    signal(were_running, Signal::SIGCONT);
}

fn signal(pids: impl IntoIterator<Item = i32>, signal: Signal) {
    for pid in pids {
        // A process that ended meanwhile needs no signal.
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

fn is_stopped(pid: i32) -> bool {
    Process::new(pid)
        .and_then(|p| p.stat())
        .is_ok_and(|stat| stat.state == 'T')
}

/// True if `pid` belongs to a process, be it a zombie.
pub fn is_in_use(pid: i32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Waits two seconds at most for `condition`; false if it did not come.
pub fn wait_until(condition: impl Fn() -> bool) -> bool {
    for _ in 0..2000 {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    condition()
}

/// True if no process `pid` runs (a zombie does not).
pub fn is_gone(pid: i32) -> bool {
    Process::new(pid)
        .and_then(|p| p.stat())
        .map_or(true, |stat| matches!(stat.state, 'Z' | 'X'))
}

/// True of a process that has ended, or that cannot but end: it has no memory, or is about to give it back.
pub fn is_ending(stat: &Stat) -> bool {
    const PF_EXITING: u32 = 0x4;
    const PF_KTHREAD: u32 = 0x0020_0000;
    let has_no_memory = stat.vsize == 0 && stat.flags & PF_KTHREAD == 0;
    matches!(stat.state, 'Z' | 'X') || stat.flags & PF_EXITING != 0 || has_no_memory
}

/// True if process `pid` has ended, or is ending: then this waits for its end, two seconds at most.
pub fn has_ended_or_ends(pid: i32) -> bool {
    let ends = || {
        Process::new(pid)
            .and_then(|p| p.stat())
            .map_or(true, |stat| is_ending(&stat))
    };
    ends() && wait_until(|| is_gone(pid))
}

/// What a file descriptor of a process is open on; empty if it is closed.
pub fn link_target(pid: i32, fd: i32) -> String {
    fs::read_link(PathBuf::from(format!("/proc/{pid}/fd/{fd}")))
        .map(|path| path.to_string_lossy().into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use procfs::FromRead;

    use super::*;

    fn stat(state: char, flags: u32, vsize: u64) -> Stat {
        let line = format!(
            "7 (a) {state} 1 7 7 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 9 {vsize} 0 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
        );
        Stat::from_read(line.as_bytes()).unwrap()
    }

    #[test]
    fn a_process_without_memory_is_ending() {
        assert!(!is_ending(&stat('R', 0x0040_0000, 4096)));
        assert!(is_ending(&stat('R', 0x0040_0004, 4096)));
        assert!(is_ending(&stat('D', 0x0040_0000, 0)));
        assert!(is_ending(&stat('Z', 0, 0)));
        assert!(!is_ending(&stat('S', 0x0020_8040, 0)), "a thread of Linux's own");
    }

    #[test]
    fn both_ways_find_the_same_tree() {
        // Two that have no children, and one whose child has one.
        let script = "sleep 60 & sleep 60 & sh -c 'sleep 60 & wait' & echo; wait";
        let mut shell = std::process::Command::new("sh")
            .args(["-c", script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let root = i32::try_from(shell.id()).unwrap();
        assert!(wait_until(|| tree_among_all(root).len() == 5));
        let found = tree(root);
        let all: BTreeSet<i32> = tree_among_all(root).into_iter().collect();
        assert_eq!((found.len(), found.first()), (5, Some(&root)));
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), all);
        assert!(end(root));
        shell.wait().unwrap();
        assert_eq!(tree(root), [root]);
    }

    #[test]
    fn the_ended_are_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(wait_until(|| has_ended_or_ends(pid)));
        child.wait().unwrap();
        assert!(has_ended_or_ends(pid));
        assert!(!has_ended_or_ends(i32::try_from(std::process::id()).unwrap()));
    }
}

//! A process's descendants by the lists that Linux keeps of each thread's children. So it does not matter how many
//! other processes the machine has: servers with many cores have thousands of Linux's own.
//!
//! # Source
//! `proc_pid_children(5)`: the file is there if Linux was built with `CONFIG_PROC_CHILDREN`, as CRIU wants it. It may
//! leave out a child if another one ends while it is read.

use std::fs;
use std::io;
use std::path::Path;

/// How often a list is read until it is the same twice.
const MOST_READS: u32 = 8;

/// `root` and all its descendants, parents first; `None` if Linux keeps no such lists, or they change too fast.
pub fn tree(root: i32) -> Option<Vec<i32>> {
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(&pid) = tree.get(next) {
        tree.extend(children(pid)?);
        next += 1;
    }
    Some(tree)
}

/// Children of all threads of a process, none if it has ended; `None` likewise.
pub fn children(pid: i32) -> Option<Vec<i32>> {
    if !Path::new("/proc/thread-self/children").exists() {
        return None;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists = threads.map(|thread| same_twice(|| list(&thread.path().join("children"))));
    let mut children = lists.collect::<Option<Vec<_>>>()?.concat();
    children.sort_unstable();
    Some(children)
}

/// What is read twice one after the other. If a child ends while a list is read, it is not in the next one. One without
/// any is right at once: where there are some, the first is in it.
fn same_twice(read: impl Fn() -> io::Result<Vec<i32>>) -> Option<Vec<i32>> {
    let mut before = None;
    for _ in 0..MOST_READS {
        // A thread that has ended has none.
        let now = read().unwrap_or_default();
        if now.is_empty() || before.as_ref() == Some(&now) {
            return Some(now);
        }
        before = Some(now);
    }
    None
}

fn list(path: &Path) -> io::Result<Vec<i32>> {
    let text = fs::read_to_string(path)?;
    let pids = text
        .split_whitespace()
        .map(|word| word.parse().map_err(io::Error::other));
    pids.collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Reads that give one of `lists` after the other, the last one again and again.
    fn after_reading(lists: &[&[i32]]) -> Option<Vec<i32>> {
        let at = Cell::new(0);
        same_twice(|| {
            let now = lists[at.get().min(lists.len() - 1)];
            at.set(at.get() + 1);
            Ok(now.to_vec())
        })
    }

    #[test]
    fn a_list_from_which_a_child_was_left_out_is_not_believed() {
        // 2 ended and took 3's place away.
        let lists: [&[i32]; 2] = [&[1, 2, 4], &[1, 3, 4]];
        assert_eq!(after_reading(&lists).unwrap(), [1, 3, 4]);
        assert_eq!(after_reading(&[&[]]).unwrap(), [0; 0]);
    }

    #[test]
    fn lists_that_go_on_changing_are_given_up() {
        let changing: Vec<Vec<i32>> = (1..20).map(|pid| vec![pid]).collect();
        let changing: Vec<&[i32]> = changing.iter().map(Vec::as_slice).collect();
        assert_eq!(after_reading(&changing), None);
    }

    #[test]
    fn a_process_that_has_ended_has_no_children() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        child.wait().unwrap();
        assert_eq!(tree(pid), Some(vec![pid]));
    }
}

//! Process ids of one process in several namespaces.

use std::path::PathBuf;

use procfs::process::{Process, all_processes};

/// In the environment of a command that has gone into a job's namespaces: what the process that it was told is called
/// there, and by whoever called it.
pub const CALLED: &str = "HETCKPT_CALLED";

/// What whoever gave the command calls process `pid`.
pub fn called(pid: i32) -> i32 {
    let names = std::env::var(CALLED).unwrap_or_default();
    let mut names = names.split(' ').map_while(|name| name.parse::<i32>().ok());
    match (names.next(), names.next()) {
        (Some(within), Some(without)) if within == pid => without,
        _ => pid,
    }
}

/// The namespace of the process ids of `pid`; `None` if it is gone or nothing of ours.
pub fn namespace(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// What process `pid` is called in its own namespace.
pub fn own_name(pid: i32) -> Option<i32> {
    Process::new(pid).ok()?.status().ok()?.nspid?.last().copied()
}

/// The process that is called `name` in `namespace`, as it is called here.
pub fn find(namespace: &PathBuf, name: i32) -> Option<i32> {
    let processes = all_processes().into_iter().flatten().flatten();
    processes
        .map(|process| process.pid)
        .find(|&pid| own_name(pid) == Some(name) && self::namespace(pid).as_ref() == Some(namespace))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_its_own_name() {
        let own = i32::try_from(std::process::id()).unwrap();
        let namespace = namespace(own).unwrap();
        assert_eq!(find(&namespace, own_name(own).unwrap()), Some(own));
        assert_eq!(find(&namespace, 0), None);
        assert_eq!(find(&PathBuf::from("pid:[1]"), own), None);
    }
}

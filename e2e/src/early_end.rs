//! Programs whose kernels sleep come to their end soon after SIGUSR1 (`e2e/programs/paced_work.h`): a test that has
//! seen enough need not wait for the rest.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Their names. None of them becomes another program, which would not catch the signal.
const NAMES: [&str; 5] = ["paced", "memory_hog", "worker_tree", "blocked_threads", "mpi_ring"];

/// Lets process `pid` hurry, if it is such a program. One that CRIU is just building is not yet: it has the program's
/// name and signal handlers before it has its memory, but still CRIU's file.
pub fn process(pid: i32) {
    let file = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let is_one = NAMES
        .iter()
        .any(|name| file.file_name().is_some_and(|found| found == *name));
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap_or_default().trim(), 16).unwrap_or_default();
    let catches = caught >> (Signal::SIGUSR1 as u32 - 1) & 1 == 1;
    if is_one && catches {
        // One that ended meanwhile needs no signal.
        let _ = kill(Pid::from_raw(pid), Signal::SIGUSR1);
    }
}

/// Lets all such programs hurry that process `pid`, or one of those, has started.
pub fn descendants(pid: i32) {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let parents: Vec<(i32, i32)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, its)| *its == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.into_iter().for_each(process);
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

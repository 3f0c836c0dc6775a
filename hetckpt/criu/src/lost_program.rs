//! A restore that waits for ever. Once CRIU attaches to what it has restored it no longer heeds that its children end
//! (criu/cr-restore.c, `restore_root_task`): where the program is killed in that moment, CRIU waits for it without end.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use procfs::process::Stat;

/// Looks whether the program that CRIU restores is still there.
#[derive(Debug)]
pub struct ProgramWatch {
    /// Whoever was there before is not of the program.
    before: BTreeSet<i32>,
    /// How long it has to be gone.
    grace: Duration,
    has_been_seen: bool,
    missing_since: Option<Instant>,
}

impl ProgramWatch {
    /// To be called before CRIU is started.
    #[must_use]
    pub fn new(grace: Duration) -> Self {
        Self {
            grace,
            before: below_this_process().iter().map(|stat| stat.pid).collect(),
            has_been_seen: false,
            missing_since: None,
        }
    }

    /// True if the program has been there, and has been gone for long enough. `is_criu` knows CRIU's own processes; one
    /// that is to become the program is still one of these.
    pub fn is_lost(&mut self, is_criu: impl Fn(i32) -> bool) -> bool {
        let is_there = below_this_process()
            .iter()
            .any(|stat| !matches!(stat.state, 'Z' | 'X') && !self.before.contains(&stat.pid) && !is_criu(stat.pid));
        self.has_been_seen |= is_there;
        self.missing_since = match is_there || !self.has_been_seen {
            true => None,
            false => self.missing_since.or_else(|| Some(Instant::now())),
        };
        self.missing_since.is_some_and(|since| since.elapsed() >= self.grace)
    }
}

/// The children of this process, and theirs.
fn below_this_process() -> Vec<Stat> {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    let mut others: Vec<Stat> = processes.filter_map(|process| process.stat().ok()).collect();
    let mut found: Vec<Stat> = vec![];
    let mut parents = BTreeSet::from([nix::unistd::getpid().as_raw()]);
    while !parents.is_empty() {
        let (below, rest): (Vec<Stat>, Vec<Stat>) = others.into_iter().partition(|stat| parents.contains(&stat.ppid));
        parents = below.iter().map(|stat| stat.pid).collect();
        found.extend(below);
        others = rest;
    }
    found
}

//! A restore that waits for ever. Once CRIU attaches to what it has restored it no longer heeds that its children end
//! (criu/cr-restore.c, `restore_root_task`): where the program is killed in that moment, CRIU waits for it without end.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use procfs::process::Stat;

/// How many times as long CRIU may be without a program that nobody has seen: it may not have begun.
const UNSEEN_GRACE: u32 = 6;

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

    /// True if the program has been gone for long enough. `criu` are CRIU's own processes, and those that are to become
    /// the program: CRIU alone is left of them then.
    pub fn is_lost(&mut self, criu: &BTreeSet<i32>) -> bool {
        let mut program = below_this_process();
        program.retain(|stat| !self.before.contains(&stat.pid) && !criu.contains(&stat.pid));
        let is_there = criu.len() > 1 || program.iter().any(|stat| !matches!(stat.state, 'Z' | 'X'));
        // One that was killed at once may have left no more than its process id.
        self.has_been_seen |= is_there || !program.is_empty();
        self.missing_since = match is_there {
            true => None,
            false => self.missing_since.or_else(|| Some(Instant::now())),
        };
        let grace = match self.has_been_seen {
            true => self.grace,
            false => self.grace * UNSEEN_GRACE,
        };
        self.missing_since.is_some_and(|since| since.elapsed() >= grace)
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

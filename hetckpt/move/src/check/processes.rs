//! Are the process ids free?

use hetckpt_ring::failure_code::Code;
use std::fs;

use hetckpt_criu::needs::Needs;
use hetckpt_report::finding::Finding;
use hetckpt_supervise::process_tree;

/// Name of the check.
pub const CHECK: &str = "process-ids";

const CODE: Code = Code::ProcessIdTaken;

/// How many are named.
const MAX_NAMED: usize = 5;

/// As [`examine_ids`], of what a restore needs.
pub fn examine(needs: &Needs) -> Finding {
    examine_ids(needs.pids.iter().copied())
}

/// Processes and threads get the ids that they had. Waits a moment for processes that have ended, since their parents
/// may be about to take notice.
pub fn examine_ids(pids: impl Iterator<Item = u32>) -> Finding {
    let pids: Vec<i32> = pids.filter_map(|pid| i32::try_from(pid).ok()).collect();
    let problem = |found: String, help: &str| Finding {
        code: Some(CODE),
        ..Finding::problem(CHECK, found, help)
    };
    let limit = fs::read_to_string("/proc/sys/kernel/pid_max").ok();
    let limit: Option<i32> = limit.and_then(|text| text.trim().parse().ok());
    if let Some((pid, limit)) = pids
        .iter()
        .max()
        .copied()
        .zip(limit)
        .filter(|(pid, limit)| pid >= limit)
    {
        return problem(
            format!(
                "process id {pid} of the snapshot is beyond what this machine gives out (kernel.pid_max = {limit})"
            ),
            "raise it: sysctl -w kernel.pid_max=4194304",
        );
    }
    let taken = || -> Vec<i32> {
        pids.iter()
            .copied()
            .filter(|&pid| process_tree::is_in_use(pid))
            .collect()
    };
    if taken().iter().all(|&pid| process_tree::is_gone(pid)) && process_tree::wait_until(|| taken().is_empty()) {
        return Finding::ok(CHECK, format!("all {} are free", pids.len()));
    }
    let taken = taken();
    let named = taken
        .iter()
        .take(MAX_NAMED)
        .map(|&pid| owner(pid))
        .collect::<Vec<_>>()
        .join(", ");
    problem(
        format!(
            "{} of the snapshot's {} process ids are in use: {named}",
            taken.len(),
            pids.len()
        ),
        "end these processes, or restore in namespaces of its own: hetckpt restore --namespaces always …",
    )
}

/// `4711 (name)`.
fn owner(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let state = if process_tree::is_gone(pid) {
        ", ended, but its parent has not noticed"
    } else {
        ""
    };
    format!("{pid} ({}{state})", name.trim())
}

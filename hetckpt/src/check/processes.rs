//! Are the process ids free?

use crate::criu::images::Needs;
use crate::finding::Finding;
use crate::target;

const CHECK: &str = "process-ids";
/// How many are named.
const MAX_NAMED: usize = 5;

/// Processes and threads get the ids that they had.
pub fn examine(needs: &Needs) -> Finding {
    let is_taken = |pid: &&u32| i32::try_from(**pid).is_ok_and(target::is_in_use);
    let taken: Vec<String> = needs.pids.iter().filter(is_taken).map(u32::to_string).collect();
    if taken.is_empty() {
        return Finding::ok(CHECK, format!("all {} are free", needs.pids.len()));
    }
    let named = taken.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
    let mut finding = Finding::problem(
        CHECK,
        format!("{} of {} are in use: {named}", taken.len(), needs.pids.len()),
        "end these processes, or restore in a pid namespace of its own: unshare --pid --fork --mount-proc hetckpt restore …",
    );
    finding.code = Some("HK0905".to_owned());
    finding
}

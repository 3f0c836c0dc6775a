//! Is there a device that can go on with the kernels?

use hetckpt_state::summary::{Requirements, Summary};
use serde_json::Value;

use super::kernels::{self, Lacking};
use crate::commands::{devices, inspect};
use crate::diagnostic::Failure;
use crate::finding::Finding;
use crate::install::Installation;
use crate::output;
use crate::snapshot::Snapshot;

const CHECK: &str = "device";

/// Compares what the processes had on their devices with the device that is wanted, kernels that are not stopped too.
pub fn examine(snapshot: &Snapshot, wanted: &str) -> Vec<Finding> {
    compare_with(snapshot, wanted, Kernels::All).unwrap_or_else(|failure| vec![Finding::failed(CHECK, &failure)])
}

/// As [`examine`], but for kernels that are not stopped; a device that is not there at all is a failure.
pub fn compare(snapshot: &Snapshot, wanted: &str) -> Result<Vec<Finding>, Failure> {
    compare_with(snapshot, wanted, Kernels::Stopped)
}

/// Which kernels are compared with the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernels {
    Stopped,
    All,
}

fn compare_with(snapshot: &Snapshot, wanted: &str, which: Kernels) -> Result<Vec<Finding>, Failure> {
    let summaries = inspect::summaries(snapshot.manifest())?;
    if summaries.is_empty() {
        return Ok(vec![Finding::ok(
            CHECK,
            "none is needed: no process had made a CUDA call",
        )]);
    }
    with_device(wanted, |device| {
        let mut findings = vec![judge(&summaries, device)];
        let lacks = kernels::lacks(device);
        if !lacks.is_empty() {
            let mut lacking = Lacking::default();
            // One after another: each may be large.
            for summary in &summaries {
                let state = snapshot.device_state(summary.pid)?;
                lacking.look_at_stopped(&state, &lacks);
                if which == Kernels::All {
                    lacking.look_at_others(&state, &lacks);
                }
            }
            findings.extend(lacking.findings());
        }
        Ok(findings)
    })
}

/// Is there a device with room for processes of which each has so many bytes? Nobody knows yet what kinds of devices can go on with them.
pub fn has_room(sizes: &[u64], wanted: &str) -> Result<Vec<Finding>, Failure> {
    with_device(wanted, |device| Ok(vec![judge_room(sizes, device)]))
}

/// Looks at the device that is meant; one that is not there at all is a failure.
fn with_device(
    wanted: &str,
    look: impl FnOnce(&Value) -> Result<Vec<Finding>, Failure>,
) -> Result<Vec<Finding>, Failure> {
    let all = devices::list(&Installation::find()?)?;
    devices::require_among(&all, wanted)?;
    // What the server takes for `auto`: the first GPU, else the CPU.
    let is_meant = |device: &&Value| match wanted {
        "auto" => matches!(device["kind"].as_str(), Some("cuda" | "cpu")),
        _ => devices::is_called(device["id"].as_str().unwrap_or_default(), wanted),
    };
    let Some(device) = all.iter().find(is_meant) else {
        return Ok(vec![Finding::problem(
            CHECK,
            "this machine has no device",
            "`hetckpt devices` lists them",
        )]);
    };
    look(device)
}

fn judge(summaries: &[Summary], device: &Value) -> Finding {
    let text = |key: &str| device[key].as_str().unwrap_or_default();
    let name = format!("{} ({})", text("id"), text("name"));
    let kind = text("kind");
    if let Some(summary) = summaries.iter().find(|s| !s.restorable_on.iter().any(|k| k == kind)) {
        return problem(
            format!("process {} cannot go on with {name}", summary.pid),
            format!(
                "name one of these kinds of devices: {}",
                summary.restorable_on.join(", ")
            ),
        );
    }
    let too_large = |summary: &Summary| Some((summary.pid, exceeded(&summary.requires, device)?));
    if let Some((pid, what)) = summaries.iter().find_map(too_large) {
        return problem(
            format!("process {pid} has kernels in flight with {what} {name} takes at most"),
            "name another device (--device); `hetckpt devices` lists them",
        );
    }
    let sizes: Vec<u64> = summaries.iter().map(|s| s.mapped_bytes).collect();
    judge_room(&sizes, device)
}

/// What of the blocks in flight is more than the device takes. What single kernels may have less than that, a restore finds when it has
/// built them.
fn exceeded(needs: &Requirements, device: &Value) -> Option<String> {
    // One that does not tell is left to the restore.
    let limit = |key: &str| device[key].as_u64().filter(|&limit| limit > 0).unwrap_or(u64::MAX);
    let (threads, shared) = (limit("max_threads_per_block"), limit("max_shared_bytes_per_block"));
    if needs.threads_per_block > threads {
        return Some(format!("blocks of {} threads, and {threads}", needs.threads_per_block));
    }
    if needs.shared_bytes_per_block > shared {
        return Some(format!(
            "blocks with {} of shared memory, and {}",
            output::bytes(needs.shared_bytes_per_block),
            output::bytes(shared)
        ));
    }
    // Elsewhere it depends on the kernel.
    let together = device["opencl"]["max_cooperative_blocks"]
        .as_u64()
        .filter(|&limit| limit > 0);
    let together = together.filter(|&limit| needs.cooperative_blocks > limit)?;
    Some(format!(
        "{} blocks that wait for one another (a cooperative launch), and {together}",
        needs.cooperative_blocks
    ))
}

fn judge_room(sizes: &[u64], device: &Value) -> Finding {
    let text = |key: &str| device[key].as_str().unwrap_or_default();
    let name = format!("{} ({})", text("id"), text("name"));
    let needed = sizes.iter().fold(0u64, |sum, &size| sum.saturating_add(size));
    let free = device["free_bytes"].as_u64().unwrap_or_default();
    let found = format!("{name}: {} needed, {} free", output::bytes(needed), output::bytes(free));
    if needed > free {
        let help = "free memory of the device, or name another (--device)";
        return problem(found, help);
    }
    Finding::ok(CHECK, found)
}

fn problem(found: String, help: impl Into<String>) -> Finding {
    Finding {
        code: Some("HK0504".to_owned()),
        ..Finding::problem(CHECK, found, help)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn blocks_that_are_too_large_are_found() {
        let device = json!({ "max_threads_per_block": 256, "max_shared_bytes_per_block": 32768 });
        let found = |threads_per_block, shared_bytes_per_block, device: &Value| {
            let needs = Requirements {
                memory_bytes: 0,
                threads_per_block,
                shared_bytes_per_block,
                cooperative_blocks: 4,
            };
            exceeded(&needs, device)
        };
        assert_eq!(found(256, 32768, &device), None);
        let threads = found(257, 32768, &device);
        assert_eq!(threads.as_deref(), Some("blocks of 257 threads, and 256"));
        let shared = found(256, 49152, &device);
        assert_eq!(
            shared.as_deref(),
            Some("blocks with 48.0 KiB of shared memory, and 32.0 KiB")
        );
        assert_eq!(found(1024, 1 << 20, &json!({})), None);
        let opencl = |max| json!({ "opencl": { "max_cooperative_blocks": max } });
        assert_eq!(found(1, 0, &opencl(4)), None);
        let together = found(1, 0, &opencl(3));
        assert_eq!(
            together.as_deref(),
            Some("4 blocks that wait for one another (a cooperative launch), and 3")
        );
    }
}

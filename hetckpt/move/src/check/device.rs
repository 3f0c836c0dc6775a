//! Is there a device that can go on with the kernels?

use hetckpt_report::failure::Failure;
use hetckpt_report::finding::Finding;
use hetckpt_report::quantity;
use hetckpt_ring::failure_code::Code;
use hetckpt_ring::message::DeviceSummary;
use hetckpt_ring::question::Lacking;
use hetckpt_state::native_code::NativeCode;
use hetckpt_state::summary::{Requirements, Summary};

use crate::check::kernels;
use crate::devices;
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
    let summaries: Vec<&Summary> = snapshot.manifest().summaries().collect();
    if summaries.is_empty() {
        return Ok(vec![Finding::ok(
            CHECK,
            "none is needed: no process had made a CUDA call",
        )]);
    }
    with_device(wanted, |device| {
        let mut findings = vec![judge(&summaries, device)];
        let lacks = device.opencl.as_ref().map_or(&[][..], |opencl| &opencl.lacks);
        if !lacks.is_empty() {
            let mut lacking = Lacking::default();
            for summary in &summaries {
                let state = snapshot.packed_state(summary.pid)?;
                let of_process = kernels::lacking(&state, lacks, which == Kernels::All)?;
                lacking.stopped.extend(of_process.stopped);
                lacking.others.extend(of_process.others);
            }
            findings.extend(kernels::findings(&lacking));
        }
        Ok(findings)
    })
}

/// Is there a device with room for processes of which each has so many bytes? Nobody knows yet what kinds of devices
/// can go on with them.
pub fn has_room(sizes: &[u64], wanted: &str) -> Result<Vec<Finding>, Failure> {
    with_device(wanted, |device| Ok(vec![judge_room(sizes, device)]))
}

/// Looks at the device that is meant; one that is not there at all is a failure.
fn with_device(
    wanted: &str,
    look: impl FnOnce(&DeviceSummary) -> Result<Vec<Finding>, Failure>,
) -> Result<Vec<Finding>, Failure> {
    let all = devices::list()?;
    devices::require_among(&all, wanted)?;
    // What the server takes for `auto`: the first GPU, else the CPU.
    let is_meant = |device: &&DeviceSummary| match wanted {
        "auto" => matches!(&*device.kind, "cuda" | "cpu"),
        _ => devices::is_called(&device.id, wanted),
    };
    let Some(device) = all.iter().find(is_meant) else {
        return Ok(vec![Finding::problem(
            CHECK,
            "this machine has no device",
            "install a GPU's driver, or hetckpt's code generator for the CPU (`hetckpt doctor` says what is missing)",
        )]);
    };
    look(device)
}

fn judge(summaries: &[&Summary], device: &DeviceSummary) -> Finding {
    let name = format!("{} ({})", device.id, device.name);
    if let Some(summary) = summaries.iter().find(|s| !s.restorable_on.contains(&device.kind)) {
        let kernels = match &summary.native_code[..] {
            [] => String::new(),
            codes => format!(", as it has kernels only for some GPUs ({})", listed(codes.iter())),
        };
        let arrays = match (summary.num_arrays, summary.num_image_objects) {
            (0, 0) => "",
            _ => ", as it has arrays, or texture or surface objects",
        };
        return problem(
            format!("process {} cannot go on with {name}{kernels}{arrays}", summary.pid),
            format!(
                "name one of these kinds of devices: {}",
                summary.restorable_on.join(", ")
            ),
        );
    }
    if let Some((pid, kernels)) = summaries
        .iter()
        .copied()
        .find_map(|s| Some((s.pid, not_run(s, device)?)))
    {
        return problem(
            format!("process {pid} has kernels that {name} does not run ({kernels})"),
            "name a GPU that they were compiled for (--device); `hetckpt devices --json` tells compute capabilities",
        );
    }
    let too_large = |summary: &Summary| Some((summary.pid, exceeded(&summary.requires, device)?));
    if let Some((pid, what)) = summaries.iter().copied().find_map(too_large) {
        return problem(
            format!("process {pid} has a kernel in flight with {what}; that is too much for {name}"),
            "name another device (--device); `hetckpt devices` lists them",
        );
    }
    let of_arrays = |s: &&Summary| s.mapped_bytes.saturating_add(s.array_bytes);
    let sizes: Vec<u64> = summaries.iter().map(of_arrays).collect();
    judge_room(&sizes, device)
}

/// Kernels that are run as they came and that a CUDA device does not run, in words.
fn not_run(summary: &Summary, device: &DeviceSummary) -> Option<String> {
    let capability = device.compute_capability?;
    let mut codes = summary
        .native_code
        .iter()
        .filter(|code| !code.runs_on(capability))
        .peekable();
    codes.peek()?;
    Some(listed(codes))
}

fn listed<'a>(codes: impl Iterator<Item = &'a NativeCode>) -> String {
    codes.map(NativeCode::to_string).collect::<Vec<_>>().join("; ")
}

/// What of the blocks in flight is more than the device takes. What single kernels may have less than that, a restore
/// finds when it has built them.
fn exceeded(needs: &Requirements, device: &DeviceSummary) -> Option<String> {
    // One that does not tell is left to the restore.
    let is_beyond = |needed: u64, limit: u64| limit > 0 && needed > limit;
    let (threads, shared) = (
        device.max_threads_per_block.into(),
        device.max_shared_bytes_per_block.into(),
    );
    if is_beyond(needs.threads_per_block, threads) {
        return Some(format!(
            "blocks of {} threads, where {threads} are possible",
            needs.threads_per_block
        ));
    }
    if is_beyond(needs.shared_bytes_per_block, shared) {
        return Some(format!(
            "blocks with {} of shared memory, where {} are possible",
            quantity::bytes(needs.shared_bytes_per_block),
            quantity::bytes(shared)
        ));
    }
    // Elsewhere it depends on the kernel.
    let together = device.opencl.as_ref()?.max_cooperative_blocks;
    if !is_beyond(needs.cooperative_blocks, together) {
        return None;
    }
    Some(format!(
        "{} blocks that wait for one another (a cooperative launch), where {together} are possible",
        needs.cooperative_blocks
    ))
}

fn judge_room(sizes: &[u64], device: &DeviceSummary) -> Finding {
    let name = format!("{} ({})", device.id, device.name);
    let needed = sizes.iter().fold(0u64, |sum, &size| sum.saturating_add(size));
    let free = device.free_bytes;
    let found = format!(
        "{name}: {} needed, {} free",
        quantity::bytes(needed),
        quantity::bytes(free)
    );
    if needed > free {
        let help = "free memory of the device, or name another (--device)";
        return problem(found, help);
    }
    Finding::ok(CHECK, found)
}

fn problem(found: String, help: impl Into<String>) -> Finding {
    Finding {
        code: Some(Code::DeviceFailed),
        ..Finding::problem(CHECK, found, help)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use hetckpt_ring::message::OpenClSummary;
    use serde_json::json;

    use super::*;

    #[test]
    fn blocks_that_are_too_large_are_found() {
        let device = DeviceSummary {
            max_threads_per_block: 256,
            max_shared_bytes_per_block: 32768,
            ..DeviceSummary::default()
        };
        let found = |threads_per_block, shared_bytes_per_block, device: &DeviceSummary| {
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
        assert_eq!(
            threads.as_deref(),
            Some("blocks of 257 threads, where 256 are possible")
        );
        let shared = found(256, 49152, &device);
        assert_eq!(
            shared.as_deref(),
            Some("blocks with 48.0 KiB of shared memory, where 32.0 KiB are possible")
        );
        assert_eq!(found(1024, 1 << 20, &DeviceSummary::default()), None);
        let opencl = |max_cooperative_blocks| DeviceSummary {
            opencl: Some(OpenClSummary {
                max_cooperative_blocks,
                ..OpenClSummary::default()
            }),
            ..DeviceSummary::default()
        };
        assert_eq!(found(1, 0, &opencl(4)), None);
        let together = found(1, 0, &opencl(3));
        assert_eq!(
            together.as_deref(),
            Some("4 blocks that wait for one another (a cooperative launch), where 3 are possible")
        );
    }

    #[test]
    fn kernels_for_other_gpus_are_named() {
        let gpu = |compute_capability| DeviceSummary {
            id: "cuda:0".to_owned(),
            kind: "cuda".to_owned(),
            name: "GPU".to_owned(),
            compute_capability: Some(compute_capability),
            ..DeviceSummary::default()
        };
        let summary: Summary = serde_json::from_value(json!({
            "pid": 7, "devices": [], "allocations": [], "allocated_bytes": 0, "mapped_bytes": 0, "stored_bytes": 0,
            "pinned_bytes": 0, "num_modules": 1, "num_streams": 0, "num_events": 0, "num_held_commands": 0,
            "kernels_in_flight": [], "restorable_on": ["cuda"],
            "native_code": [{"compiled_for": ["sm_90"], "kernels": ["gemm", "scan"], "num_kernels": 7}],
            "requires": {"memory_bytes": 0, "threads_per_block": 0},
        }))
        .unwrap();
        let found = |device: &DeviceSummary| judge(&[&summary], device).found;
        assert_eq!(found(&gpu([9, 0])), "cuda:0 (GPU): 0 B needed, 0 B free");
        assert_eq!(
            found(&gpu([8, 6])),
            "process 7 has kernels that cuda:0 (GPU) does not run (sm_90: gemm, scan, and 5 more)"
        );
        let cpu = DeviceSummary {
            id: "cpu".to_owned(),
            kind: "cpu".to_owned(),
            name: "CPU".to_owned(),
            ..DeviceSummary::default()
        };
        assert_eq!(
            found(&cpu),
            "process 7 cannot go on with cpu (CPU), as it has kernels only for some GPUs (sm_90: gemm, scan, and 5 \
             more)"
        );
    }
}

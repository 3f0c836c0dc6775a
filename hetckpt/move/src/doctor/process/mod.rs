//! Whether a process that runs could be checkpointed, and what stands against it: `hetckpt doctor --pid` prints it.
//!
//! It looks from outside, and stops nothing. What is seen only while CRIU works is not found here.

mod driver_calls;
mod driver_files;
mod shim_functions;

use std::time::Duration;

use hetckpt_report::failure::Failure;
use hetckpt_report::finding::Finding;
use hetckpt_ring::failure_code::Code;
use hetckpt_supervise::process_tree;
use hetckpt_supervise::target::Target;

use crate::{not_kept, obstacles};

/// Looks at process `pid` with its children; at its driver calls for `time`.
pub fn examine(pid: i32, time: Duration) -> Result<Vec<Finding>, Failure> {
    let mut findings = vec![match Target::find(pid) {
        Ok(target) => Finding::ok("process", format!("{} runs under hetckpt", target.command.join(" "))),
        Err(failure) if failure.code == Code::NotUnderHetckpt => Finding::failed("process", &failure),
        Err(failure) => return Err(failure),
    }];
    let tree = process_tree::tree(pid);
    findings.extend(driver_files::examine(&tree));
    findings.extend(against_criu(&tree));
    findings.extend(lost(&tree));
    findings.push(driver_calls::examine(pid, time)?);
    Ok(findings)
}

/// What CRIU would not dump.
fn against_criu(tree: &[i32]) -> Vec<Finding> {
    const CHECK: &str = "criu-obstacles";
    let found = obstacles::all(tree);
    if found.is_empty() {
        return vec![Finding::ok(CHECK, "none is seen from outside")];
    }
    found.iter().map(|failure| Finding::failed(CHECK, failure)).collect()
}

/// What a restore would not give back.
fn lost(tree: &[i32]) -> Vec<Finding> {
    const CHECK: &str = "not-kept";
    let help = "a restored program goes on without it: see whether it needs that";
    let found = not_kept::of(tree);
    if found.is_empty() {
        return vec![Finding::ok(CHECK, "nothing would be lost unnoticed")];
    }
    found
        .into_iter()
        .map(|what| Finding::warning(CHECK, what, help))
        .collect()
}

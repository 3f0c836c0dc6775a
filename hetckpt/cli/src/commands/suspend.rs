//! `hetckpt suspend`: take a program off its device.

use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;

use hetckpt_report::{quantity, remark};
use hetckpt_supervise::namespaces::enter;
use hetckpt_supervise::suspend_and_resume::{Place, suspend};
use hetckpt_supervise::target::Target;

use crate::arguments::Suspend;
use crate::output;

/// Suspends the program.
pub fn run(options: &Suspend) -> anyhow::Result<ExitCode> {
    if let Some(code) = enter::run_where(options.pid)? {
        return Ok(code);
    }
    let place = match options.to.to_str() {
        Some("ram") => Place::Ram,
        _ => Place::File(options.to.clone()),
    };
    let target = Target::find(options.pid)?;
    let started = Instant::now();
    let done = suspend(&target, &place, options.pause_timeout)?;
    let total = started.elapsed();
    if options.json {
        output::json(&json!({
            "pid": target.called(),
            "processes": done.processes,
            "memory_bytes": done.memory_bytes,
            "seconds": { "pause": done.pause.as_secs_f64(), "total": total.as_secs_f64() },
        }));
    } else if done.processes > 0 {
        remark::note(format!(
            "process {}: {} taken off the device in {}; kernels stopped after {}",
            target.called(),
            quantity::bytes(done.memory_bytes),
            quantity::duration(total),
            quantity::duration(done.pause)
        ));
    }
    Ok(ExitCode::SUCCESS)
}

//! `hetckpt resume`: let a suspended program go on.

use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;

use hetckpt_report::{quantity, remark};
use hetckpt_supervise::namespaces::enter;
use hetckpt_supervise::suspend_and_resume::resume;
use hetckpt_supervise::target::Target;

use crate::arguments::Resume;
use crate::output;

/// Resumes the program.
pub fn run(options: &Resume) -> anyhow::Result<ExitCode> {
    if let Some(code) = enter::run_where(options.pid)? {
        return Ok(code);
    }
    let target = Target::find(options.pid)?;
    let started = Instant::now();
    let processes = resume(&target, options.device.as_deref())?;
    let total = started.elapsed();
    if options.json {
        output::json(&json!({
            "pid": target.called(),
            "processes": processes,
            "seconds": { "total": total.as_secs_f64() },
        }));
    } else if processes > 0 {
        remark::note(format!(
            "process {} goes on after {}",
            target.called(),
            quantity::duration(total)
        ));
    }
    Ok(ExitCode::SUCCESS)
}

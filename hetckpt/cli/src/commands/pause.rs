//! `hetckpt pause`: stop a program's kernels for a while, without dumping it.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use hetckpt_report::quantity;
use hetckpt_supervise::namespaces::enter;
use hetckpt_supervise::pause_and_resume::{Pauses, pause};
use hetckpt_supervise::target::Target;

use crate::arguments::Pause;
use crate::output;

/// Pauses, holds, lets go; as often as asked.
pub fn run(options: &Pause) -> anyhow::Result<ExitCode> {
    if let Some(code) = enter::run_where(options.pid)? {
        return Ok(code);
    }
    let target = Target::find(options.pid)?;
    let pauses = Pauses {
        hold: Duration::from_millis(options.hold_ms),
        repeat: options.repeat,
        interval: Duration::from_millis(options.interval_ms),
        timeout_s: options.pause_timeout,
    };
    let latencies: Vec<f64> = pause(&target, &pauses)?.iter().map(|l| l.as_secs_f64() * 1e3).collect();
    let percentile = |p: usize| latencies[(latencies.len() - 1) * p / 100];
    if options.json {
        output::json(&json!({
            "pid": target.called(),
            "pauses": latencies.len(),
            "milliseconds": {
                "p50": percentile(50), "p90": percentile(90), "p99": percentile(99), "max": percentile(100),
                "all": latencies,
            },
        }));
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format!(
        "{}: p50 {:.3} ms, p99 {:.3} ms, longest {:.3} ms",
        quantity::counted(latencies.len(), "pause"),
        percentile(50),
        percentile(99),
        percentile(100)
    ));
    Ok(ExitCode::SUCCESS)
}

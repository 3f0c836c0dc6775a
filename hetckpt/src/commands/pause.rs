//! `hetckpt pause`: stops a program's kernels for a while, without dumping it.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use crate::cli::Pause;
use crate::diagnostic::Failure;
use crate::namespaces::enter;
use crate::output;
use crate::server_client;
use crate::target::Target;

/// Pauses, holds, lets go; as often as asked.
pub fn run(options: Pause) -> anyhow::Result<ExitCode> {
    if let Some(code) = enter::run_where(options.pid)? {
        return Ok(code);
    }
    let target = Target::find(options.pid)?;
    let mut holds = server_client::holds(&target.tree())?;
    if holds.is_empty() {
        return Err(Failure::new(
            "HK0802",
            format!("process {} has made no CUDA call yet", target.called()),
        )
        .into());
    }
    let mut latencies = vec![];
    for round in 0..options.repeat {
        if round > 0 {
            std::thread::sleep(Duration::from_millis(options.interval_ms));
        }
        let mut slowest = Duration::ZERO;
        for hold in &mut holds {
            slowest = slowest.max(hold.pause(options.pause_timeout)?);
        }
        latencies.push(slowest);
        std::thread::sleep(Duration::from_millis(options.hold_ms));
        for hold in &mut holds {
            hold.resume()?;
        }
    }
    latencies.sort();
    let percentile = |p: usize| latencies[(latencies.len() - 1) * p / 100].as_secs_f64() * 1e3;
    if options.json {
        output::json(&json!({
            "pid": target.called(),
            "pauses": latencies.len(),
            "milliseconds": {
                "p50": percentile(50), "p90": percentile(90), "p99": percentile(99), "max": percentile(100),
                "all": latencies.iter().map(|l| l.as_secs_f64() * 1e3).collect::<Vec<_>>(),
            },
        }));
    } else {
        output::line(format!(
            "{}: p50 {:.3} ms, p99 {:.3} ms, longest {:.3} ms",
            output::counted(latencies.len(), "pause"),
            percentile(50),
            percentile(99),
            percentile(100)
        ));
    }
    Ok(ExitCode::SUCCESS)
}

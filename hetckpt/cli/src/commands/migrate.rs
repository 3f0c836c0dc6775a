//! `hetckpt migrate`: dump here, restore there, without a file between.

use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;

use hetckpt_move::migration::source;
use hetckpt_report::{quantity, remark};
use hetckpt_supervise::namespaces::enter;

use crate::arguments::Migrate;
use crate::output;

/// Moves the program.
pub fn run(options: &Migrate) -> anyhow::Result<ExitCode> {
    if let Some(code) = enter::run_where(options.pid)? {
        return Ok(code);
    }
    let start = Instant::now();
    let moved = source::migrate(options.pid, &options.how())?;
    let rate = moved.archive_bytes as f64 / moved.transfer.as_secs_f64().max(0.001);
    if options.json {
        output::json(&json!({
            "pid": moved.left_pid,
            "to": options.to.to_string(),
            "target_pid": moved.pid,
            "id": moved.id,
            "archive_bytes": moved.archive_bytes,
            "bytes_per_second": rate,
            "seconds": {
                "pause": moved.times.pause.as_secs_f64(),
                "capture": moved.times.capture.as_secs_f64(),
                "criu": moved.times.criu.as_secs_f64(),
                "transfer": moved.transfer.as_secs_f64(),
                "confirmation": moved.confirmation.as_secs_f64(),
                "restore": moved.restore.as_secs_f64(),
                "stopped": moved.stopped.as_secs_f64(),
                "total": start.elapsed().as_secs_f64(),
            },
        }));
        return Ok(ExitCode::SUCCESS);
    }
    remark::note(format!(
        "the program runs on {} as process {} ({} at {:.0} MB/s; it stood still for {:.2} s)",
        options.to,
        moved.pid,
        quantity::bytes(moved.archive_bytes),
        rate / 1e6,
        moved.stopped.as_secs_f64()
    ));
    Ok(ExitCode::SUCCESS)
}

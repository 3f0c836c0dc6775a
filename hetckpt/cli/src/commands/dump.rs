//! `hetckpt dump`: stop, capture, archive, and only then end the program.

use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;

use hetckpt_move::dump;
use hetckpt_report::{quantity, remark};
use hetckpt_supervise::namespaces::enter;

use crate::arguments::Dump;
use crate::output;

/// Dumps the program.
pub fn run(options: &Dump) -> anyhow::Result<ExitCode> {
    if let Some(code) = enter::run_where(options.pid)? {
        return Ok(code);
    }
    let start = Instant::now();
    let dumped = dump::dump(options.pid, &options.how())?;
    if options.json {
        output::json(&json!({
            "pid": dumped.pid,
            "archive": options.output.to_string_lossy(),
            "archive_bytes": dumped.size,
            "left_running": options.leave_running,
            "not_kept": dumped.not_kept,
            "seconds": {
                "pause": dumped.times.pause.as_secs_f64(),
                "capture": dumped.times.capture.as_secs_f64(),
                "criu": dumped.times.criu.as_secs_f64(),
                "archive": dumped.archive.as_secs_f64(),
                "total": start.elapsed().as_secs_f64(),
            },
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let what = match options.leave_running {
        true => "the program runs on",
        false => "the program has been ended",
    };
    let (archive, size) = (options.output.display(), quantity::bytes(dumped.size));
    remark::note(format!("{archive} ({size}): {what}"));
    for sentence in dumped.not_kept {
        remark::note(format!("a restore does not give back: {sentence}"));
    }
    Ok(ExitCode::SUCCESS)
}

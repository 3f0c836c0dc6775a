//! `hetckpt dump`: stop, capture, archive, and only then end the program.

use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;

use hetckpt_move::dump;
use hetckpt_report::{quantity, remark};
use hetckpt_supervise::namespaces::enter;

use crate::arguments::Dump;
use crate::outgoing;

/// Dumps the program.
pub fn run(options: &Dump) -> anyhow::Result<ExitCode> {
    if let Some(code) = enter::run_where(options.pid)? {
        return Ok(code);
    }
    let start = Instant::now();
    let (dumped, output) = if options.is_streamed() {
        let (stdout, called) = (std::io::stdout(), "standard output");
        let to = stdout.as_fd();
        let dumped = dump::dump(options.pid, &options.to(dump::Output::Stream { to, called }), None)?;
        (dumped, called.to_owned())
    } else if let Some(sent) = outgoing::dump(options)? {
        sent
    } else {
        let dumped = dump::dump(options.pid, &options.to_file(&options.output), None)?;
        (dumped, options.output.display().to_string())
    };
    if options.json {
        crate::output::json(&json!({
            "pid": dumped.pid,
            "archive": output,
            "archive_bytes": dumped.size,
            "label": dumped.label,
            "left_running": options.leave_running,
            "borrows_from": dumped.parents,
            "not_kept": dumped.not_kept,
            "seconds": {
                "pause": dumped.times.pause.as_secs_f64(),
                "capture": dumped.times.capture.as_secs_f64(),
                "criu": dumped.times.criu.as_secs_f64(),
                "archive": dumped.archive.as_secs_f64(),
                "stopped": dumped.stopped.as_secs_f64(),
                "total": start.elapsed().as_secs_f64(),
            },
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let what = match options.leave_running {
        true => "the program runs on",
        false => "the program has been ended",
    };
    let size = quantity::bytes(dumped.size);
    remark::note(format!("{output} ({size}): {what}"));
    for sentence in dumped.not_kept {
        remark::note(format!("a restore does not give back: {sentence}"));
    }
    Ok(ExitCode::SUCCESS)
}

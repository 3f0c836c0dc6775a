//! `hetckpt migrate`: dump here, restore there, without a file between.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::capture::Parts;
use crate::cli::Migrate;
use crate::diagnostic::Failure;
use crate::dump_lock::DumpLock;
use crate::migration::source::{self, Move};
use crate::namespaces::{self, enter};
use crate::supervise::HeldSignals;
use crate::target::Target;
use crate::{output, snapshot_files};

/// Moves the program.
pub fn run(options: Migrate) -> anyhow::Result<ExitCode> {
    if let Some(code) = enter::run_where(options.pid)? {
        return Ok(code);
    }
    let start = Instant::now();
    // Before the first thread starts, which would take a signal otherwise, and end us while the tree is stopped.
    let signals = HeldSignals::hold()?;
    let target = Target::find(options.pid)?;
    let _lock = DumpLock::take(&target.tree())?;
    let runs_on = |failure: Failure| {
        namespaces::with_user(failure).state(format!("the program (pid {}) runs on here", target.called()))
    };
    let parts = Parts::find().map_err(runs_on)?;
    let folder = options.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let scratch = std::path::absolute(&folder)
        .and_then(|folder| snapshot_files::private_folder(&folder, "hetckpt-migrate-"))
        .map_err(|e| {
            Failure::new(
                "HK0704",
                format!("cannot make a folder for the images in {}", folder.display()),
            )
            .note(e.to_string())
            .help("name a folder where you may write and where there is room: --scratch")
        })
        .map_err(runs_on)?;
    let moved = source::run(
        &Move {
            target: &target,
            parts: &parts,
            scratch: &scratch,
            to: &options.to,
            server_name: options.server_name.as_deref().unwrap_or(&options.to.host),
            files: &options.files,
            pause_timeout: options.pause_timeout,
            bundle: options.bundle,
            outside: options.outside,
            patience: Duration::from_secs(options.patience),
        },
        &signals,
    )?;
    let rate = moved.archive_bytes as f64 / moved.transfer.as_secs_f64().max(0.001);
    if options.json {
        output::json(&json!({
            "pid": target.called(),
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
    } else {
        output::note(format!(
            "the program runs on {} as process {} ({} at {:.0} MB/s; it stood still for {:.2} s)",
            options.to,
            moved.pid,
            output::bytes(moved.archive_bytes),
            rate / 1e6,
            moved.stopped.as_secs_f64()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

//! `hetckpt dump`: stop, capture, archive, and only then end the program.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hetckpt_archive::writer::{self, ArchiveName};
use serde_json::json;
use tempfile::TempDir;

use crate::archive_name;
use crate::capture::{self, Parts, Request, Times};
use crate::check;
use crate::cli::{Dump, Guard};
use crate::diagnostic::Failure;
use crate::dump_lock::DumpLock;
use crate::interrupting::Interrupting;
use crate::namespaces::{self, enter};
use crate::output;
use crate::snapshot_files;
use crate::stopped_tree;
use crate::supervise::HeldSignals;
use crate::target::{self, Target};

/// Dumps the program.
pub fn run(options: Dump) -> anyhow::Result<ExitCode> {
    if let Some(code) = enter::run_where(options.pid)? {
        return Ok(code);
    }
    let start = Instant::now();
    let name = archive_name::find(&options.output, options.force)
        .map_err(|failure| failure.state("the program runs on; no archive was written"))?;
    let target = Target::find(options.pid)?;
    let _lock = DumpLock::take(&target.tree())?;
    let cannot_begin = |failure: Failure| namespaces::with_user(failure).state(runs_on(&target));
    let parts = Parts::find().map_err(cannot_begin)?;
    let images = image_folder(&options.output).map_err(cannot_begin)?;

    // A signal must not end us while the tree is stopped: it ends the dump, and then the tree runs on.
    let signals = HeldSignals::hold()?;
    let Dumped {
        size,
        times,
        archive,
        not_kept,
    } = dump_stopped(&options, &target, &parts, &name, images.path(), &signals)
        .map_err(|failure| after_failure(&target, failure))?;
    if options.json {
        output::json(&json!({
            "pid": target.called(),
            "archive": options.output.to_string_lossy(),
            "archive_bytes": size,
            "left_running": options.leave_running,
            "not_kept": not_kept,
            "seconds": {
                "pause": times.pause.as_secs_f64(),
                "capture": times.capture.as_secs_f64(),
                "criu": times.criu.as_secs_f64(),
                "archive": archive.as_secs_f64(),
                "total": start.elapsed().as_secs_f64(),
            },
        }));
    } else {
        let what = if options.leave_running {
            "the program runs on"
        } else {
            "the program has been ended"
        };
        output::note(format!(
            "{} ({}): {what}",
            options.output.display(),
            output::bytes(size)
        ));
        for sentence in not_kept {
            output::note(format!("a restore does not give back: {sentence}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What stays of [`run`] if it is killed.
pub fn guard(options: Guard) -> anyhow::Result<ExitCode> {
    stopped_tree::guard(&options);
    Ok(ExitCode::SUCCESS)
}

fn runs_on(target: &Target) -> String {
    format!("the program (pid {}) runs on; no archive was written", target.called())
}

/// What a failed dump leaves: the program, unless that has ended by itself, for which reason the dump may have failed.
fn after_failure(target: &Target, failure: Failure) -> Failure {
    if !target::has_ended_or_ends(target.pid) {
        return failure.state(runs_on(target));
    }
    Failure::new(
        "HK0801",
        format!("process {} ended before it was dumped", target.called()),
    )
    .note(failure.message)
    .state("no archive was written")
}

/// A folder for CRIU's images beside the archive, on the same file system, which also proves that one can write there.
fn image_folder(archive: &Path) -> Result<TempDir, Failure> {
    let parent = archive
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let cannot = |why: String| {
        Failure::new("HK0704", format!("cannot write {}", archive.display()))
            .note(why)
            .help("name a file in a folder that exists and that you may write to")
    };
    if archive.is_dir() {
        return Err(cannot("it is a folder".to_owned()));
    }
    let parent = fs::canonicalize(parent).map_err(|e| cannot(format!("{}: {e}", parent.display())))?;
    snapshot_files::private_folder(&parent, ".hetckpt-dump-").map_err(|e| cannot(e.to_string()))
}

/// What came of it.
struct Dumped {
    size: u64,
    times: Times,
    /// How long the archive took.
    archive: Duration,
    /// What a restore will not give back.
    not_kept: Vec<String>,
}

/// From the pause to the program's end; after a failure the program runs on.
fn dump_stopped(
    options: &Dump,
    target: &Target,
    parts: &Parts,
    name: &ArchiveName,
    images: &Path,
    signals: &HeldSignals,
) -> Result<Dumped, Failure> {
    let request = Request {
        target,
        parts,
        images,
        guarded: stopped_tree::Output {
            images,
            archive: (!options.leave_running).then_some(&options.output),
            handover: None,
            tcp_in: options.outside.tcp_established.then_some(images),
        },
        pause_timeout: options.pause_timeout,
        bundle: options.bundle,
        outside: options.outside,
    };
    let mut captured = capture::capture(&request, signals, None)?;
    check::require_way_back(images, &captured.manifest, options.outside)?;
    let archiving = Instant::now();
    let mut progress = output::byte_progress("archiving", snapshot_files::total_bytes(&captured.sources));
    let interrupting = Interrupting::new(signals);
    let size = writer::write(
        name,
        captured.manifest.clone(),
        &captured.sources,
        writer::Options {
            scratch: Some(images),
            is_interrupted: Some(&|| interrupting.has_come()),
            id_file: Some(&stopped_tree::id_file(images)),
            ..writer::Options::default()
        },
        &mut progress,
    )
    .map_err(|error| interrupting.failure(error, "the dump"))?;
    let archive = archiving.elapsed();
    output::progress_done();
    if !options.leave_running {
        captured.end();
    }
    Ok(Dumped {
        size,
        times: captured.times,
        archive,
        not_kept: std::mem::take(&mut captured.not_kept),
    })
}

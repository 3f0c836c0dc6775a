//! `hetckpt dump`: stop, capture, archive, and only then end the program.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hetckpt_archive::writer;
use serde_json::json;
use tempfile::TempDir;

use crate::carried::pack::Packing;
use crate::cli::{Dump, Guard};
use crate::criu::locate::Criu;
use crate::criu::needs;
use crate::diagnostic::Failure;
use crate::dump_lock::DumpLock;
use crate::install::Installation;
use crate::server_client::{self, Hold};
use crate::snapshot_files::{self, Origin};
use crate::stopped_tree::{self, StoppedTree};
use crate::supervise::HeldSignals;
use crate::target::{self, Target};
use crate::{archive_error, criu, output};

/// How long each step took.
#[derive(Default)]
struct Times {
    pause: Duration,
    capture: Duration,
    criu: Duration,
    archive: Duration,
}

/// Dumps the program.
pub fn run(options: Dump) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let target = Target::find(options.pid)?;
    let _lock = DumpLock::take(&target.tree())?;
    let installation = Installation::find()?;
    let found = Criu::find().map_err(|failure| failure.state(runs_on(&target)))?;
    installation.require(installation.plugin_folder.join("hetgpu_plugin.so"))?;
    let images = image_folder(&options.output).map_err(|failure| failure.state(runs_on(&target)))?;

    // A signal must not end us while the tree is stopped: it ends the dump, and then the tree runs on.
    let signals = HeldSignals::hold()?;
    let mut times = Times::default();
    let size = dump_stopped(
        &options,
        &target,
        &installation,
        &found,
        images.path(),
        &signals,
        &mut times,
    )
    .map_err(|failure| after_failure(&target, failure))?;
    if options.json {
        output::json(&json!({
            "pid": options.pid,
            "archive": options.output,
            "archive_bytes": size,
            "left_running": options.leave_running,
            "seconds": {
                "pause": times.pause.as_secs_f64(),
                "capture": times.capture.as_secs_f64(),
                "criu": times.criu.as_secs_f64(),
                "archive": times.archive.as_secs_f64(),
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
    }
    Ok(ExitCode::SUCCESS)
}

/// What stays of [`run`] if it is killed.
pub fn guard(options: Guard) -> anyhow::Result<ExitCode> {
    stopped_tree::guard(&options);
    Ok(ExitCode::SUCCESS)
}

fn runs_on(target: &Target) -> String {
    format!("the program (pid {}) runs on; no archive was written", target.pid)
}

/// What a failed dump leaves: the program, unless that has ended by itself, for which reason the dump may have failed.
fn after_failure(target: &Target, failure: Failure) -> Failure {
    if !target::is_gone(target.pid) {
        return failure.state(runs_on(target));
    }
    Failure::new("HK0801", format!("process {} ended before it was dumped", target.pid))
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

/// From the pause to the program's end; after a failure the program runs on.
fn dump_stopped(
    options: &Dump,
    target: &Target,
    installation: &Installation,
    found: &Criu,
    images: &Path,
    signals: &HeldSignals,
    times: &mut Times,
) -> Result<u64, Failure> {
    // While the program still runs: this takes a while.
    let mut packing = Packing::new(images, options.bundle, target.pid);
    packing.take_mapped_by(&target.tree());
    // Our own hold keeps the device paused after the plugin has left, until the archive is safe.
    output::progress("pausing kernels");
    server_client::wait_for_starting(&target.tree())?;
    let mut holds = server_client::holds(&target.tree())?;
    server_client::ensure_outside(&holds, &target.tree())?;
    let pausing = Instant::now();
    times.pause = server_client::pause_all(&mut holds, options.pause_timeout)?;
    output::detail(format!("kernels stopped after {:?}", pausing.elapsed()));
    ensure_not_interrupted(signals)?;

    output::progress("dumping processes");
    let dumping = Instant::now();
    let tree = StoppedTree::prepare(
        target,
        &stopped_tree::Output {
            images,
            archive: (!options.leave_running).then_some(&options.output),
        },
    )?;
    run_criu(options, target, installation, found, images)?;
    times.criu = dumping.elapsed();
    for hold in &mut holds {
        // A process that ended before it was frozen took its server along, and its connection tells no time.
        times.capture = times.capture.max(hold.capture_time().unwrap_or_default());
    }
    ensure_not_interrupted(signals)?;

    let archiving = Instant::now();
    finish_packing(packing, images)?;
    let sources = snapshot_files::sources(images)
        .map_err(|why| Failure::new("HK0704", "cannot read the images just written").note(why))?;
    let origin = Origin {
        root_pid: target.pid,
        command: target.command.clone(),
        stdio: target.stdio.clone(),
        criu_version: found.version.clone(),
        created_unix: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
    };
    let manifest = snapshot_files::manifest(images, origin)
        .map_err(|why| Failure::new("HK0903", "the device state just written cannot be read").note(why))?;
    let mut progress = output::byte_progress("archiving", snapshot_files::total_bytes(&sources));
    let size = writer::write(
        &options.output,
        manifest,
        &sources,
        writer::Options {
            scratch: Some(images),
            ..writer::Options::default()
        },
        &mut progress,
    )
    .map_err(archive_error::failure)?;
    times.archive = archiving.elapsed();
    output::progress_done();

    if options.leave_running {
        drop(tree);
    } else {
        if !tree.end() {
            output::note(format!(
                "process {} was killed but is not gone after two seconds",
                target.pid
            ));
        }
        let stayed = holds.into_iter().map(Hold::release_gone).filter(|left| !left).count();
        if stayed > 0 {
            output::note("a device server is still there after two seconds; the device may be free only later");
        }
    }
    Ok(size)
}

/// Completes what the archive carries by what CRIU's images need.
fn finish_packing(packing: Packing<'_>, images: &Path) -> Result<(), Failure> {
    let needs = needs::read(images)
        .map_err(|why| Failure::new("HK0903", "the images just written cannot be read").note(why))?;
    packing.finish(&needs).map_err(|(path, e)| {
        Failure::new("HK0704", format!("cannot carry {}", path.display()))
            .note(e.to_string())
            .help("make room in the archive's folder, or carry nothing: --bundle none")
    })
}

/// Fails if a signal has arrived that is to end us. Once the archive is written it is too late: then the dump is done.
fn ensure_not_interrupted(signals: &HeldSignals) -> Result<(), Failure> {
    match signals.ending() {
        Some(signal) => Err(Failure::new("HK0807", format!("the dump was interrupted by {signal}"))),
        None => Ok(()),
    }
}

fn run_criu(
    options: &Dump,
    target: &Target,
    installation: &Installation,
    found: &Criu,
    images: &Path,
) -> Result<(), Failure> {
    let mut arguments: Vec<OsString> = ["--tree", &target.pid.to_string()].map(Into::into).to_vec();
    arguments.extend(["--libdir".into(), installation.plugin_folder.clone().into_os_string()]);
    arguments.extend(["--leave-stopped", "--cpu-cap=ins", "--ghost-limit", "64M", "--timeout"].map(OsString::from));
    arguments.push(options.pause_timeout.max(10).to_string().into());
    if target.is_shell_job {
        arguments.push("--shell-job".into());
    }
    // For a device server that turns up only now.
    let limit =
        (options.pause_timeout > 0).then(|| ("HETCKPT_PAUSE_TIMEOUT", options.pause_timeout.to_string().into()));
    criu::run::run(
        found,
        &criu::run::Call {
            verb: "dump",
            images,
            work_folder: images,
            arguments: &arguments,
            environment: limit.as_slice(),
            needs_terminal: false,
            failure_code: "HK0903",
        },
    )
}

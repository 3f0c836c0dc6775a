//! `hetckpt restore`: see that all is there, unpack what is packed, let CRIU and the plugin rebuild the program, and stand in for
//! it.

mod stdio;
mod rewind;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, geteuid};
use serde_json::json;
use tempfile::TempDir;

use self::rewind::Rewound;
use self::stdio::Stdio;
use crate::carried::keeper::{self, Keeper};
use crate::carried::layout::Layout;
use crate::check::{self, Restorable};
use crate::cli::{Keep, Restore};
use crate::criu::locate::Criu;
use crate::criu::rewrite::Change;
use crate::diagnostic::Failure;
use crate::install::Installation;
use crate::interrupting::ensure_not_interrupted;
use crate::namespaces::create::{Job, run_inside};
use crate::result_file::ResultFile;
use crate::snapshot::Snapshot;
use crate::supervise::{self, HeldSignals, Relay};
use crate::{criu, namespaces, output, snapshot_files, target};

/// What became of the program if a restore fails.
const NOTHING_STARTED: &str = "nothing was started; the snapshot is as it was";

/// Restores the program and, unless detached, stands in for it.
pub fn run(options: Restore) -> anyhow::Result<ExitCode> {
    let job = Job {
        detach: options.detach,
        pid_file: options.pid_file.as_deref(),
    };
    if let Some(code) = run_inside(options.adaptation.namespaces, &job)? {
        return Ok(code);
    }
    let start = Instant::now();
    // Before the first thread starts, as hashing does: one that does not hold a signal back would take it, and end us.
    let held = HeldSignals::hold()?;
    let snapshot = Snapshot::open(&options.snapshot)?;
    let manifest = snapshot.manifest();
    let installation = Installation::find()?;
    let found = Criu::find()?;
    installation.require(installation.plugin_folder.join("hetgpu_plugin.so"))?;
    let scratch = scratch_folder()?;
    let allowed = check::Allowed {
        adaptation: &options.adaptation,
        outside: options.outside,
    };
    let restorable = check::require(&snapshot, &options.device, &allowed, scratch.path())
        .map_err(|failure| failure.state(NOTHING_STARTED))?;
    go_on(&held)?;
    let timings = options.timings.as_deref();
    let timings = timings.map(|path| ResultFile::open(path, "HK0704")).transpose()?;
    let is_inside = namespaces::is_inside();
    // Within, the process id is another than the one to be told.
    let pid_file = options.pid_file.as_deref().filter(|_| !is_inside);
    let pid_file = pid_file.map(|path| ResultFile::open(path, "HK0804")).transpose()?;

    output::progress("unpacking");
    let Prepared { images, layout } = prepare(&snapshot, &restorable, scratch.path())?;
    let unpacked = start.elapsed();
    go_on(&held)?;

    let stdio = Stdio::for_program(manifest, &restorable.plan.replaced, options.detach)?;
    output::progress("restoring processes");
    if let Some(clocks) = manifest.clocks.as_ref().filter(|_| is_inside && !geteuid().is_root()) {
        namespaces::clocks::go_on_from(clocks)
            .unwrap_or_else(|why| output::note(format!("clocks that count from the machine's start jump: {why}")));
    }
    let rewound = Rewound::cut(&restorable.plan.rewound).map_err(|failure| failure.state(NOTHING_STARTED))?;
    run_criu(
        &options,
        &installation,
        &found,
        &images,
        scratch.path(),
        &restorable,
        &stdio,
    )?;
    output::progress_done();
    rewound.keep();
    let keeper = layout.and_then(|layout| Keeper::start(layout, manifest.root_pid));
    let restored = start.elapsed();
    let relays = stdio.into_relays();
    drop(scratch);
    if is_inside {
        namespaces::leave_ids_to_program();
        namespaces::tell_root_pid(manifest.root_pid);
    }
    if let Some(file) = pid_file {
        file.write(&format!("{}\n", manifest.root_pid));
    }
    if let Some(file) = timings {
        let text = json!({ "unpack": unpacked.as_secs_f64(), "criu": (restored - unpacked).as_secs_f64(), "total": restored.as_secs_f64() });
        file.write(&text.to_string());
    }
    if options.detach {
        if !is_inside {
            output::line(manifest.root_pid.to_string());
        }
        return Ok(ExitCode::SUCCESS);
    }
    held.pass_to(manifest.root_pid);
    let code = supervise::wait_for(manifest.root_pid)?;
    relays.into_iter().for_each(Relay::finish);
    if let Some(keeper) = keeper {
        keeper.finish();
    }
    Ok(code)
}

/// From when CRIU is at work signals are the program's.
fn go_on(held: &HeldSignals) -> Result<(), Failure> {
    ensure_not_interrupted(held, "the restore").map_err(|failure| failure.state(NOTHING_STARTED))
}

/// What stays of [`run`] where it has laid files out.
pub fn keep(options: &Keep) -> anyhow::Result<ExitCode> {
    keeper::keep(options);
    Ok(ExitCode::SUCCESS)
}

/// Images that CRIU can restore here.
struct Prepared {
    images: PathBuf,
    /// Carried files, if some are lacking here.
    layout: Option<Layout>,
}

/// Unpacks the images, lays the files out that this machine lacks, and leads the images to them.
fn prepare(snapshot: &Snapshot, restorable: &Restorable, scratch: &Path) -> Result<Prepared, Failure> {
    let images = restorable.descriptions.clone();
    snapshot.complete(&images)?;
    let mut changes = restorable.plan.changes.clone();
    let layout = match restorable.plan.lacking.as_slice() {
        [] => None,
        lacking => {
            let layout = Layout::create()?;
            for file in lacking {
                let (path, mode) = layout.add(file, &images)?;
                let change = Change {
                    path: Some(path.as_os_str().as_bytes().to_vec()),
                    mode: Some(mode),
                };
                changes.insert(file.path.clone().into_bytes(), change);
            }
            output::detail(format!(
                "{} files laid out in {}",
                lacking.len(),
                layout.path().display()
            ));
            Some(layout)
        }
    };
    let images = snapshot.changed(images, scratch, &changes)?;
    Ok(Prepared { images, layout })
}

/// A folder for CRIU's log and, where they come out of an archive, its images.
fn scratch_folder() -> Result<TempDir, Failure> {
    snapshot_files::private_folder(&std::env::temp_dir(), "hetckpt-restore-")
        .map_err(|e| Failure::new("HK0704", "cannot make a folder for the images").note(e.to_string()))
}

fn run_criu(
    options: &Restore,
    installation: &Installation,
    found: &Criu,
    images: &Path,
    scratch: &Path,
    restorable: &Restorable,
    stdio: &Stdio,
) -> Result<(), Failure> {
    let mut arguments: Vec<OsString> = vec!["--libdir".into(), installation.plugin_folder.clone().into_os_string()];
    arguments.extend(["--restore-detached", "--ghost-limit", "64M", "--file-locks"].map(OsString::from));
    // Whoever restores decides what the program may use: it stays in our cgroups, and those of the dump are not made.
    arguments.push("--manage-cgroups=ignore".into());
    if !options.detach {
        arguments.push("--restore-sibling".into());
    }
    for (name, fd) in &stdio.inherited {
        let mut value = OsString::from(format!("fd[{}]:", fd.as_raw_fd()));
        value.push(name);
        arguments.extend(["--inherit-fd".into(), value]);
    }
    // Not every dump has written down what processor it was on.
    if !options.any_processor && images.join("cpuinfo.img").exists() {
        arguments.push("--cpu-cap=ins".into());
    }
    if restorable.needs.terminals.is_outside || !restorable.needs.leads_session {
        arguments.push("--shell-job".into());
    }
    if !restorable.needs.connections.is_empty() {
        arguments.push("--tcp-established".into());
    }
    if !restorable.needs.outside_sockets.is_empty() {
        arguments.push("--ext-unix-sk".into());
    }
    let environment: [(&str, OsString); 3] = [
        ("HETCKPT_DEVICE", options.device.clone().into()),
        ("HETCKPT_SERVER", installation.server.clone().into_os_string()),
        ("HETCKPT_CPU_CODEGEN", installation.cpu_codegen().into_os_string()),
    ];
    let call = criu::run::Call {
        verb: "restore",
        images,
        work_folder: scratch,
        arguments: &arguments,
        environment: &environment,
        needs_terminal: restorable.needs.terminals.is_outside,
        failure_code: "HK0904",
    };
    let before = target::children();
    criu::run::run(found, &call).map_err(|mut failure| {
        end_half_restored(&before);
        let help = "`hetckpt check` says what the snapshot needs and this machine lacks";
        failure.help.get_or_insert_with(|| help.to_owned());
        failure.state(NOTHING_STARTED)
    })
}

/// Ends what a CRIU that has failed, or was killed, leaves of the program: processes that wait for it for ever, or run
/// though the restore is said to have failed. They are our children unless the program was to be detached.
fn end_half_restored(before: &BTreeSet<i32>) {
    for &child in target::children().difference(before) {
        target::end(child);
        // Its end was ours to bring about and is nobody else's to notice.
        let _ = waitpid(Pid::from_raw(child), Some(WaitPidFlag::WNOHANG));
    }
}

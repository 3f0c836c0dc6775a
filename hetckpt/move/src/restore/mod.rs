//! Restoring a program: see that all is there, unpack what is packed, let CRIU and the plugin rebuild the program, and
//! stand in for it.

mod stdio;
mod rewind;

use hetckpt_ring::failure_code::Code;
use hetckpt_ring::message::BESIDE_CRIU_ENV;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, geteuid};
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;

use hetckpt_archive::parallel::{cores, in_parallel};
use hetckpt_criu::image_streamer::ImageStreamer;
use hetckpt_criu::locate::Criu;
use hetckpt_criu::rewrite::Change;
use hetckpt_criu::run;
use hetckpt_report::archive_error;
use hetckpt_report::failure::Failure;
use hetckpt_report::installation::Installation;
use hetckpt_report::remark;
use hetckpt_supervise::checkpoint_service::CheckpointService;
use hetckpt_supervise::interrupting::ensure_not_interrupted;
use hetckpt_supervise::namespaces::{self, clocks};
use hetckpt_supervise::outcome::Outcome;
use hetckpt_supervise::relay::Relay;
use hetckpt_supervise::result_file::ResultFile;
use hetckpt_supervise::signals::HeldSignals;
use hetckpt_supervise::{process_tree, stand_in};

use self::rewind::Rewound;
use self::stdio::Stdio;
use crate::adaptation::{Adaptation, Outside};
use crate::byte_service::ByteService;
use crate::carried::keeper::Keeper;
use crate::carried::layout::Layout;
use crate::check::{self, Restorable};
use crate::private_folder;
use crate::snapshot::{Given, Services, Snapshot};

/// What became of the program if a restore fails.
const NOTHING_STARTED: &str = "nothing was started; the snapshot is as it was";

/// What to restore, and how.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// What it is restored from.
    pub snapshot: &'a Given,
    /// Device to go on with.
    pub device: &'a str,
    /// Nobody is to stand in for the program.
    pub detach: bool,
    /// File that gets the program's process id.
    pub pid_file: Option<&'a Path>,
    /// Where the job listens that makes the checkpoints for which the program asks itself, if there is one.
    pub job: Option<&'a Path>,
    /// Where this machine differs.
    pub adaptation: &'a Adaptation,
    /// Connections to go on with.
    pub outside: Outside,
    /// Whatever the processor.
    pub any_processor: bool,
    /// File that gets the times of each step.
    pub timings: Option<&'a Path>,
}

/// Restores the program and, unless detached, stands in for it.
pub fn restore(options: &Options<'_>) -> Result<Outcome, Failure> {
    let start = Instant::now();
    // Before the first thread starts, as hashing does: one that does not hold a signal back would take it, and end us.
    let held = HeldSignals::hold()?;
    let snapshot = Snapshot::open_given(options.snapshot)?;
    let manifest = snapshot.manifest();
    let installation = Installation::find()?;
    let found = Criu::find()?;
    installation.require(installation.plugin_folder.join("hetgpu_plugin.so"))?;
    let scratch = scratch_folder()?;
    let allowed = check::Allowed {
        adaptation: options.adaptation,
        outside: options.outside,
    };
    let restorable =
        check::require(&snapshot, &allowed, scratch.path()).map_err(|failure| failure.state(NOTHING_STARTED))?;
    go_on(&held)?;
    let timings = options
        .timings
        .map(|path| ResultFile::open(path, Code::CannotWrite))
        .transpose()?;
    let is_inside = namespaces::is_inside();
    // Within, the process id is another than the one to be told.
    let pid_file = options.pid_file.filter(|_| !is_inside);
    let pid_file = pid_file.map(|path| ResultFile::open(path, Code::StandIn)).transpose()?;

    remark::progress("unpacking");
    let Prepared {
        images,
        layout,
        services,
    } = prepare(&snapshot, &restorable, scratch.path())?;
    let unpacked = start.elapsed();
    go_on(&held)?;

    let stdio = Stdio::for_program(manifest, &restorable.plan.replaced, options.detach)?;
    remark::progress("restoring processes");
    if let Some(clocks) = manifest
        .index
        .clocks
        .as_ref()
        .filter(|_| is_inside && !geteuid().is_root())
    {
        clocks::go_on_from(clocks)
            .unwrap_or_else(|why| remark::note(format!("clocks that count from the machine's start jump: {why}")));
    }
    let rewound = Rewound::cut(&restorable.plan.rewound).map_err(|failure| failure.state(NOTHING_STARTED))?;
    let checkpoints = match options.detach {
        true => None,
        false => CheckpointService::listen(options.job),
    };
    run_criu(
        options,
        &installation,
        &found,
        (&images, services.images.is_some()),
        scratch.path(),
        &restorable,
        &stdio,
    )
    .map_err(|failure| why_not(&snapshot, options.device, &services, failure))?;
    remark::progress_done();
    rewound.keep();
    let root_pid = manifest.header.root_pid;
    // It would take its room for as long as the program runs.
    drop((services, snapshot));
    let keeper = layout.and_then(|layout| Keeper::start(layout, root_pid));
    let restored = start.elapsed();
    let relays = stdio.into_relays();
    drop(scratch);
    if is_inside {
        namespaces::leave_ids_to_program();
        namespaces::tell_root_pid(root_pid);
    }
    if let Some(file) = pid_file {
        file.write(&format!("{}\n", root_pid));
    }
    if let Some(file) = timings {
        let text = json!({ "unpack": unpacked.as_secs_f64(), "criu": (restored - unpacked).as_secs_f64(), "total": restored.as_secs_f64() });
        file.write(&text.to_string());
    }
    if options.detach {
        return Ok(Outcome::Detached(root_pid));
    }
    held.pass_to(root_pid);
    checkpoints.iter().for_each(|service| service.serve(root_pid));
    let code = stand_in::wait_for(root_pid)?;
    relays.into_iter().for_each(Relay::finish);
    if let Some(keeper) = keeper {
        keeper.finish();
    }
    Ok(Outcome::Ended(code))
}

/// From when CRIU is at work signals are the program's.
fn go_on(held: &HeldSignals) -> Result<(), Failure> {
    ensure_not_interrupted(held, "the restore").map_err(|failure| failure.state(NOTHING_STARTED))
}

/// Images that CRIU can restore here.
struct Prepared {
    images: PathBuf,
    /// Carried files, if some are lacking here.
    layout: Option<Layout>,
    services: Services,
}

/// Why CRIU has failed: it sees that an image comes to an end, and a device server that it cannot have the device, and
/// that memory is damaged or not there, but they know neither what would do nor an archive.
fn why_not(snapshot: &Snapshot, device: &str, services: &Services, failure: Failure) -> Failure {
    if let Some(why) = services.images.as_ref().and_then(ImageStreamer::failure) {
        return archive_error::failure(why).state(NOTHING_STARTED);
    }
    let unread = services.archive.as_ref().and_then(ByteService::failure);
    if let Some(why) = unread {
        return Failure::new(Code::StoreFailed, "cannot fetch device memory from the archive")
            .note(why.to_string())
            .state(NOTHING_STARTED);
    }
    match check::require_device(snapshot, device).and_then(|()| snapshot.verify_left()) {
        Err(better) => better.state(NOTHING_STARTED),
        Ok(()) => failure,
    }
}

/// Unpacks the images, lays the files out that this machine lacks, and leads the images to them.
fn prepare(snapshot: &Snapshot, restorable: &Restorable, scratch: &Path) -> Result<Prepared, Failure> {
    let images = restorable.descriptions.clone();
    let services = snapshot.complete(&images, scratch, &restorable.needs)?;
    let mut changes = restorable.plan.changes.clone();
    let layout = match restorable.plan.lacking.as_slice() {
        [] => None,
        lacking => {
            let layout = Layout::create()?;
            let laid_out = Mutex::new(&mut changes);
            in_parallel(cores(), lacking.len(), |at, (): &mut ()| {
                let file = &lacking[at];
                let (path, mode) = layout.add(file, |target| snapshot.unpack_carried(file, target))?;
                let change = Change {
                    path: Some(path.as_os_str().as_bytes().to_vec()),
                    mode: Some(mode),
                };
                laid_out.lock().insert(file.path.clone().into_bytes(), change);
                Ok::<(), Failure>(())
            })?;
            remark::detail(format!(
                "{} files laid out in {}",
                lacking.len(),
                layout.path().display()
            ));
            Some(layout)
        }
    };
    let images = snapshot.changed(images, scratch, &changes)?;
    Ok(Prepared {
        images,
        layout,
        services,
    })
}

/// A folder for CRIU's log and, where they come out of an archive, its images.
fn scratch_folder() -> Result<TempDir, Failure> {
    private_folder::private_folder(&std::env::temp_dir(), "hetckpt-restore-")
        .map_err(|e| Failure::new(Code::CannotWrite, "cannot make a folder for the images").note(e.to_string()))
}

fn run_criu(
    options: &Options<'_>,
    installation: &Installation,
    found: &Criu,
    (images, are_streamed): (&Path, bool),
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
    if restorable.needs.has_had_uprobes {
        arguments.push("--allow-uprobes".into());
    }
    if !restorable.needs.connections.is_empty() {
        arguments.push("--tcp-established".into());
    }
    if !restorable.needs.outside_sockets.is_empty() {
        arguments.push("--ext-unix-sk".into());
    }
    let mut environment: Vec<(&str, OsString)> = vec![
        ("HETCKPT_DEVICE", options.device.into()),
        ("HETCKPT_SERVER", installation.server.clone().into_os_string()),
        ("HETCKPT_CPU_CODEGEN", installation.cpu_codegen().into_os_string()),
    ];
    // Whoever is at the other end of a connection would see that a program was rebuilt whose device is not.
    if restorable.needs.connections.is_empty() && restorable.needs.outside_sockets.is_empty() {
        environment.push((BESIDE_CRIU_ENV, "1".into()));
    }
    let call = run::Call {
        verb: "restore",
        images,
        are_streamed,
        work_folder: scratch,
        arguments: &arguments,
        environment: &environment,
        needs_terminal: restorable.needs.terminals.is_outside,
        starts_program: true,
        failure_code: Code::CriuRestore,
    };
    let before = process_tree::children();
    run::run(found, &call).map_err(|mut failure| {
        end_half_restored(&before);
        let help = "`hetckpt check` says what the snapshot needs and this machine lacks";
        failure.help.get_or_insert_with(|| help.to_owned());
        failure.state(NOTHING_STARTED)
    })
}

/// Ends what a CRIU that has failed, or was killed, leaves of the program: processes that wait for it for ever, or run
/// though the restore is said to have failed. They are our children unless the program was to be detached.
fn end_half_restored(before: &BTreeSet<i32>) {
    for &child in process_tree::children().difference(before) {
        process_tree::end(child);
        // Its end was ours to bring about and is nobody else's to notice.
        let _ = waitpid(Pid::from_raw(child), Some(WaitPidFlag::WNOHANG));
    }
}

//! Dumping a program into an archive: stop it, capture it, write the archive, and only then end it.

use hetckpt_ring::failure_code::Code;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use hetckpt_archive::manifest::Manifest;
use hetckpt_archive::writer::{self, ArchiveName, NamelessArchive};
use hetckpt_report::failure::Failure;
use hetckpt_report::remark;
use hetckpt_supervise::dump_lock::DumpLock;
use hetckpt_supervise::interrupting::Interrupting;
use hetckpt_supervise::namespaces;
use hetckpt_supervise::signals::HeldSignals;
use hetckpt_supervise::target::Target;
use hetckpt_supervise::{process_tree, stopped_tree};

use crate::adaptation::Outside;
use crate::archive_file::FileSink;
use crate::capture::{self, Parts, Request, Times};
use crate::carried::choice::Bundle;
use crate::outgoing::Outgoing;
use crate::{archive_name, check, inner_connections, private_folder};

/// How to dump.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The archive to write.
    pub output: &'a Path,
    /// A regular file that has its name is replaced.
    pub force: bool,
    /// The program runs on after the dump.
    pub leave_running: bool,
    /// Longest time to wait for kernels to stop, in seconds.
    pub pause_timeout: u32,
    /// Files to carry.
    pub bundle: Bundle,
    /// Connections to take along.
    pub outside: Outside,
    /// The archive is read back from the disk before the program is ended.
    pub reads_back: bool,
}

/// An archive that is complete, of a program that still stands still.
pub struct Archived<'a> {
    /// Its manifest.
    pub manifest: &'a Manifest,
    /// How long it took from the pause on.
    pub stopped: Duration,
    /// True from when a signal is to end the dump.
    pub is_interrupted: &'a dyn Fn() -> bool,
}

/// What is done with an archive before the program is ended, such as bringing it elsewhere. If it fails, the program
/// runs on, and so it does if this command is killed meanwhile.
pub type Then<'a> = &'a dyn Fn(&Archived<'_>) -> Result<(), Failure>;

/// Dumps the tree of process `pid`. After a failure it runs on.
pub fn dump(pid: i32, options: &Options<'_>, then: Option<Then<'_>>) -> Result<Dumped, Failure> {
    let name = archive_name::find(options.output, options.force)
        .map_err(|failure| failure.state("the program runs on; no archive was written"))?;
    let target = Target::find(pid)?;
    let _lock = DumpLock::take(&target.tree())?;
    let cannot_begin = |failure: Failure| namespaces::with_user(failure).state(runs_on(&target));
    let parts = Parts::find().map_err(cannot_begin)?;
    // A signal must not end us while the tree is stopped: it ends the dump, and then the tree runs on. From before the
    // folder is made, so that none leaves it behind.
    let signals = HeldSignals::hold()?;
    let scratch = scratch_folder(options.output).map_err(cannot_begin)?;
    dump_stopped(options, then, &target, &parts, &name, scratch.path(), &signals)
        .map_err(|failure| after_failure(&target, failure))
}

fn runs_on(target: &Target) -> String {
    format!("the program (pid {}) runs on; no archive was written", target.called())
}

/// What a failed dump leaves: the program, unless that has ended by itself, for which reason the dump may have failed.
fn after_failure(target: &Target, failure: Failure) -> Failure {
    if !process_tree::has_ended_or_ends(target.pid) {
        return failure.state(runs_on(target));
    }
    Failure::new(
        Code::NoSuchProcess,
        format!("process {} ended before it was dumped", target.called()),
    )
    .note(failure.message)
    .state("no archive was written")
}

/// A folder beside the archive, for what is unfinished of it and for CRIU's images: on the same file system, which also
/// proves that one can write there.
fn scratch_folder(archive: &Path) -> Result<TempDir, Failure> {
    let parent = archive
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let cannot = |why: String| {
        Failure::new(Code::CannotWrite, format!("cannot write {}", archive.display()))
            .note(why)
            .help("name a file in a folder that exists and that you may write to")
    };
    if archive.is_dir() {
        return Err(cannot("it is a folder".to_owned()));
    }
    let parent = fs::canonicalize(parent).map_err(|e| cannot(format!("{}: {e}", parent.display())))?;
    private_folder::private_folder(&parent, ".hetckpt-dump-").map_err(|e| cannot(e.to_string()))
}

/// What came of a dump.
#[derive(Debug)]
pub struct Dumped {
    /// The root's process id for whoever gave the command.
    pub pid: i32,
    /// Length of the archive, bytes.
    pub size: u64,
    /// How long each step took.
    pub times: Times,
    /// How long the archive took.
    pub archive: Duration,
    /// What a restore will not give back, a sentence each.
    pub not_kept: Vec<String>,
}

/// From the pause to the program's end; after a failure the program runs on.
fn dump_stopped(
    options: &Options<'_>,
    then: Option<Then<'_>>,
    target: &Target,
    parts: &Parts,
    name: &ArchiveName,
    scratch: &Path,
    signals: &HeldSignals,
) -> Result<Dumped, Failure> {
    let images = &scratch.join("images");
    fs::create_dir(images).map_err(|e| {
        Failure::new(Code::CannotWrite, format!("cannot make {}", images.display())).note(e.to_string())
    })?;
    let outside = inner_connections::allowed(options.outside, &target.tree());
    let request = Request {
        target,
        parts,
        images,
        guarded: stopped_tree::Output {
            images: scratch,
            // What is only on its way elsewhere is not there yet.
            archive: (!options.leave_running && then.is_none()).then_some(options.output),
            handover: None,
            tcp_in: outside.tcp_established.then_some(images),
        },
        pause_timeout: options.pause_timeout,
        bundle: options.bundle,
        outside,
        asked: options.outside,
    };
    let interrupting = Interrupting::new(signals);
    let failed = |error| interrupting.failure(error, "the dump");
    // Beside the images, so that none of them is taken for one.
    let mut archive = NamelessArchive::create(name, Some(scratch)).map_err(failed)?;
    let stopping = Instant::now();
    let mut outgoing = Outgoing::new(&request, name.path(), FileSink::new(archive.file(), &interrupting));
    let mut captured = capture::capture(&request, signals, &mut outgoing)?;
    check::require_way_back(images, &captured.manifest, options.outside)?;
    let archiving = Instant::now();
    let written = outgoing.finish(&captured)?.written;
    let publishing = writer::Options {
        is_interrupted: Some(&|| interrupting.has_come()),
        reads_back: options.reads_back,
        id_file: Some(&stopped_tree::id_file(scratch)),
        ..writer::Options::default()
    };
    remark::progress("flushing");
    archive.publish(&written, publishing).map_err(failed)?;
    let archived = archiving.elapsed();
    remark::progress_done();
    if let Some(then) = then {
        then(&Archived {
            manifest: &captured.manifest,
            stopped: stopping.elapsed(),
            is_interrupted: &|| interrupting.has_come(),
        })?;
    }
    if !options.leave_running {
        captured.end();
    }
    Ok(Dumped {
        pid: target.called(),
        size: written.size_bytes,
        times: captured.times,
        archive: archived,
        not_kept: std::mem::take(&mut captured.not_kept),
    })
}

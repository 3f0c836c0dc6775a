//! Dumping a program into an archive: stop it, capture it, write the archive, and only then end it.

use hetckpt_ring::failure_code::Code;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use hetckpt_archive::manifest::Manifest;
use hetckpt_archive::stream_writer;
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
use crate::capture::{self, Captured, Parts, Request, Times};
use crate::carried::choice::Bundle;
use crate::outgoing::{ArchiveSink, Outgoing};
use crate::parent::Parent;
use crate::stream_sink::StreamSink;
use crate::{archive_name, check, inner_connections, private_folder};

/// Where an archive goes.
#[derive(Clone, Copy, Debug)]
pub enum Output<'a> {
    /// Into a file.
    File {
        /// Its name.
        path: &'a Path,
        /// A regular file that has this name is replaced.
        force: bool,
        /// It is read back from the disk before the program is ended.
        reads_back: bool,
        /// The archive that it borrows from.
        parent: Option<&'a Path>,
    },
    /// Into what is open for writing, such as a pipe. What becomes of it there is for the caller to know.
    Stream {
        /// Where to.
        to: BorrowedFd<'a>,
        /// What errors call it.
        called: &'a str,
    },
}

/// How to dump.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Where the archive goes.
    pub output: Output<'a>,
    /// The program runs on after the dump.
    pub leave_running: bool,
    /// It runs on as soon as all but device memory is captured.
    pub live: bool,
    /// Longest time to wait for kernels to stop, in seconds.
    pub pause_timeout: u32,
    /// Files to carry.
    pub bundle: Bundle,
    /// Connections to take along.
    pub outside: Outside,
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
    let place =
        Place::find(options.output).map_err(|failure| failure.state("the program runs on; no archive was written"))?;
    let target = Target::find(pid)?;
    let _lock = DumpLock::take(&target.tree())?;
    let cannot_begin = |failure: Failure| namespaces::with_user(failure).state(runs_on(&target));
    let parts = Parts::find().map_err(cannot_begin)?;
    // A signal must not end us while the tree is stopped: it ends the dump, and then the tree runs on. From before the
    // folder is made, so that none leaves it behind.
    let signals = HeldSignals::hold()?;
    let scratch = place.scratch_folder().map_err(cannot_begin)?;
    dump_stopped(options, then, &target, &parts, &place, scratch.path(), &signals)
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

/// Where an archive goes, once it has been looked at.
enum Place<'a> {
    /// Into a file.
    File {
        /// The name that it gets.
        name: ArchiveName,
        /// It is read back.
        reads_back: bool,
        /// What it borrows from.
        parent: Option<Box<Parent>>,
    },
    /// As [`Output::Stream`].
    Stream { to: BorrowedFd<'a>, called: &'a str },
}

impl<'a> Place<'a> {
    fn find(output: Output<'a>) -> Result<Self, Failure> {
        Ok(match output {
            Output::Stream { to, called } => Self::Stream { to, called },
            Output::File {
                path,
                force,
                reads_back,
                parent,
            } => Self::File {
                name: archive_name::find(path, force)?,
                reads_back,
                parent: parent
                    .map(|parent| Parent::open(parent, path).map(Box::new))
                    .transpose()?,
            },
        })
    }

    /// The file, if it is one.
    fn file(&self) -> Option<&Path> {
        match self {
            Self::File { name, .. } => Some(name.path()),
            Self::Stream { .. } => None,
        }
    }

    /// What it borrows from.
    fn parent(&self) -> Option<&Parent> {
        match self {
            Self::File { parent, .. } => parent.as_deref(),
            Self::Stream { .. } => None,
        }
    }

    /// A folder for CRIU's images and for what is unfinished of the archive.
    fn scratch_folder(&self) -> Result<TempDir, Failure> {
        match self.file() {
            Some(path) => folder_beside(path),
            None => private_folder::private_folder(&std::env::temp_dir(), SCRATCH).map_err(|error| {
                Failure::new(Code::CannotWrite, "cannot make a folder for CRIU's images")
                    .note(error.to_string())
                    .help("set TMPDIR to a folder where you may write")
            }),
        }
    }
}

/// How such folders' names begin.
const SCRATCH: &str = ".hetckpt-dump-";

/// A folder beside the archive: on the same file system, which also proves that one can write there.
fn folder_beside(archive: &Path) -> Result<TempDir, Failure> {
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
    private_folder::private_folder(&parent, SCRATCH).map_err(|e| cannot(e.to_string()))
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
    /// From when kernels were told to stop until the program ran on, or could be ended.
    pub stopped: Duration,
    /// What the program called its state; empty if it said nothing.
    pub label: String,
    /// The files of the archives that it borrows from, as it has them.
    pub parents: Vec<String>,
    /// What a restore will not give back, a sentence each.
    pub not_kept: Vec<String>,
}

/// From the pause to the program's end; after a failure the program runs on.
fn dump_stopped(
    options: &Options<'_>,
    then: Option<Then<'_>>,
    target: &Target,
    parts: &Parts,
    place: &Place<'_>,
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
            archive: place.file().filter(|_| !options.leave_running && then.is_none()),
            handover: None,
            tcp_in: outside.tcp_established.then_some(images),
        },
        pause_timeout: options.pause_timeout,
        bundle: options.bundle,
        live: options.live,
        parent: place.parent(),
        outside,
        asked: options.outside,
    };
    let interrupting = Interrupting::new(signals);
    let (mut captured, written, archived) = match *place {
        Place::Stream { to, called } => {
            let sink = StreamSink::new(to, &interrupting);
            let (captured, written, archiving) = write(&request, Path::new(called), sink, signals)?;
            (captured, written, archiving.elapsed())
        }
        Place::File {
            ref name, reads_back, ..
        } => write_file(&request, name, reads_back, scratch, signals, &interrupting)?,
    };
    remark::progress_done();
    if let Some(then) = then {
        then(&Archived {
            manifest: &captured.manifest,
            stopped: captured.stopping.elapsed(),
            is_interrupted: &|| interrupting.has_come(),
        })?;
    }
    let stopped = captured.times.stopped.unwrap_or_else(|| captured.stopping.elapsed());
    if !options.leave_running {
        captured.end();
    }
    Ok(Dumped {
        pid: target.called(),
        size: written.size_bytes,
        times: captured.times,
        archive: archived,
        stopped,
        label: captured.manifest.label().to_owned(),
        parents: written.parents,
        not_kept: std::mem::take(&mut captured.not_kept),
    })
}

/// A program that stands still, its archive, and how long the last of that took.
type Written<'a> = (Captured<'a>, stream_writer::Written, Duration);

/// Captures the program into a file, which gets its name once all of it is on the disk.
fn write_file<'a>(
    request: &Request<'a>,
    name: &ArchiveName,
    reads_back: bool,
    scratch: &Path,
    signals: &HeldSignals,
    interrupting: &Interrupting<'_>,
) -> Result<Written<'a>, Failure> {
    let failed = |error| interrupting.failure(error, "the dump");
    // Beside the images, so that none of them is taken for one.
    let mut archive = NamelessArchive::create(name, Some(scratch)).map_err(failed)?;
    let sink = FileSink::new(archive.file(), interrupting);
    let (captured, written, archiving) = write(request, name.path(), sink, signals)?;
    let publishing = writer::Options {
        is_interrupted: Some(&|| interrupting.has_come()),
        reads_back,
        id_file: Some(&stopped_tree::id_file(scratch)),
        ..writer::Options::default()
    };
    remark::progress("flushing");
    if let Some(parent) = request.parent {
        parent.ensure_there(reads_back)?;
    }
    archive.publish(&written, publishing).map_err(failed)?;
    Ok((captured, written, archiving.elapsed()))
}

/// Captures the program into `sink`, which errors call `target`; when the last part of that began.
fn write<'a, S: ArchiveSink>(
    request: &Request<'a>,
    target: &Path,
    sink: S,
    signals: &HeldSignals,
) -> Result<(Captured<'a>, stream_writer::Written, Instant), Failure> {
    let mut outgoing = Outgoing::new(request, target, sink);
    let captured = capture::capture(request, signals, &mut outgoing)?;
    // A live capture has looked before the program ran on.
    if !request.live {
        check::require_way_back(request.images, &captured.manifest, request.asked)?;
    }
    let archiving = Instant::now();
    let written = outgoing.finish(&captured)?.written;
    Ok((captured, written, archiving))
}

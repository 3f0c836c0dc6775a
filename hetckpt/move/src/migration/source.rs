//! The side that a program leaves.

use hetckpt_ring::failure_code::Code;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use procfs::process::Process;
use tempfile::TempDir;

use hetckpt_report::failure::Failure;
use hetckpt_report::remark;
use hetckpt_supervise::dump_lock::DumpLock;
use hetckpt_supervise::interrupting::ensure_not_interrupted;
use hetckpt_supervise::signals::HeldSignals;
use hetckpt_supervise::target::Target;
use hetckpt_supervise::{namespaces, process_tree, server_list, stopped_tree};

use crate::adaptation::Outside;
use crate::capture::{self, Parts, Request, Times};
use crate::carried::choice::Bundle;
use crate::inner_connections;
use crate::migration::archive_sender::ChannelSink;
use crate::migration::channel::Channel;
use crate::migration::commit::commit;
use crate::migration::handover::{Address, Handover, Outcome};
use crate::migration::message::{self, Message, Offer};
use crate::migration::tls;
use crate::outgoing::{Outgoing, Sent};
use crate::private_folder::private_folder;

/// How to move a program.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Where to.
    pub to: &'a Address,
    /// Name that must be in the target's certificate.
    pub server_name: &'a str,
    /// Who we are.
    pub files: &'a tls::Files,
    /// Longest time to wait for kernels to stop, in seconds.
    pub pause_timeout: u32,
    /// Files to carry.
    pub bundle: Bundle,
    /// Connections to take along.
    pub outside: Outside,
    /// Folder for CRIU's images but those of memory; none: that for temporary files.
    pub scratch: Option<&'a Path>,
    /// For how long to try to reach the target again once the program is its own.
    pub patience: Duration,
}

/// What a move needs to know.
struct Move<'a> {
    /// The program.
    target: &'a Target,
    /// What to capture it with.
    parts: &'a Parts,
    /// A folder of its own, for CRIU's images but those of memory.
    scratch: &'a TempDir,
    options: &'a Options<'a>,
}

/// What came of it.
#[derive(Debug)]
pub struct Moved {
    /// The root's process id for whoever gave the command.
    pub left_pid: i32,
    /// The process id on the target.
    pub pid: i32,
    /// The number by which the target knows it.
    pub id: String,
    /// Size of the archive.
    pub archive_bytes: u64,
    /// Times on this side.
    pub times: Times,
    /// Sending, from the first page that CRIU gives on.
    pub transfer: Duration,
    /// From the last byte to the target's word that it holds the snapshot.
    pub confirmation: Duration,
    /// From the release to the target's word that the program runs.
    pub restore: Duration,
    /// For how long the program did not run.
    pub stopped: Duration,
}

/// A snapshot that the target holds and has found restorable.
struct Held {
    archive_bytes: u64,
    transfer: Duration,
    confirmation: Duration,
}

/// Moves the tree of process `pid`. What became of it is in the failure, if it fails.
pub fn migrate(pid: i32, options: &Options<'_>) -> Result<Moved, Failure> {
    // Before the first thread starts, which would take a signal otherwise, and end us while the tree is stopped.
    let signals = HeldSignals::hold()?;
    let target = Target::find(pid)?;
    let _lock = DumpLock::take(&target.tree())?;
    let runs_on = |failure: Failure| {
        namespaces::with_user(failure).state(format!("the program (pid {}) runs on here", target.called()))
    };
    let parts = Parts::find().map_err(runs_on)?;
    let scratch = scratch_folder(options.scratch).map_err(runs_on)?;
    let wanted = Move {
        target: &target,
        parts: &parts,
        scratch: &scratch,
        options,
    };
    run(&wanted, &signals)
}

fn scratch_folder(named: Option<&Path>) -> Result<TempDir, Failure> {
    let folder = named.map_or_else(std::env::temp_dir, Path::to_owned);
    std::path::absolute(&folder)
        .and_then(|folder| private_folder(&folder, "hetckpt-migrate-"))
        .map_err(|e| {
            let what = format!("cannot make a folder for the images in {}", folder.display());
            Failure::new(Code::CannotWrite, what)
                .note(e.to_string())
                .help("name a folder where you may write and where there is room: --scratch")
        })
}

fn run(wanted: &Move<'_>, signals: &HeldSignals) -> Result<Moved, Failure> {
    let runs_on = |failure: Failure| after_failure(wanted.target, failure);
    let handover = Handover {
        id: message::new_id().map_err(runs_on)?,
        to: wanted.options.to.clone(),
        server_name: wanted.options.server_name.to_owned(),
        files: wanted.options.files.absolute().map_err(runs_on)?,
    };
    let record = wanted.scratch.path().join("handover.json");
    let released = wanted.scratch.path().join("released");
    let images = wanted.scratch.path().join("images");
    fs::create_dir(&images)
        .map_err(|e| Failure::new(Code::CannotWrite, format!("cannot make {}", images.display())).note(e.to_string()))
        .map_err(runs_on)?;
    handover.save(&record).map_err(runs_on)?;

    remark::progress(format!("asking {}", wanted.options.to));
    let (mut channel, limit_bytes) = offer(wanted, &handover).map_err(runs_on)?;
    let outside = inner_connections::allowed(wanted.options.outside, &wanted.target.tree());
    let request = Request {
        target: wanted.target,
        parts: wanted.parts,
        images: &images,
        guarded: stopped_tree::Output {
            images: wanted.scratch.path(),
            archive: Some(&released),
            handover: Some(&record),
            tcp_in: outside.tcp_established.then_some(&images),
        },
        pause_timeout: wanted.options.pause_timeout,
        bundle: wanted.options.bundle,
        live: false,
        parent: None,
        outside,
        asked: wanted.options.outside,
    };
    let sent = channel
        .while_sending(|channel| {
            let peer = PathBuf::from(channel.lock().peer());
            let sink = ChannelSink::new(channel, signals, limit_bytes);
            let mut outgoing = Outgoing::new(&request, &peer, sink);
            let captured = capture::capture(&request, signals, &mut outgoing)?;
            let sent = outgoing.finish(&captured)?;
            Ok((captured, sent))
        })
        .and_then(|(captured, sent)| {
            let held = confirm(&mut channel, sent, signals)?;
            commit(signals, &released)?;
            Ok((captured, held))
        });
    let (mut captured, held) = match sent {
        Ok(moved) => moved,
        Err(failure) => {
            // Before the target may know: until it has heard, the program may come to its end.
            let failure = runs_on(failure);
            if channel.has_sent_data() {
                let _ = handover.withdraw(None);
            }
            return Err(failure);
        }
    };

    // From here on the program is the target's, whatever happens; if we are killed, the guardian goes on from here.
    captured.end();
    let releasing = Instant::now();
    remark::progress(format!("restoring on {}", wanted.options.to));
    let outcome = handover.release(Some(channel), wanted.options.patience);
    remark::progress_done();
    let (times, stopping) = (captured.times, captured.stopping);
    for sentence in &captured.not_kept {
        remark::note(format!("the target does not give back: {sentence}"));
    }
    // The guardian leaves with it.
    drop(captured);
    match outcome {
        Ok(Outcome::Running { pid }) => Ok(Moved {
            left_pid: wanted.target.called(),
            pid,
            id: handover.id,
            archive_bytes: held.archive_bytes,
            times,
            transfer: held.transfer,
            confirmation: held.confirmation,
            restore: releasing.elapsed(),
            stopped: stopping.elapsed(),
        }),
        Ok(Outcome::NotRunning { reason, archive }) => {
            let mut failure = reason.failure(wanted.options.server_name);
            failure.notes.push(format!(
                "it came from {}, which said: [{}]",
                wanted.options.to, failure.code
            ));
            failure.code = Code::RestoreFailedThere;
            Err(failure.state(format!(
                "the program does not run; {} holds all of it in {}",
                wanted.options.to,
                message::plain(&archive)
            )))
        }
        Err(mut failure) => {
            failure.notes.push(failure.message.clone());
            failure.message = format!("{} did not say what became of the program", wanted.options.to);
            failure.code = Code::NotHeardOf;
            Err(failure
                .state(format!(
                    "the program has ended here; {} holds all of it as {}.hetsnap in the folder of `hetckpt serve`, and starts it as soon as it learns of its release",
                    wanted.options.to, handover.id
                ))
                .help("look whether the program runs there; if it does not, and its record there stays `prepared`, give that .hetsnap file to `hetckpt restore` there"))
        }
    }
}

/// What a move that failed leaves here: the program, unless that has ended by itself.
fn after_failure(target: &Target, failure: Failure) -> Failure {
    remark::progress_done();
    if failure.state.is_some() {
        return failure;
    }
    if !process_tree::has_ended_or_ends(target.pid) {
        return failure.state(format!("the program (pid {}) runs on here", target.called()));
    }
    Failure::new(
        Code::NoSuchProcess,
        format!("process {} ended before it was moved", target.called()),
    )
    .note(failure.message)
    .state("nothing was moved")
}

/// Asks the target, while the program still runs. Gives the connection and how large the archive may be.
fn offer(wanted: &Move<'_>, handover: &Handover) -> Result<(Channel, u64), Failure> {
    let client = tls::Client::new(wanted.options.files)?;
    let offer = describe(wanted.target, &handover.id)?;
    let mut channel = handover.connect(&client)?;
    channel.send(&Message::Offer(offer))?;
    match channel.receive()? {
        Message::Accept { limit_bytes } => Ok((channel, limit_bytes)),
        other => Err(channel.unexpected(&other)),
    }
}

fn describe(target: &Target, id: &str) -> Result<Offer, Failure> {
    let tree = target.tree();
    let mut pids = vec![];
    let mut estimated_bytes = 0;
    for process in tree.iter().filter_map(|&pid| Process::new(pid).ok()) {
        let threads = process.tasks().into_iter().flatten().flatten();
        pids.extend(threads.filter_map(|thread| u32::try_from(thread.tid).ok()));
        let status = process.status().ok();
        let of = |kib: Option<u64>| kib.unwrap_or_default().saturating_mul(1024);
        estimated_bytes += status.map_or(0, |status| of(status.rssanon) + of(status.rssshmem));
    }
    let rows = server_list::all()?.into_iter();
    let is_ours = |pid: u32| i32::try_from(pid).is_ok_and(|pid| tree.contains(&pid));
    let working_folder = fs::read_link(format!("/proc/{}/cwd", target.pid)).unwrap_or_default();
    Ok(Offer {
        id: id.to_owned(),
        root_pid: target.pid,
        command: target.command.clone(),
        pids,
        pid_space: pid_space(),
        device_bytes: rows
            .filter(|row| is_ours(row.pid))
            .map(|row| row.memory_bytes)
            .collect(),
        estimated_bytes,
        has_terminal: target
            .stdio
            .iter()
            .any(|name| name.starts_with("/dev/pts/") || name.starts_with("/dev/tty")),
        working_folder: working_folder.to_string_lossy().into_owned(),
    })
}

/// Where process ids are counted as they are here.
pub fn pid_space() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), namespace.display())
}

/// Tells the target that it has all of the snapshot, and waits until it says that it holds it.
fn confirm(channel: &mut Channel, sent: Sent, signals: &HeldSignals) -> Result<Held, Failure> {
    let confirming = Instant::now();
    channel.send(&Message::Complete {
        size_bytes: sent.written.size_bytes,
        manifest_hash: sent.written.manifest_hash,
    })?;
    remark::progress(format!("{} verifies", channel.peer()));
    match channel.receive_while(&mut || ensure_not_interrupted(signals, "the move"))? {
        Message::Prepared { .. } => Ok(Held {
            archive_bytes: sent.written.size_bytes,
            transfer: sent.duration,
            confirmation: confirming.elapsed(),
        }),
        other => Err(channel.unexpected(&other)),
    }
}

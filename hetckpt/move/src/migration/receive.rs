//! The side that a program comes to: a connection, from the greeting to the end.

use hetckpt_ring::failure_code::Code;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::statvfs::statvfs;

use hetckpt_report::failure::Failure;
use hetckpt_report::{quantity, remark};

use crate::adaptation::Outside;
use crate::check;
use crate::migration::archive_sender::too_large;
use crate::migration::channel::{Channel, Frame};
use crate::migration::depot::{Incoming, Record, Release, State};
use crate::migration::launch::Launcher;
use crate::migration::message::{Message, Offer, Report, plain};
use crate::migration::peer::KeyHash;
use crate::migration::slots::{self, Slots};
use crate::migration::source;
use crate::migration::tls;
use crate::snapshot::Snapshot;

/// Longest time for a caller to show who it is and to say what it wants.
const GREETING_LIMIT: Duration = Duration::from_secs(5);

/// How often it is looked whether a released program runs.
const INTERVAL: Duration = Duration::from_millis(20);

/// After so many bytes it is looked again whether all archives keep within the quota.
const QUOTA_STEP_BYTES: u64 = 16 << 20;

/// Hears a caller out.
pub fn answer(
    stream: TcpStream,
    tls: &tls::Server,
    launcher: &Arc<Launcher>,
    caller: slots::Caller,
    slots: &Arc<Slots>,
) {
    let peer = stream
        .peer_addr()
        .map_or("somebody".to_owned(), |address| address.to_string());
    if let Err(failure) = converse(stream, &peer, tls, launcher, caller, slots) {
        let notes: String = failure.notes.iter().map(|note| format!(" ({})", plain(note))).collect();
        remark::note(format!("{peer}: [{}] {}{notes}", failure.code, plain(&failure.message)));
    }
}

fn converse(
    stream: TcpStream,
    peer: &str,
    tls: &tls::Server,
    launcher: &Arc<Launcher>,
    caller: slots::Caller,
    slots: &Arc<Slots>,
) -> Result<(), Failure> {
    let until = Instant::now() + GREETING_LIMIT;
    let mut channel = tls.greet(stream, peer, until)?;
    channel.set_working_limit(Duration::from_secs(launcher.options.working_limit));
    channel.set_until(Some(until));
    let said = channel.agree().and_then(|()| channel.receive());
    channel.set_until(None);
    drop(caller);
    let result = said.and_then(|said| match said {
        Message::Offer(offer) => {
            let _slot = slots.program().ok_or_else(|| busy(launcher.options.connections))?;
            receive(&mut channel, &offer, launcher)
        }
        Message::Released { id } => released(&mut channel, &id, launcher),
        Message::Withdrawn { id } => withdrawn(&mut channel, &id, launcher),
        other => Err(channel.unexpected(&other)),
    });
    result.inspect_err(|failure| channel.refuse(failure))
}

fn busy(most: usize) -> Failure {
    Failure::new(Code::Busy, "the target is busy")
        .note(format!("it receives {most} programs already"))
        .help("try again in a moment, or raise `serve --connections`")
}

/// Takes a program in, as far as its source goes with it.
fn receive(channel: &mut Channel, offer: &Offer, launcher: &Arc<Launcher>) -> Result<(), Failure> {
    let options = &launcher.options;
    let is_same_space = offer.pid_space == source::pid_space();
    let wanted = check::Wanted {
        device: &options.device,
        allowed: check::Allowed {
            adaptation: &options.adaptation,
            // As the restore will be told (`launch`).
            outside: Outside {
                tcp_established: true,
                ext_unix_sk: true,
            },
        },
        any_processor: options.any_processor,
        ids_come_free: is_same_space,
    };
    let command = plain(&offer.command.join(" "));
    remark::note(format!(
        "{}: offered by {}: {command}",
        plain(&offer.id),
        channel.peer()
    ));
    channel.while_working(|| check::offer(offer, &wanted))?;
    let quota_left = options
        .quota
        .map(|quota| quota.saturating_sub(launcher.depot.archive_bytes()));
    let limit_bytes = room(launcher.depot.folder())
        .min(options.max_size.unwrap_or(u64::MAX))
        .min(quota_left.unwrap_or(u64::MAX));
    let owner = channel.key().cloned();
    let incoming = launcher.depot.begin(&offer.id, owner.clone())?;
    channel.send(&Message::Accept { limit_bytes })?;
    let Some((size_bytes, manifest_hash)) = take_archive(channel, &incoming, offer, limit_bytes, launcher)? else {
        remark::note(format!("{}: taken back by its source", offer.id));
        return Ok(());
    };
    let path = channel.while_working(|| {
        incoming.verify(size_bytes, &manifest_hash)?;
        let record = examine(&incoming.path, &wanted, owner)?;
        incoming.prepare(&record)
    })?;
    remark::note(format!("{}: prepared, {}", offer.id, quantity::bytes(size_bytes)));
    channel.send(&Message::Prepared {
        archive: path.display().to_string(),
    })?;
    match channel.receive()? {
        Message::Released { id } if id == offer.id => released(channel, &id, launcher),
        Message::Withdrawn { id } if id == offer.id => withdrawn(channel, &id, launcher),
        other => Err(channel.unexpected(&other)),
    }
}

fn room(folder: &Path) -> u64 {
    statvfs(folder).map_or(0, |found| {
        found.blocks_available().saturating_mul(found.fragment_size())
    })
}

/// Writes what comes. Gives the size and the manifest's hash that the source says; nothing if it takes the program
/// back.
fn take_archive(
    channel: &mut Channel,
    incoming: &Incoming<'_>,
    offer: &Offer,
    limit_bytes: u64,
    launcher: &Launcher,
) -> Result<Option<(u64, String)>, Failure> {
    let mut look_at = QUOTA_STEP_BYTES;
    let mut taken = 0;
    // Others are received at the same time.
    let mut keeps_within_quota = |more: u64| {
        taken += more;
        if taken < look_at {
            return true;
        }
        look_at = taken + QUOTA_STEP_BYTES;
        let quota = launcher.options.quota;
        quota.is_none_or(|quota| launcher.depot.archive_bytes() <= quota)
    };
    loop {
        let said = channel.receive_frame(|frame| match frame {
            Frame::Data(position, bytes) => {
                let is_within = position
                    .checked_add(bytes.len() as u64)
                    .is_some_and(|end| end <= limit_bytes);
                if !is_within {
                    return Err(too_large("this node", limit_bytes));
                }
                if !keeps_within_quota(bytes.len() as u64) {
                    return Err(over_quota());
                }
                incoming.take(position, bytes).map(|()| None)
            }
            Frame::Message(message) => Ok(Some(message)),
        })?;
        match said? {
            None => {}
            Some(Message::Complete {
                size_bytes,
                manifest_hash,
            }) => return Ok(Some((size_bytes, manifest_hash))),
            Some(Message::Withdrawn { id }) if id == offer.id => return Ok(None),
            Some(other) => return Err(channel.unexpected(&other)),
        }
    }
}

fn over_quota() -> Failure {
    Failure::new(Code::TooLarge, "this node has no more room for archives")
        .note("others that it receives at the same time have come to its quota")
        .help("try again in a moment, or raise `serve --quota`")
}

/// Makes sure that the archive can be restored here, as far as can be told.
fn examine(path: &Path, wanted: &check::Wanted<'_>, owner: Option<KeyHash>) -> Result<Record, Failure> {
    let snapshot = Snapshot::open(path)?;
    check::accept(&snapshot, wanted)?;
    let manifest = snapshot.manifest();
    Ok(Record {
        state: State::Prepared,
        root_pid: manifest.header.root_pid,
        command: manifest.header.command.clone(),
        owner,
    })
}

/// The program is ours: it is started, if it has not been, and the source learns what becomes of it.
fn released(channel: &mut Channel, id: &str, launcher: &Arc<Launcher>) -> Result<(), Failure> {
    match launcher.depot.release(id, channel.key())? {
        Release::Unknown => return channel.send(&Message::Forgotten),
        Release::Before => {}
        Release::Now => {
            remark::note(format!("{id}: released"));
            launcher.start(id);
        }
    }
    let answer = channel.while_working(|| {
        loop {
            let Some(record) = launcher.depot.record(id) else {
                return Ok(Message::Forgotten);
            };
            match record.state {
                State::Running { .. } | State::Ended { .. } => return Ok(Message::Running { pid: record.root_pid }),
                State::Failed { reason } => return Ok(not_running(reason, launcher, id)),
                State::Prepared | State::Released | State::Starting { .. } => std::thread::sleep(INTERVAL),
            }
        }
    })?;
    channel.send(&answer)
}

fn not_running(reason: Report, launcher: &Launcher, id: &str) -> Message {
    Message::NotRunning {
        reason,
        archive: launcher.depot.file(id, "hetsnap").display().to_string(),
    }
}

fn withdrawn(channel: &mut Channel, id: &str, launcher: &Launcher) -> Result<(), Failure> {
    if !launcher.depot.withdraw(id, channel.key()) {
        return Err(channel.not_understood("it takes back what it has released"));
    }
    remark::note(format!("{}: taken back by its source", plain(id)));
    channel.send(&Message::Forgotten)
}

//! The side that a program comes to: a connection, from the greeting to the end.

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::statvfs::statvfs;

use super::channel::{Channel, Frame};
use super::depot::{Incoming, Record, Release, State};
use super::launch::Launcher;
use super::message::{Message, Offer, Report, plain};
use super::sink::too_large;
use super::{source, tls};
use crate::check;
use crate::cli::Outside;
use crate::diagnostic::Failure;
use crate::output;
use crate::snapshot::Snapshot;

/// Longest time for a caller to show who it is.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked whether a released program runs.
const INTERVAL: Duration = Duration::from_millis(20);

/// Hears a caller out.
pub fn answer(stream: TcpStream, tls: &tls::Server, launcher: &Arc<Launcher>) {
    let peer = stream
        .peer_addr()
        .map_or("somebody".to_owned(), |address| address.to_string());
    if let Err(failure) = converse(stream, &peer, tls, launcher) {
        let notes: String = failure.notes.iter().map(|note| format!(" ({})", plain(note))).collect();
        output::note(format!("{peer}: [{}] {}{notes}", failure.code, plain(&failure.message)));
    }
}

fn converse(stream: TcpStream, peer: &str, tls: &tls::Server, launcher: &Arc<Launcher>) -> Result<(), Failure> {
    let mut channel = tls.greet(stream, peer, Instant::now() + GREETING_LIMIT)?;
    let result = channel.agree().and_then(|()| match channel.receive()? {
        Message::Offer(offer) => receive(&mut channel, &offer, launcher),
        Message::Released { id } => released(&mut channel, &id, launcher),
        Message::Withdrawn { id } => withdrawn(&mut channel, &id, launcher),
        other => Err(channel.unexpected(&other)),
    });
    result.inspect_err(|failure| channel.refuse(failure))
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
    output::note(format!(
        "{}: offered by {}: {command}",
        plain(&offer.id),
        channel.peer()
    ));
    channel.while_working(|| check::offer(offer, &wanted))?;
    let limit_bytes = room(launcher.depot.folder()).min(options.max_size.unwrap_or(u64::MAX));
    let incoming = launcher.depot.begin(&offer.id)?;
    channel.send(&Message::Accept { limit_bytes })?;
    let Some((size_bytes, manifest_hash)) = take_archive(channel, &incoming, offer, limit_bytes)? else {
        output::note(format!("{}: taken back by its source", offer.id));
        return Ok(());
    };
    let path = channel.while_working(|| {
        incoming.verify(size_bytes, &manifest_hash)?;
        let record = examine(&incoming.path, &wanted)?;
        incoming.prepare(&record)
    })?;
    output::note(format!("{}: prepared, {}", offer.id, output::bytes(size_bytes)));
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

/// Writes what comes. Gives the size and the manifest's hash that the source says; nothing if it takes the program back.
fn take_archive(
    channel: &mut Channel,
    incoming: &Incoming<'_>,
    offer: &Offer,
    limit_bytes: u64,
) -> Result<Option<(u64, String)>, Failure> {
    loop {
        let said = channel.receive_frame(|frame| match frame {
            Frame::Data(position, bytes) => {
                let is_within = position
                    .checked_add(bytes.len() as u64)
                    .is_some_and(|end| end <= limit_bytes);
                match is_within {
                    true => incoming.take(position, bytes).map(|()| None),
                    false => Err(too_large("this node", limit_bytes)),
                }
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

/// Makes sure that the archive can be restored here, as far as can be told.
fn examine(path: &Path, wanted: &check::Wanted<'_>) -> Result<Record, Failure> {
    let snapshot = Snapshot::open(path)?;
    check::accept(&snapshot, wanted)?;
    let manifest = snapshot.manifest();
    Ok(Record {
        state: State::Prepared,
        root_pid: manifest.root_pid,
        command: manifest.command.clone(),
    })
}

/// The program is ours: it is started, if it has not been, and the source learns what becomes of it.
fn released(channel: &mut Channel, id: &str, launcher: &Arc<Launcher>) -> Result<(), Failure> {
    match launcher.depot.release(id)? {
        Release::Unknown => return channel.send(&Message::Forgotten),
        Release::Before => {}
        Release::Now => {
            output::note(format!("{id}: released"));
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
    if !launcher.depot.withdraw(id) {
        return Err(channel.not_understood("it takes back what it has released"));
    }
    output::note(format!("{}: taken back by its source", plain(id)));
    channel.send(&Message::Forgotten)
}

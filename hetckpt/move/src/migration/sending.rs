//! An archive on its way to the target: first the memory of the program's devices and its own, as it is dumped, then
//! all other members.

use hetckpt_ring::failure_code::Code;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use procfs::process::{MMPermissions, MMapPath, Process};

use hetckpt_archive::error::ArchiveError;
use hetckpt_archive::stream_writer::{self, ArchiveStream, Compression, Written};
use hetckpt_archive::writer;
use hetckpt_criu::memory_sink::MemorySink;
use hetckpt_report::failure::Failure;
use hetckpt_report::{archive_error, quantity, remark};
use hetckpt_supervise::signals::HeldSignals;

use crate::capture::{Captured, Request};
use crate::migration::archive_sender::ChannelSink;
use crate::migration::channel::Shared;
use crate::snapshot_files;

/// Images that a dump has at most of the system and its namespaces, and of each process besides what is counted.
const MEMBERS_OF_SYSTEM: u64 = 128;

const MEMBERS_OF_PROCESS: u64 = 16;

/// Most bytes that a carried file's entry takes in the manifest, but for its path.
const CARRIED_FILE_BYTES: u64 = 512;

/// A program that runs may have twice as much of everything when it is stopped.
const MARGIN: u64 = 2;

/// The archive.
pub struct Sending<'a, 'c> {
    request: &'a Request<'a>,
    expected: Expected,
    peer: String,
    /// Until the first member.
    sink: Option<ChannelSink<'a, 'c>>,
    begun: Option<(Instant, ArchiveStream<ChannelSink<'a, 'c>>)>,
}

/// What came of it.
pub struct Sent {
    /// The archive.
    pub written: Written,
    /// Since the first member.
    pub duration: Duration,
}

impl<'a, 'c> Sending<'a, 'c> {
    /// Of the program in `request`, which still runs.
    pub fn new(request: &'a Request<'a>, channel: &'a Shared<'c>, signals: &'a HeldSignals, limit_bytes: u64) -> Self {
        Self {
            request,
            expected: Expected::of(&request.target.tree()),
            peer: channel.lock().peer().to_owned(),
            sink: Some(ChannelSink::new(channel, signals, limit_bytes)),
            begun: None,
        }
    }

    /// Sends what is still to be sent, and the manifest.
    pub fn finish(mut self, captured: &Captured<'_>) -> Result<Sent, Failure> {
        self.begin()?;
        let Some((begun, mut archive)) = self.begun.take() else {
            return Err(not_begun());
        };
        let sent = captured
            .sources
            .iter()
            .try_for_each(|source| writer::add_file(&mut archive, source, &mut |done| report(begun, done)))
            .and_then(|()| archive.finish(captured.manifest.clone()));
        let written = sent.map_err(|error| reason(&mut archive, error))?;
        remark::detail(format!("{} sent", quantity::bytes(archive.sink().sent_bytes())));
        Ok(Sent {
            written,
            duration: begun.elapsed(),
        })
    }

    /// Leaves room for the manifest, of which little is known yet.
    fn begin(&mut self) -> Result<(), Failure> {
        let Some(sink) = self.sink.take() else { return Ok(()) };
        let manifest = self.request.early_manifest()?;
        let known = stream_writer::room_for(&manifest, std::iter::empty()).map_err(|e| {
            Failure::new(Code::CannotWrite, "the archive's manifest cannot be written").note(e.to_string())
        })?;
        let Expected {
            num_members,
            carried_bytes,
            descriptions_bytes,
        } = self.expected;
        let other_bytes = [carried_bytes, descriptions_bytes]
            .into_iter()
            .fold(known, u64::saturating_add);
        let room = stream_writer::estimated_room(other_bytes, num_members);
        let archive = ArchiveStream::new(sink, Path::new(&self.peer), room, Compression::default());
        self.begun = Some((Instant::now(), archive.map_err(archive_error::failure)?));
        Ok(())
    }
}

impl MemorySink for Sending<'_, '_> {
    fn expect_descriptions(&mut self, most_bytes: u64) {
        self.expected.descriptions_bytes = MARGIN.saturating_mul(most_bytes);
    }

    fn take(&mut self, name: &str, content: &mut dyn Read) -> Result<(), Failure> {
        self.begin()?;
        let (begun, archive) = self.begun.as_mut().ok_or_else(not_begun)?;
        let begun = *begun;
        let (member, encoding) = snapshot_files::member(name);
        let added = archive.add(&member, encoding, content, &mut |done| report(begun, done));
        added.map_err(|error| reason(archive, error))
    }
}

fn not_begun() -> Failure {
    Failure::new(Code::StandIn, "the archive was not begun (a bug in hetckpt)")
}

fn report(begun: Instant, done: u64) {
    let rate = done as f64 / begun.elapsed().as_secs_f64().max(0.001);
    remark::progress(format!("sending {} ({:.0} MB/s)", quantity::bytes(done), rate / 1e6));
}

/// Why writing has failed: as the connection has it, if it was that.
fn reason(archive: &mut ArchiveStream<ChannelSink<'_, '_>>, error: ArchiveError) -> Failure {
    let of_connection = archive.sink().failure.take();
    of_connection.unwrap_or_else(|| archive_error::failure(error))
}

/// What an archive's manifest will have at most, told from the processes and the device servers while they run.
#[derive(Debug, PartialEq, Eq)]
struct Expected {
    num_members: u64,
    /// Bytes of the list of carried files.
    carried_bytes: u64,
    /// Bytes of the descriptions of device state.
    descriptions_bytes: u64,
}

impl Expected {
    /// Of the processes `pids`. CRIU makes an image of each thread, may make one of each open or mapped file (if it has
    /// no name any more), and makes two of each piece of shared memory.
    fn of(pids: &[i32]) -> Self {
        let mut num_members = MEMBERS_OF_SYSTEM;
        let mut files: BTreeSet<PathBuf> = BTreeSet::new();
        for process in pids.iter().filter_map(|&pid| Process::new(pid).ok()) {
            let threads = process.tasks().map_or(0, Iterator::count) as u64;
            let descriptors = process.fd_count().unwrap_or_default() as u64;
            num_members += MEMBERS_OF_PROCESS + threads + descriptors;
            for map in process.maps().into_iter().flatten() {
                if map.perms.contains(MMPermissions::SHARED) {
                    num_members += 2;
                }
                if let MMapPath::Path(path) = map.pathname {
                    files.insert(path);
                }
            }
        }
        let paths = files.iter().map(|path| path.as_os_str().len() as u64);
        Self {
            num_members: MARGIN * (num_members + files.len() as u64),
            carried_bytes: MARGIN * paths.map(|length| CARRIED_FILE_BYTES + 2 * length).sum::<u64>(),
            descriptions_bytes: 0,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn processes_are_counted_with_all_they_have() {
        let none = Expected::of(&[]);
        let pid = i32::try_from(std::process::id()).unwrap();
        let one = Expected::of(&[pid]);
        // The program and the C library at least.
        assert!(one.num_members > none.num_members + MARGIN * (MEMBERS_OF_PROCESS + 1 + 3 + 2));
        assert!(one.carried_bytes > 2 * MARGIN * CARRIED_FILE_BYTES);
        assert_eq!(Expected::of(&[-1]), none);
    }
}

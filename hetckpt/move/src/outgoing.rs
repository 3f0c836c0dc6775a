//! An archive on its way, to a file or to another node: first the files that it carries, while the program still runs,
//! then the memory of the program's devices and its own, as it is dumped, then all other members.

use hetckpt_ring::failure_code::Code;
use std::fs;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hetckpt_archive::error::ArchiveError;
use hetckpt_archive::limits::MAX_TEXT_MEMBER_BYTES;
use hetckpt_archive::manifest::{CarriedFile, Index};
use hetckpt_archive::part_appender::WrittenParts;
use hetckpt_archive::sections::Sections;
use hetckpt_archive::stream_writer::{ArchiveStream, Compression, Written};
use hetckpt_archive::writer;
use hetckpt_criu::memory_sink::{MemorySink, Sizes};
use hetckpt_report::failure::Failure;
use hetckpt_report::{archive_error, quantity, remark};
use hetckpt_state::names::{memory_file, pid_of_parts};

use crate::capture::{Captured, Request};
use crate::parent::Parent;
use crate::snapshot_files;

/// What takes the archive's bytes.
pub trait ArchiveSink: Write {
    /// What is being done with them, for the person who waits.
    const DOING: &'static str;

    /// Why writing has failed, if that is more than the error tells.
    fn failure(&mut self) -> Option<Failure>;

    /// The file that it is, if others may write to its end.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Has what was written so far reach the disk, if that is where it goes.
    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Goes on at `position` of that file, where others have written up to there.
    fn go_on_at(&mut self, _position: u64) -> io::Result<()> {
        Ok(())
    }
}

/// The archive.
pub struct Outgoing<'a, S> {
    request: &'a Request<'a>,
    /// What errors call the sink.
    target: PathBuf,
    /// Until the first member.
    sink: Option<S>,
    begun: Option<(Instant, ArchiveStream<S>)>,
    /// Device servers may write memory a second time, when the program runs on.
    more_comes: bool,
}

/// What came of it.
pub struct Sent {
    /// The archive.
    pub written: Written,
    /// Since the first member.
    pub duration: Duration,
}

impl<'a, S: ArchiveSink> Outgoing<'a, S> {
    /// Of the program in `request`, which still runs. `target` is what errors call the sink.
    pub fn new(request: &'a Request<'a>, target: &Path, sink: S) -> Self {
        Self {
            request,
            target: target.to_owned(),
            sink: Some(sink),
            begun: None,
            more_comes: request.live,
        }
    }

    /// Takes the rest, and the index.
    pub fn finish(mut self, captured: &Captured<'_>) -> Result<Sent, Failure> {
        self.begin()?;
        let Some((begun, mut archive)) = self.begun.take() else {
            return Err(not_begun());
        };
        let sent = captured
            .sources
            .iter()
            .try_for_each(|source| writer::add_file(&mut archive, source, &mut |done| report::<S>(begun, done)))
            .and_then(|()| {
                if let Some(parent) = self.request.parent {
                    lend_files(&mut archive, parent, &captured.manifest.index.files);
                }
                let parents = self.request.parent.map(Parent::listed);
                archive.finish(Index {
                    parents: parents.unwrap_or_default(),
                    ..captured.manifest.index.clone()
                })
            });
        let written = sent.map_err(|error| reason(&mut archive, error))?;
        Ok(Sent {
            written,
            duration: begun.elapsed(),
        })
    }

    /// Begins with the header, if that has not been done.
    fn begin(&mut self) -> Result<(), Failure> {
        let Some(sink) = self.sink.take() else { return Ok(()) };
        let header = self.request.header();
        let archive = ArchiveStream::new(sink, &self.target, &header, Compression::default());
        let archive =
            archive.map_err(|(error, mut sink)| sink.failure().unwrap_or_else(|| archive_error::failure(error)));
        let mut archive = archive?;
        if let Some(parent) = self.request.parent {
            archive.borrow_parts(parent.known_parts());
        }
        self.begun = Some((Instant::now(), archive));
        Ok(())
    }
}

impl<S: ArchiveSink> MemorySink for Outgoing<'_, S> {
    fn take(&mut self, name: &str, content: &mut dyn Sections) -> Result<(), Failure> {
        self.begin()?;
        let (begun, archive) = self.begun.as_mut().ok_or_else(not_begun)?;
        let begun = *begun;
        let (member, encoding) = snapshot_files::member(name);
        let added = archive.add(&member, encoding, content, &mut |done| report::<S>(begun, done));
        added.map_err(|error| reason(archive, error))
    }

    fn settle(&mut self) -> Result<(), Failure> {
        let Some((_, archive)) = self.begun.as_mut() else {
            return Ok(());
        };
        match archive.sink().settle() {
            Ok(()) => Ok(()),
            Err(e) => Err(
                Failure::new(Code::CannotWrite, format!("cannot flush {}", self.target.display())).note(e.to_string()),
            ),
        }
    }

    fn file(&mut self) -> Result<Option<BorrowedFd<'_>>, Failure> {
        self.begin()?;
        let (_, archive) = self.begun.as_mut().ok_or_else(not_begun)?;
        Ok(archive.sink().file())
    }

    fn devices_done(&mut self, images: &Path) -> Result<Sizes, Failure> {
        let mut sizes = Sizes::new();
        if self.file()?.is_none() {
            return Ok(sizes);
        }
        let more_comes = std::mem::take(&mut self.more_comes);
        let (_, archive) = self.begun.as_mut().ok_or_else(not_begun)?;
        for (pid, written) in written_by_devices(images, more_comes)? {
            // One after the other, from where the archive ended.
            if written.position != archive.position() {
                return Err(not_understood(pid).note("it has written elsewhere"));
            }
            let name = memory_file(pid);
            let borrowed = match self.request.parent {
                Some(parent) => parent.borrowed(&written.borrowed),
                None => written.borrowed.is_empty().then(Vec::new),
            };
            let borrowed = borrowed.ok_or_else(|| not_understood(pid).note("it borrows what nobody has"))?;
            let sizes_of_own = written.parts.iter().map(|part| part.stored_bytes);
            let all = sizes_of_own.chain(borrowed.iter().map(|borrowed| borrowed.size_bytes));
            sizes.insert(name.clone(), all.fold(0, u64::saturating_add));
            let (member, _) = snapshot_files::member(&name);
            let adopted = archive.adopt(&member, written.parts, borrowed);
            adopted.map_err(archive_error::failure)?;
        }
        let position = archive.position();
        let gone = archive.sink().go_on_at(position);
        gone.map_err(|e| Failure::new(Code::CannotWrite, "cannot go on with the archive").note(e.to_string()))?;
        Ok(sizes)
    }
}

/// Has members that are empty, because `parent` has what they are to be, borrow that.
fn lend_files<S: Write>(archive: &mut ArchiveStream<S>, parent: &Parent, files: &[CarriedFile]) {
    for file in files {
        if let Some(places) = parent.file(file) {
            archive.lend(&file.member, places.to_vec());
        }
    }
}

/// What device servers have written to the archive, in its order, by process. Their notes of it, among the images, are
/// gone then, but for empty ones if `more_comes`.
fn written_by_devices(images: &Path, more_comes: bool) -> Result<Vec<(u32, WrittenParts)>, Failure> {
    let unreadable = |e: io::Error| Failure::new(Code::CriuDump, "the images cannot be read").note(e.to_string());
    let mut all = vec![];
    for entry in fs::read_dir(images).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let Some(pid) = entry.file_name().to_str().and_then(pid_of_parts) else {
            continue;
        };
        let size = entry.metadata().map_err(unreadable)?;
        if !size.is_file() || size.len() > MAX_TEXT_MEMBER_BYTES {
            return Err(not_understood(pid));
        }
        let text = fs::read(entry.path()).map_err(unreadable)?;
        if text.is_empty() && more_comes {
            continue;
        }
        if text.is_empty() {
            // Made for a server of another user, whose process has ended.
            fs::remove_file(entry.path()).map_err(unreadable)?;
            continue;
        }
        let written =
            serde_json::from_slice::<WrittenParts>(&text).map_err(|e| not_understood(pid).note(e.to_string()))?;
        fs::remove_file(entry.path()).map_err(unreadable)?;
        all.push((pid, written));
    }
    all.sort_by_key(|(_, written)| written.position);
    Ok(all)
}

fn not_understood(pid: u32) -> Failure {
    let what = format!("what the device server of process {pid} has written to the archive is not understood");
    Failure::new(Code::CriuDump, what)
}

fn not_begun() -> Failure {
    Failure::new(Code::StandIn, "the archive was not begun (a bug in hetckpt)")
}

fn report<S: ArchiveSink>(begun: Instant, done: u64) {
    let rate = done as f64 / begun.elapsed().as_secs_f64().max(0.001);
    let (what, size) = (S::DOING, quantity::bytes(done));
    remark::progress(format!("{what} {size} ({:.0} MB/s)", rate / 1e6));
}

/// Why writing has failed: as the sink has it, if it was that.
fn reason<S: ArchiveSink>(archive: &mut ArchiveStream<S>, error: ArchiveError) -> Failure {
    let of_sink = archive.sink().failure();
    of_sink.unwrap_or_else(|| archive_error::failure(error))
}

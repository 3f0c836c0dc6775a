//! An archive on its way, to a file or to another node: first the memory of the program's devices and its own, as it is
//! dumped, then all other members.

use hetckpt_ring::failure_code::Code;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hetckpt_archive::error::ArchiveError;
use hetckpt_archive::stream_writer::{ArchiveStream, Compression, Written};
use hetckpt_archive::writer;
use hetckpt_criu::memory_sink::MemorySink;
use hetckpt_report::failure::Failure;
use hetckpt_report::{archive_error, quantity, remark};

use crate::capture::{Captured, Request};
use crate::snapshot_files;

/// What takes the archive's bytes.
pub trait ArchiveSink: Write {
    /// What is being done with them, for the person who waits.
    const DOING: &'static str;

    /// Why writing has failed, if that is more than the error tells.
    fn failure(&mut self) -> Option<Failure>;
}

/// The archive.
pub struct Outgoing<'a, S> {
    request: &'a Request<'a>,
    /// What errors call the sink.
    target: PathBuf,
    /// Until the first member.
    sink: Option<S>,
    begun: Option<(Instant, ArchiveStream<S>)>,
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
            .and_then(|()| archive.finish(captured.manifest.index.clone()));
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
        self.begun = Some((Instant::now(), archive.map_err(archive_error::failure)?));
        Ok(())
    }
}

impl<S: ArchiveSink> MemorySink for Outgoing<'_, S> {
    fn take(&mut self, name: &str, content: &mut dyn Read) -> Result<(), Failure> {
        self.begin()?;
        let (begun, archive) = self.begun.as_mut().ok_or_else(not_begun)?;
        let begun = *begun;
        let (member, encoding) = snapshot_files::member(name);
        let added = archive.add(&member, encoding, content, &mut |done| report::<S>(begun, done));
        added.map_err(|error| reason(archive, error))
    }
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

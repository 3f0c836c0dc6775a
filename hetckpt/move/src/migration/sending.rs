//! An archive on its way to the target: first the memory of the program's devices and its own, as it is dumped, then
//! all other members.

use hetckpt_ring::failure_code::Code;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use hetckpt_archive::error::ArchiveError;
use hetckpt_archive::stream_writer::{ArchiveStream, Compression, Written};
use hetckpt_archive::writer;
use hetckpt_criu::memory_sink::MemorySink;
use hetckpt_report::failure::Failure;
use hetckpt_report::{archive_error, quantity, remark};
use hetckpt_supervise::signals::HeldSignals;

use crate::capture::{Captured, Request};
use crate::migration::archive_sender::ChannelSink;
use crate::migration::channel::Shared;
use crate::snapshot_files;

/// The archive.
pub struct Sending<'a, 'c> {
    request: &'a Request<'a>,
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
            peer: channel.lock().peer().to_owned(),
            sink: Some(ChannelSink::new(channel, signals, limit_bytes)),
            begun: None,
        }
    }

    /// Sends what is still to be sent, and the index.
    pub fn finish(mut self, captured: &Captured<'_>) -> Result<Sent, Failure> {
        self.begin()?;
        let Some((begun, mut archive)) = self.begun.take() else {
            return Err(not_begun());
        };
        let sent = captured
            .sources
            .iter()
            .try_for_each(|source| writer::add_file(&mut archive, source, &mut |done| report(begun, done)))
            .and_then(|()| archive.finish(captured.manifest.index.clone()));
        let written = sent.map_err(|error| reason(&mut archive, error))?;
        remark::detail(format!("{} sent", quantity::bytes(archive.sink().sent_bytes())));
        Ok(Sent {
            written,
            duration: begun.elapsed(),
        })
    }

    /// Sends the header, if that has not been done.
    fn begin(&mut self) -> Result<(), Failure> {
        let Some(sink) = self.sink.take() else { return Ok(()) };
        let (header, peer) = (self.request.header(), Path::new(&self.peer));
        let archive = ArchiveStream::new(sink, peer, &header, Compression::default());
        self.begun = Some((Instant::now(), archive.map_err(archive_error::failure)?));
        Ok(())
    }
}

impl MemorySink for Sending<'_, '_> {
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

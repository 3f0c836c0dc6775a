//! The archive's way into a connection: what is written goes there with its position, so that no file is needed here.

use hetckpt_ring::failure_code::Code;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use hetckpt_report::failure::Failure;
use hetckpt_supervise::interrupting::ensure_not_interrupted;
use hetckpt_supervise::signals::HeldSignals;

use crate::migration::channel::Shared;
use crate::migration::message::MAX_DATA_BYTES;
use crate::outgoing::ArchiveSink;

/// How often signals are looked for.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Takes bytes one after the other and sends them.
pub struct ChannelSink<'a, 'c> {
    channel: &'a Shared<'c>,
    signals: &'a HeldSignals,
    position: u64,
    /// Bytes that are not sent yet; they belong right before `position`.
    pending: Vec<u8>,
    /// What the target takes at most.
    limit_bytes: u64,
    last_look: Instant,
    /// Why writing failed.
    failure: Option<Failure>,
}

impl<'a, 'c> ChannelSink<'a, 'c> {
    /// At position 0.
    pub fn new(channel: &'a Shared<'c>, signals: &'a HeldSignals, limit_bytes: u64) -> Self {
        Self {
            channel,
            signals,
            position: 0,
            pending: Vec::with_capacity(MAX_DATA_BYTES),
            limit_bytes,
            last_look: Instant::now(),
            failure: None,
        }
    }

    fn send_pending(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let result = self.try_send();
        result.map_err(|failure| {
            let told = io::Error::other(failure.message.clone());
            self.failure = Some(failure);
            told
        })
    }

    fn try_send(&mut self) -> Result<(), Failure> {
        if self.position > self.limit_bytes {
            return Err(too_large(self.channel.lock().peer(), self.limit_bytes));
        }
        if self.last_look.elapsed() >= SIGNAL_INTERVAL {
            self.last_look = Instant::now();
            ensure_not_interrupted(self.signals, "the move")?;
        }
        let size = self.pending.len() as u64;
        self.channel.lock().send_data(self.position - size, &self.pending)?;
        self.pending.clear();
        Ok(())
    }
}

/// The failure for an archive of more bytes than its target takes.
pub fn too_large(target: &str, limit_bytes: u64) -> Failure {
    Failure::new(
        Code::TooLarge,
        format!("the snapshot is larger than the {limit_bytes} bytes that {target} takes"),
    )
    .help("make room in the target's folder, or raise the --max-size of `hetckpt serve`")
}

impl ArchiveSink for ChannelSink<'_, '_> {
    const DOING: &'static str = "sending";

    fn failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }
}

impl Write for ChannelSink<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.pending.len() == MAX_DATA_BYTES {
            self.send_pending()?;
        }
        let size = bytes.len().min(MAX_DATA_BYTES - self.pending.len());
        self.pending.extend_from_slice(&bytes[..size]);
        self.position += size as u64;
        Ok(size)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_pending()
    }
}

//! Frames on a connection: a byte for the kind, four for the length, then a message, or a piece of the archive and its
//! position.
//!
//! Each frame must be through within [`FRAME_LIMIT`]. The other end's bytes are hostile: lengths are compared with
//! limits first.

use hetckpt_ring::failure_code::Code;
use serde::Deserialize;
use std::io::{self, Read, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use hetckpt_report::failure::Failure;

use crate::migration::PROTOCOL;
use crate::migration::message::{MAX_DATA_BYTES, MAX_MESSAGE_BYTES, Message, plain};
use crate::migration::peer::{KeyHash, refused};

/// Longest time for a frame, and for a peer to say that it is still at it.
pub const FRAME_LIMIT: Duration = Duration::from_secs(30);

/// How often an end that is busy says so.
const WORKING_INTERVAL: Duration = Duration::from_secs(1);

/// For how long the rest of what a refused peer had to say is taken in, so that it comes to read the refusal.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

const KIND_MESSAGE: u8 = 0;

const KIND_DATA: u8 = 1;

/// Bytes of a frame before its content.
const HEADER_BYTES: usize = 5;

/// Bytes of a position.
const POSITION_BYTES: usize = 8;

/// What carries frames.
pub trait Transport: Read + Write + Send {
    /// Whatever is read or written from now on must be over by then.
    fn set_limit(&mut self, limit: Instant);
    /// True if the peer has sent something that is not read yet.
    fn has_something_to_say(&self) -> bool;
}

/// A frame.
#[derive(Debug)]
pub enum Frame<'a> {
    /// A message.
    Message(Message),
    /// Bytes of the archive, and where they belong.
    Data(u64, &'a [u8]),
}

/// A connection whose ends know who the other is.
pub struct Channel {
    transport: Box<dyn Transport>,
    peer: String,
    /// The other end's key, where this end asked for it.
    key: Option<KeyHash>,
    buffer: Vec<u8>,
    has_sent_data: bool,
    /// By when all that is under way must be over, whatever else holds.
    until: Option<Instant>,
    /// Longest time for the peer to say nothing but that it is at work.
    working_limit: Option<Duration>,
}

/// A channel whose end several threads have, each for a frame at a time.
pub struct Shared<'a>(Mutex<&'a mut Channel>);

impl<'a> Shared<'a> {
    /// The channel, for this thread alone.
    pub fn lock(&self) -> MutexGuard<'_, &'a mut Channel> {
        // A frame that somebody did not end is noticed at the other end.
        self.0.lock()
    }
}

/// As much of the first message as no version changes.
#[derive(Default, Deserialize)]
struct Greeting {
    protocol: Option<u64>,
}

impl Channel {
    /// Over `transport`, to the one that is called `peer`.
    pub fn new(transport: Box<dyn Transport>, peer: &str) -> Self {
        Self {
            transport,
            peer: peer.to_owned(),
            key: None,
            buffer: vec![],
            has_sent_data: false,
            until: None,
            working_limit: None,
        }
    }

    /// To the one that has `key`.
    pub fn of(mut self, key: KeyHash) -> Self {
        self.key = Some(key);
        self
    }

    /// The other end's key, where this end asked for it.
    pub fn key(&self) -> Option<&KeyHash> {
        self.key.as_ref()
    }

    /// Sets, or takes away, a moment by which all must be over.
    pub fn set_until(&mut self, until: Option<Instant>) {
        self.until = until;
    }

    /// Limits the time for which the peer may say nothing but that it is at work.
    pub fn set_working_limit(&mut self, limit: Duration) {
        self.working_limit = Some(limit);
    }

    /// When a frame that begins now must be over.
    fn frame_limit(&self) -> Instant {
        let limit = Instant::now() + FRAME_LIMIT;
        self.until.map_or(limit, |until| until.min(limit))
    }

    /// What the other end is called.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    fn broken(&self, error: &io::Error) -> Failure {
        // A node that does not believe us who we are says so only after we believe it.
        if let Some(found) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return refused(&self.peer, found.to_string());
        }
        let why = match error.kind() {
            io::ErrorKind::TimedOut => format!("nothing came within {FRAME_LIMIT:?}"),
            io::ErrorKind::UnexpectedEof => "it was closed at the other end".to_owned(),
            _ => error.to_string(),
        };
        Failure::new(Code::ConnectionBroke, format!("the connection to {} broke", self.peer)).note(why)
    }

    /// The failure for a peer that does not keep to the protocol.
    pub fn not_understood(&self, what: impl Into<String>) -> Failure {
        Failure::new(Code::NotUnderstood, format!("{} is not understood", self.peer))
            .note(what)
            .help("both ends need the same version of hetckpt")
    }

    /// Exchanges versions. Both ends do this first.
    pub fn agree(&mut self) -> Result<(), Failure> {
        self.send(&Message::Hello {
            protocol: PROTOCOL,
            written_by: env!("CARGO_PKG_VERSION").to_owned(),
        })?;
        let limit = self.frame_limit();
        let (kind, length) = self.header(limit)?;
        if kind != KIND_MESSAGE {
            return Err(self.not_understood("it does not begin with its version"));
        }
        let text = self.content(length, limit)?;
        // Another version may have changed all but this.
        let greeting: Greeting = serde_json::from_slice(&text).unwrap_or_default();
        match greeting.protocol {
            Some(version) if version == u64::from(PROTOCOL) => Ok(()),
            Some(version) => Err(self
                .not_understood(format!(
                    "it talks version {version} of the protocol, this node version {PROTOCOL}"
                ))
                .unsupported()),
            None => Err(match serde_json::from_slice(&text) {
                Ok(Message::Refused(report)) => report.failure(&self.peer),
                _ => self.not_understood("it does not begin with its version"),
            }),
        }
    }

    /// Sends a message.
    pub fn send(&mut self, message: &Message) -> Result<(), Failure> {
        let text = serde_json::to_vec(message).map_err(|e| self.not_understood(e.to_string()))?;
        self.write(KIND_MESSAGE, &[&text])
    }

    /// True once there was something of an archive to send.
    pub fn has_sent_data(&self) -> bool {
        self.has_sent_data
    }

    /// Sends bytes of the archive, [`MAX_DATA_BYTES`] at most, for `position`.
    pub fn send_data(&mut self, position: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.has_sent_data = true;
        self.write(KIND_DATA, &[&position.to_be_bytes(), bytes])?;
        // It speaks up in the middle only to refuse.
        match self.transport.has_something_to_say() {
            true => Err(match self.receive()? {
                Message::Refused(report) => report.failure(&self.peer),
                _ => self.not_understood("it answers before it was asked"),
            }),
            false => Ok(()),
        }
    }

    fn write(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), Failure> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let told = u32::try_from(length).map_err(|_| self.not_understood(format!("a frame of {length} bytes")))?;
        let mut frame = Vec::with_capacity(HEADER_BYTES + length);
        frame.push(kind);
        frame.extend(told.to_be_bytes());
        parts.iter().for_each(|part| frame.extend_from_slice(part));
        self.transport.set_limit(self.frame_limit());
        let written = self.transport.write_all(&frame).and_then(|()| self.transport.flush());
        written.map_err(|error| {
            // It may have said why before it closed the connection.
            match self.transport.has_something_to_say().then(|| self.receive()) {
                Some(Ok(Message::Refused(report))) => report.failure(&self.peer),
                _ => self.broken(&error),
            }
        })
    }

    /// Kind and length of the next frame.
    fn header(&mut self, limit: Instant) -> Result<(u8, usize), Failure> {
        let mut header = [0; HEADER_BYTES];
        self.transport.set_limit(limit);
        self.transport.read_exact(&mut header).map_err(|e| self.broken(&e))?;
        let [kind, length @ ..] = header;
        let length = u32::from_be_bytes(length) as usize;
        let most = match kind {
            KIND_MESSAGE => MAX_MESSAGE_BYTES,
            KIND_DATA => POSITION_BYTES + MAX_DATA_BYTES,
            _ => return Err(self.not_understood(format!("it sends frames of kind {kind}"))),
        };
        match length > most {
            true => Err(self.not_understood(format!("it sends {length} bytes at once, and {most} are the most"))),
            false => Ok((kind, length)),
        }
    }

    fn content(&mut self, length: usize, limit: Instant) -> Result<Vec<u8>, Failure> {
        let mut content = std::mem::take(&mut self.buffer);
        content.resize(length, 0);
        self.transport.set_limit(limit);
        self.transport.read_exact(&mut content).map_err(|e| self.broken(&e))?;
        Ok(content)
    }

    /// Gives the next frame to `take`. That the peer is still at it is none.
    pub fn receive_frame<T>(&mut self, take: impl FnOnce(Frame<'_>) -> T) -> Result<T, Failure> {
        self.receive_frame_while(&mut || Ok(()), take)
    }

    /// As [`Channel::receive_frame`], if `go_on` does not fail, which is asked whenever the peer says that it is still
    /// at it.
    fn receive_frame_while<T>(
        &mut self,
        go_on: &mut dyn FnMut() -> Result<(), Failure>,
        take: impl FnOnce(Frame<'_>) -> T,
    ) -> Result<T, Failure> {
        let mut at_work_since = None;
        loop {
            let limit = self.frame_limit();
            let (kind, length) = self.header(limit)?;
            let content = self.content(length, limit)?;
            if kind == KIND_DATA {
                let Some((position, bytes)) = content.split_first_chunk::<POSITION_BYTES>() else {
                    return Err(self.not_understood("it sends data without a position"));
                };
                let taken = take(Frame::Data(u64::from_be_bytes(*position), bytes));
                self.buffer = content;
                return Ok(taken);
            }
            let message = serde_json::from_slice(&content);
            self.buffer = content;
            match message {
                Ok(Message::Working) => {
                    let since = *at_work_since.get_or_insert_with(Instant::now);
                    if self.working_limit.is_some_and(|limit| since.elapsed() > limit) {
                        return Err(self.at_work_too_long());
                    }
                    go_on()?;
                }
                Ok(message) => return Ok(take(Frame::Message(message))),
                Err(e) => return Err(self.not_understood(plain(&e.to_string()))),
            }
        }
    }

    fn at_work_too_long(&self) -> Failure {
        let limit = self.working_limit.unwrap_or_default().as_secs();
        Failure::new(
            Code::ConnectionBroke,
            format!("the connection to {} was given up", self.peer),
        )
        .note(format!("for {limit} s it has said nothing but that it is at work"))
        .help("`serve --working-limit` allows more")
    }

    /// The next message.
    pub fn receive(&mut self) -> Result<Message, Failure> {
        self.receive_while(&mut || Ok(()))
    }

    /// The next message, if `go_on` does not fail, which is asked whenever the peer says that it is still at it.
    pub fn receive_while(&mut self, go_on: &mut dyn FnMut() -> Result<(), Failure>) -> Result<Message, Failure> {
        let message = self.receive_frame_while(go_on, |frame| match frame {
            Frame::Message(message) => Some(message),
            Frame::Data(..) => None,
        })?;
        message.ok_or_else(|| self.not_understood("it sends data where a message is due"))
    }

    /// The failure for a message that was not due, which may be a refusal.
    pub fn unexpected(&self, message: &Message) -> Failure {
        match message {
            Message::Refused(report) => report.failure(&self.peer),
            _ => self.not_understood("it gave an answer to another question"),
        }
    }

    /// Does `work` in another thread and tells the peer all the while that we are at it.
    ///
    /// Fails if the peer could not be told; the work is done to its end all the same, and what came of it dropped.
    pub fn while_working<T: Send>(&mut self, work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
        self.while_sending(|_| work())
    }

    /// As [`Channel::while_working`], for work that also sends.
    pub fn while_sending<T: Send>(
        &mut self,
        work: impl FnOnce(&Shared<'_>) -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        let shared = Shared(Mutex::new(self));
        std::thread::scope(|scope| {
            let (done, is_done) = channel();
            let for_work = &shared;
            scope.spawn(move || done.send(work(for_work)));
            let mut told = Ok(());
            loop {
                match is_done.recv_timeout(WORKING_INTERVAL) {
                    Ok(result) => return told.and(result),
                    Err(RecvTimeoutError::Timeout) if told.is_ok() => told = shared.lock().send(&Message::Working),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(Failure::new(
                            Code::StandIn,
                            "a thread of hetckpt's own died (a bug in hetckpt)",
                        ));
                    }
                }
            }
        })
    }

    /// Tells the peer why not, and hears it out for a moment: a connection that is closed on unread bytes loses what
    /// was said last.
    pub fn refuse(mut self, failure: &Failure) {
        if self.send(&Message::Refused(failure.into())).is_err() {
            return;
        }
        self.transport.set_limit(Instant::now() + DRAIN_LIMIT);
        let mut rest = vec![0; MAX_DATA_BYTES];
        while matches!(self.transport.read(&mut rest), Ok(1..)) {}
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;

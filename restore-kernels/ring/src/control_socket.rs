//! The control socket: a unix stream socket; each message is a `u32` length, then JSON; descriptors travel with the
//! length.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::RingError;
use crate::message::{Request, Response};

/// Longest message.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Descriptors one message may carry (the system's limit is 253).
pub const MAX_FDS: usize = 250;

/// One end of a control connection.
#[derive(Debug)]
pub struct ControlSocket {
    stream: UnixStream,
}

impl ControlSocket {
    /// Connects to the server listening at `path`.
    ///
    /// # Errors
    /// [`RingError::NoServer`] if nobody listens there; [`RingError::Os`].
    pub fn connect(path: &Path) -> Result<Self, RingError> {
        match UnixStream::connect(path) {
            Ok(stream) => Ok(Self { stream }),
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused
                ) =>
            {
                Err(RingError::NoServer { path: path.to_owned() })
            }
            Err(source) => Err(RingError::Os {
                call: "connect",
                source,
            }),
        }
    }

    /// From an accepted or restored connection.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Self { stream }
    }

    /// The connection itself.
    #[must_use]
    pub fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// For poll and the like.
    #[must_use]
    pub fn as_stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends a message with descriptors.
    ///
    /// # Errors
    /// [`RingError::Os`], [`RingError::ServerGone`], [`RingError::TooLarge`].
    pub fn send<T: Serialize>(&mut self, message: &T, fds: &[BorrowedFd<'_>]) -> Result<(), RingError> {
        let what = "control message";
        let body = serde_json::to_vec(message).map_err(|e| RingError::Decode {
            what,
            reason: e.to_string(),
        })?;
        for (size, limit, what) in [
            (body.len(), MAX_MESSAGE_BYTES, what),
            (fds.len(), MAX_FDS, "descriptor list"),
        ] {
            if size > limit {
                return Err(RingError::TooLarge {
                    what,
                    size_bytes: size as u64,
                    limit_bytes: limit as u64,
                });
            }
        }
        let length = (body.len() as u32).to_le_bytes();
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let control = [ControlMessage::ScmRights(&raw)];
        let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &control };
        let sent = loop {
            let flags = MsgFlags::MSG_NOSIGNAL;
            match sendmsg::<()>(self.stream.as_raw_fd(), &[IoSlice::new(&length)], control, flags, None) {
                Err(nix::errno::Errno::EINTR) => {}
                other => break other.map_err(gone_or("sendmsg"))?,
            }
        };
        self.write_all(&length[sent..])?;
        self.write_all(&body)
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), RingError> {
        while !bytes.is_empty() {
            let flags = MsgFlags::MSG_NOSIGNAL;
            match nix::sys::socket::send(self.stream.as_raw_fd(), bytes, flags) {
                Err(nix::errno::Errno::EINTR) => {}
                other => bytes = &bytes[other.map_err(gone_or("send"))?..],
            }
        }
        Ok(())
    }

    /// Waits until there is something to receive.
    ///
    /// # Errors
    /// [`RingError::Os`].
    pub fn wait(&self) -> Result<(), RingError> {
        let mut polled = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        loop {
            match nix::poll::poll(&mut polled, PollTimeout::NONE) {
                Ok(_) => return Ok(()),
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(RingError::nix("poll", error)),
            }
        }
    }

    /// Receives a message with its descriptors; `None` if the other side has closed.
    ///
    /// # Errors
    /// [`RingError::Os`], [`RingError::Decode`], [`RingError::TooLarge`], [`RingError::ServerGone`] if the connection
    /// ends within a message.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<(T, Vec<OwnedFd>)>, RingError> {
        let mut length = [0_u8; 4];
        let (read, fds) = self.receive_with_fds(&mut length)?;
        if read == 0 {
            return Ok(None);
        }
        self.read_all(&mut length[read..])?;
        let size = u32::from_le_bytes(length) as usize;
        if size > MAX_MESSAGE_BYTES {
            let (size_bytes, limit_bytes) = (size as u64, MAX_MESSAGE_BYTES as u64);
            return Err(RingError::TooLarge {
                what: "control message",
                size_bytes,
                limit_bytes,
            });
        }
        let mut body = vec![0; size];
        self.read_all(&mut body)?;
        let message = serde_json::from_slice(&body).map_err(|e| RingError::Decode {
            what: "control message",
            reason: e.to_string(),
        })?;
        Ok(Some((message, fds)))
    }

    #[allow(unsafe_code, reason = "received descriptors become owned ones")]
    fn receive_with_fds(&mut self, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), RingError> {
        let mut space = nix::cmsg_space!([RawFd; MAX_FDS]);
        loop {
            let mut slices = [IoSliceMut::new(buffer)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            let received = match recvmsg::<()>(self.stream.as_raw_fd(), &mut slices, Some(&mut space), flags) {
                Err(nix::errno::Errno::EINTR) => continue,
                Err(nix::errno::Errno::ECONNRESET) => return Ok((0, Vec::new())),
                other => other.map_err(|e| RingError::nix("recvmsg", e))?,
            };
            let is_cut = received.flags.contains(MsgFlags::MSG_CTRUNC);
            let mut fds = Vec::new();
            for message in received.cmsgs().map_err(|e| RingError::nix("recvmsg", e))? {
                if let ControlMessageOwned::ScmRights(raw) = message {
                    // SAFETY: the system has just put these descriptors into this process; nobody else knows them.
                    fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
                }
            }
            if is_cut {
                return Err(RingError::LostDescriptors);
            }
            return Ok((received.bytes, fds));
        }
    }

    fn read_all(&mut self, bytes: &mut [u8]) -> Result<(), RingError> {
        self.stream.read_exact(bytes).map_err(|source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset => RingError::ServerGone,
            _ => RingError::Os { call: "read", source },
        })
    }

    /// Asks and waits for the answer; an error answer becomes [`RingError::Refused`].
    ///
    /// # Errors
    /// [`RingError::Refused`], and as [`Self::send`] and [`Self::receive`].
    pub fn ask(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<Response, RingError> {
        self.send(request, fds)?;
        self.answer()
    }

    /// The answer to a request that has been sent.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn answer(&mut self) -> Result<Response, RingError> {
        match self.receive::<Response>()? {
            None => Err(RingError::ServerGone),
            Some((Response::Error { code, message }, _)) => Err(RingError::Refused { code, message }),
            Some((response, _)) => Ok(response),
        }
    }

    /// False once the other side has closed or died. Never blocks.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        is_connected(self.stream.as_fd())
    }

    /// Limits how long [`Self::receive`] waits.
    ///
    /// # Errors
    /// [`RingError::Os`].
    pub fn set_timeout(&self, timeout: Option<std::time::Duration>) -> Result<(), RingError> {
        self.stream.set_read_timeout(timeout).map_err(|source| RingError::Os {
            call: "setsockopt",
            source,
        })
    }

    /// Flushes nothing, closes both directions: the other side sees the end at once, also if the descriptor has copies.
    pub fn shut_down(&mut self) {
        let _ = self.stream.flush();
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// True unless the other end of the stream socket has closed or died. Never blocks.
#[must_use]
pub fn is_connected(fd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(fd, PollFlags::empty())];
    match nix::poll::poll(&mut polled, PollTimeout::ZERO) {
        Ok(0) | Err(nix::errno::Errno::EINTR) => true,
        // Only errors and the other side's end are reported when no event is asked for.
        Ok(_) | Err(_) => false,
    }
}

/// Listens at `path`, readable and writable by the owner only; a stale socket there is replaced.
///
/// # Errors
/// [`RingError::Os`].
pub fn listen(path: &Path) -> Result<UnixListener, RingError> {
    let os = |call| move |source| RingError::Os { call, source };
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(os("unlink")(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(os("bind"))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(os("chmod"))?;
    Ok(listener)
}

fn gone_or(call: &'static str) -> impl Fn(nix::errno::Errno) -> RingError {
    move |errno| match errno {
        nix::errno::Errno::EPIPE | nix::errno::Errno::ECONNRESET => RingError::ServerGone,
        other => RingError::nix(call, other),
    }
}

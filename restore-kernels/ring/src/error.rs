//! What goes wrong between shim, server, plugin and command line.

use std::path::PathBuf;

/// Failure of the ring or of a control connection.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// A system call failed (the host's fault).
    #[error("{call} failed")]
    Os {
        /// The call.
        call: &'static str,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The shared memory is not a ring (the other side's fault).
    #[error("shared memory of {size_bytes} bytes is not a command ring: {reason}")]
    NotARing {
        /// Its size.
        size_bytes: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The two sides are of different versions (the installation's fault).
    #[error(
        "protocol version {theirs} on the other side, {ours} here: shim, server, plugin and command line must be of one installation"
    )]
    Version {
        /// Ours.
        ours: u32,
        /// Theirs.
        theirs: u32,
    },
    /// The server died or closed the connection.
    #[error("the device server is gone")]
    ServerGone,
    /// A record in the ring has a length that cannot be (the application's fault).
    #[error("ring record at position {position} has length {length}")]
    BadRecord {
        /// Position of the record.
        position: u64,
        /// Its length.
        length: u32,
    },
    /// The words that count records contradict each other (the application's fault).
    #[error("ring positions contradict each other: read up to {head}, written up to {tail}")]
    BadPositions {
        /// Read position.
        head: u64,
        /// Write position.
        tail: u64,
    },
    /// A record or message cannot be decoded (the other side's fault).
    #[error("{what} cannot be decoded: {reason}")]
    Decode {
        /// Which.
        what: &'static str,
        /// The decoder's words.
        reason: String,
    },
    /// A record or message cannot be encoded: it is too large (the caller's fault).
    #[error("{what} is too large: {size_bytes} bytes, at most {limit_bytes}")]
    TooLarge {
        /// Which.
        what: &'static str,
        /// Its size.
        size_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// A chunk or slot number out of range (the other side's fault).
    #[error("{what} {index} with {length} bytes is out of range")]
    OutOfRange {
        /// Which.
        what: &'static str,
        /// Its number.
        index: u32,
        /// Length asked for.
        length: u64,
    },
    /// What a program calls its ring or pinned memory is something else (the program's fault).
    #[error("descriptor {fd} of process {pid} is not its memfd `{name}`: {reason}")]
    NotAppMemory {
        /// The program.
        pid: u32,
        /// Number of the descriptor in it.
        fd: i32,
        /// What it is said to be.
        name: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Descriptors that came with a message are lost: this process may have no more (the host's fault).
    #[error("descriptors sent to this process were lost: its limit for open files is too low")]
    LostDescriptors,
    /// All entries of the table of pinned memory are taken.
    #[error("more than {limit} areas of pinned memory")]
    TooManyPinned {
        /// The limit.
        limit: usize,
    },
    /// No server listens there.
    #[error("no device server at {}", path.display())]
    NoServer {
        /// The socket.
        path: PathBuf,
    },
    /// The other side answered with an error.
    #[error("{message}")]
    Refused {
        /// Stable code.
        code: String,
        /// In words.
        message: String,
    },
    /// The runtime directory cannot be used.
    #[error("runtime directory {} cannot be used: {reason}", path.display())]
    RuntimeDir {
        /// Its path.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl RingError {
    /// The error of the system call that just failed.
    pub(crate) fn last_os(call: &'static str) -> Self {
        Self::Os {
            call,
            source: std::io::Error::last_os_error(),
        }
    }

    /// From a failed `nix` call.
    pub(crate) fn nix(call: &'static str, errno: nix::errno::Errno) -> Self {
        Self::Os {
            call,
            source: errno.into(),
        }
    }
}

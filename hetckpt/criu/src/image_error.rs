//! What is wrong with CRIU's images.

use std::io;

use prost::DecodeError;

/// Why an image cannot be read or changed. Unless it says otherwise, the input is damaged, hostile or not a whole dump.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// There is no such image.
    #[error("{name} is missing")]
    Missing {
        /// The image.
        name: String,
    },
    /// It is a link, a pipe or the like.
    #[error("{name} is no regular file")]
    NotAFile {
        /// The image.
        name: String,
    },
    /// The system fails (host).
    #[error("{name} cannot be read: {source}")]
    Read {
        /// The image.
        name: String,
        /// Cause.
        source: io::Error,
    },
    /// The system fails (host).
    #[error("{name} cannot be written: {source}")]
    Write {
        /// The image.
        name: String,
        /// Cause.
        source: io::Error,
    },
    /// The system fails (host).
    #[error("cannot list the images: {0}")]
    List(io::Error),
    /// It has more bytes than are read.
    #[error("{name} is too large")]
    TooLarge {
        /// The image.
        name: String,
    },
    /// It does not begin with its kind's magic number.
    #[error("{name} is no image of its kind")]
    OtherKind {
        /// The image.
        name: String,
    },
    /// A message is longer than what is left of the image.
    #[error("{name} is truncated")]
    Truncated {
        /// The image.
        name: String,
    },
    /// It has no message.
    #[error("{name} is empty")]
    Empty {
        /// The image.
        name: String,
    },
    /// Its messages would take more memory than they may.
    #[error("{name} has too many entries")]
    TooManyEntries {
        /// The image.
        name: String,
    },
    /// A message is none of its kind.
    #[error("{name}: {source}")]
    Message {
        /// The image.
        name: String,
        /// Cause.
        source: DecodeError,
    },
    /// A message that was to be changed is none of its kind.
    #[error("{name} has a damaged entry")]
    Entry {
        /// The image.
        name: String,
    },
    /// An image of memory is cut off.
    #[error("{name} has {found_bytes} of {expected_bytes} bytes")]
    CutOff {
        /// The image.
        name: String,
        /// Its length.
        found_bytes: u64,
        /// What it should have.
        expected_bytes: u64,
    },
    /// The image of the process tree is empty.
    #[error("pstree.img lists no process")]
    NoProcess,
    /// A process id that no process can have.
    #[error("pstree.img has an impossible process id")]
    ProcessId,
    /// Two processes of one id.
    #[error("pstree.img has process {pid} twice")]
    ProcessTwice {
        /// The id.
        pid: u32,
    },
    /// A connected socket without an address.
    #[error("files.img has a connection without address")]
    NoAddress,
}

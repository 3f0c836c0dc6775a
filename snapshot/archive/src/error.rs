//! What goes wrong with an archive.

use std::io;
use std::path::PathBuf;

/// Failure to write, read or verify an archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file system refused (host).
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried: `create`, `write`, `read`, `fetch` (from another machine), …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is no archive of ours (input).
    #[error("{} is not a hetckpt archive: {reason}", path.display())]
    NotAnArchive {
        /// The file.
        path: PathBuf,
        /// What gave it away.
        reason: String,
    },
    /// The file ends too early or its bytes were changed (input).
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which part.
        what: String,
    },
    /// A newer program wrote it, or one that was never released (input).
    #[error("{} has archive format version {found}, this program reads version {supported}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        supported: u32,
    },
    /// A member name that cannot be stored (a bug in us).
    #[error("member name `{name}` cannot be stored")]
    BadMemberName {
        /// The name.
        name: String,
    },
    /// It was asked to end before the archive had its name.
    #[error("{} was not written: interrupted", path.display())]
    Interrupted {
        /// The file that there would be.
        path: PathBuf,
    },
    /// Somebody else has made a file of that name meanwhile (host).
    #[error("cannot create {}: it has been made by somebody else meanwhile", path.display())]
    NameTaken {
        /// The file.
        path: PathBuf,
    },
    /// An archive that it borrows from is not where it was (host).
    #[error("{} needs the archive {}, which cannot be opened", path.display(), parent.display())]
    NoParent {
        /// The file.
        path: PathBuf,
        /// The other one.
        parent: PathBuf,
        /// The cause.
        #[source]
        source: Box<ArchiveError>,
    },
    /// There is another one in its place (host).
    #[error("{} needs another archive than {} is now", path.display(), parent.display())]
    OtherParent {
        /// The file.
        path: PathBuf,
        /// The other one.
        parent: PathBuf,
    },
    /// No such member (input, or a bug in us).
    #[error("{} has no member `{name}`", path.display())]
    NoSuchMember {
        /// The file.
        path: PathBuf,
        /// The member.
        name: String,
    },
}

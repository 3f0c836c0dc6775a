//! An archive's errors as the user sees them.

use hetckpt_archive::error::ArchiveError;
use hetckpt_ring::failure_code::Code;

use crate::failure::Failure;
use crate::file_size;

const PARENT_HELP: &str = "bring that archive back to where it was: without it this one cannot be restored";

/// The failure for `error`.
pub fn failure(error: ArchiveError) -> Failure {
    let text = error.to_string();
    match error {
        ArchiveError::Io {
            action: "create" | "write",
            source,
            ..
        } => {
            let failure = Failure::new(Code::CannotWrite, text).note(source.to_string());
            match file_size::is_reached(&source) {
                true => failure.help(file_size::HELP),
                false => failure,
            }
        }
        ArchiveError::Io {
            action: "fetch",
            source,
            ..
        } => Failure::new(Code::StoreFailed, text).note(source.to_string()),
        ArchiveError::Io { source, .. } => Failure::new(Code::NotAnArchive, text).note(source.to_string()),
        ArchiveError::NotAnArchive { .. } => Failure::new(Code::NotAnArchive, text),
        ArchiveError::Damaged { .. } => {
            Failure::new(Code::Damaged, text).help("take another copy of the archive: this one cannot be restored")
        }
        ArchiveError::Version { .. } => {
            Failure::new(Code::NewerVersion, text).help("restore it with the version of hetckpt that wrote it")
        }
        ArchiveError::NoParent { source, .. } => {
            let cause = failure(*source);
            let failure = Failure::new(Code::ParentMissing, text).note(cause.message);
            let failure = cause.notes.into_iter().fold(failure, Failure::note);
            failure.help(PARENT_HELP)
        }
        ArchiveError::OtherParent { .. } => Failure::new(Code::ParentMissing, text).help(PARENT_HELP),
        ArchiveError::Interrupted { .. } => Failure::new(Code::Interrupted, text),
        ArchiveError::NameTaken { .. } => {
            Failure::new(Code::CannotWrite, text).help("name another file, or remove that one if it is of no use")
        }
        ArchiveError::BadMemberName { .. } => Failure::new(Code::CannotWrite, text),
        ArchiveError::NoSuchMember { .. } => Failure::new(Code::Damaged, text),
    }
}

//! An archive's errors as the user sees them.

use hetckpt_archive::error::ArchiveError;

use crate::failure::Failure;
use crate::file_size;

/// The failure for `error`.
pub fn failure(error: ArchiveError) -> Failure {
    let text = error.to_string();
    match error {
        ArchiveError::Io {
            action: "create" | "write",
            source,
            ..
        } => {
            let failure = Failure::new("HK0704", text).note(source.to_string());
            match file_size::is_reached(&source) {
                true => failure.help(file_size::HELP),
                false => failure,
            }
        }
        ArchiveError::Io { source, .. } => Failure::new("HK0701", text).note(source.to_string()),
        ArchiveError::NotAnArchive { .. } => Failure::new("HK0701", text),
        ArchiveError::Damaged { .. } => {
            Failure::new("HK0702", text).help("take another copy of the archive: this one cannot be restored")
        }
        ArchiveError::NewerVersion { .. } => Failure::new("HK0703", text)
            .help("restore it with the version of hetckpt that wrote it, or a newer one")
            .unsupported(),
        ArchiveError::Interrupted { .. } => Failure::new("HK0807", text),
        ArchiveError::NameTaken { .. } => {
            Failure::new("HK0704", text).help("name another file, or remove that one if it is of no use")
        }
        ArchiveError::BadMemberName { .. } => Failure::new("HK0704", text),
        ArchiveError::NoSuchMember { .. } => Failure::new("HK0702", text),
    }
}

//! Checks that an archive is whole.

use std::path::Path;

use crate::error::ArchiveError;
use crate::reader::Archive;

/// Looks at all that taking the members out looks at: their hashes, and what comes out of them.
///
/// # Errors
/// As [`Archive::open`] and [`Archive::verify`].
pub fn verify(path: &Path) -> Result<Archive, ArchiveError> {
    let archive = Archive::open(path)?;
    archive.verify()?;
    Ok(archive)
}

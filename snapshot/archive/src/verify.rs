//! Checks that an archive is whole: every member has its length and hash.

use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::Path;

use crate::error::ArchiveError;
use crate::member::hash_exact;
use crate::reader::Archive;

/// Reads the archive through once.
///
/// # Errors
/// As [`Archive::open`], and [`ArchiveError::Damaged`] for the first member that is not what the manifest says.
pub fn verify(path: &Path) -> Result<Archive, ArchiveError> {
    let archive = Archive::open(path)?;
    let io_error = |action, source| ArchiveError::Io {
        action,
        path: path.to_owned(),
        source,
    };
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(|e| io_error("open", e))?);
    for (offset, member) in archive.members() {
        file.seek(SeekFrom::Start(offset)).map_err(|e| io_error("read", e))?;
        let hash = hash_exact(&mut file, member.stored_bytes).map_err(|e| io_error("read", e))?;
        if hash.to_hex().as_str() != member.blake3 {
            let what = format!("member `{}` does not have its hash", member.name);
            return Err(ArchiveError::Damaged {
                path: path.to_owned(),
                what,
            });
        }
    }
    Ok(archive)
}

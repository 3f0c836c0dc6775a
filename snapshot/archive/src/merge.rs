//! An archive that borrows from others becomes one that has all that it needs.

use std::io::Write;

use crate::borrowing::Stretch;
use crate::error::ArchiveError;
use crate::manifest::{FORMAT_VERSION, Header, Index, MemberEntry, Part};
use crate::reader::Archive;
use crate::stream_writer::{ArchiveStream, Written};

/// The header of the archive that `archive` becomes.
#[must_use]
pub fn header(archive: &Archive) -> Header {
    Header {
        format_version: FORMAT_VERSION,
        ..archive.manifest().header.clone()
    }
}

/// Copies all that `archive` has and borrows to `stream`, which has [`header`], and completes it. `progress` is told
/// how many bytes, unpacked, have been copied.
///
/// # Errors
/// As reading [`Archive`] and writing [`ArchiveStream`].
pub fn merge<S: Write>(
    archive: &Archive,
    stream: &mut ArchiveStream<S>,
    progress: &mut dyn FnMut(u64),
) -> Result<Written, ArchiveError> {
    let mut done = 0;
    for member in archive.members() {
        let mut entry = MemberEntry {
            parts: vec![],
            borrowed: vec![],
            ..member.entry.clone()
        };
        for stretch in archive.stretches(member)? {
            done += stretch.size;
            copy(&stretch, stream, &mut entry)?;
            progress(done);
        }
        stream.list(entry)?;
    }
    stream.finish(Index {
        members: vec![],
        parents: vec![],
        ..archive.manifest().index.clone()
    })
}

fn copy<S: Write>(
    stretch: &Stretch<'_>,
    stream: &mut ArchiveStream<S>,
    entry: &mut MemberEntry,
) -> Result<(), ArchiveError> {
    let mut stored = stretch.checked()?;
    let copied = stream.copy_part(entry, stored.left, &mut stored)?;
    stretch.ensure_right(&copied)?;
    entry.parts.push(Part {
        raw_bytes: stretch.size,
        ..copied
    });
    Ok(())
}

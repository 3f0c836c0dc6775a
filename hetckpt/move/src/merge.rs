//! An archive that borrows from others, and these, become one.

use std::path::Path;

use hetckpt_archive::merge::{header, merge as merge_into};
use hetckpt_archive::reader::Archive;
use hetckpt_archive::stream_writer::{ArchiveStream, Compression};
use hetckpt_archive::writer::{self, NamelessArchive};
use hetckpt_report::failure::Failure;
use hetckpt_report::{archive_error, remark};
use hetckpt_supervise::interrupting::Interrupting;
use hetckpt_supervise::signals::HeldSignals;

use crate::archive_file::FileSink;
use crate::archive_name;

/// Writes all that `archive` has and borrows to the archive `output`; a regular file that has its name is replaced only
/// if `force`. Gives its length, bytes.
///
/// It is read back from the disk if `reads_back`.
pub fn merge(archive: &Path, output: &Path, force: bool, reads_back: bool) -> Result<u64, Failure> {
    let name = archive_name::find(output, force)?;
    let archive = Archive::open(archive).map_err(archive_error::failure)?;
    // A signal would leave the archive half written under its temporary name.
    let signals = HeldSignals::hold()?;
    let interrupting = Interrupting::new(&signals);
    let failed = |error| interrupting.failure(error, "merging");
    let total = archive
        .members()
        .map(|member| member.entry.raw_bytes())
        .fold(0, u64::saturating_add);
    let mut progress = remark::byte_progress("merging", total);
    let mut merged = NamelessArchive::create(&name, None).map_err(failed)?;
    let sink = FileSink::new(merged.file(), &interrupting);
    let stream = ArchiveStream::new(sink, output, &header(&archive), Compression::default());
    let mut stream = stream.map_err(|(error, _)| failed(error))?;
    let written = merge_into(&archive, &mut stream, &mut progress).map_err(failed)?;
    let publishing = writer::Options {
        is_interrupted: Some(&|| interrupting.has_come()),
        reads_back,
        ..writer::Options::default()
    };
    merged.publish(&written, publishing).map_err(failed)?;
    remark::progress_done();
    Ok(written.size_bytes)
}

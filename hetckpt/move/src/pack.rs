//! Packing a folder of images into an archive.

use hetckpt_ring::failure_code::Code;
use std::fs;
use std::path::Path;

use hetckpt_archive::writer;
use hetckpt_report::failure::Failure;
use hetckpt_report::remark;
use hetckpt_supervise::interrupting::Interrupting;
use hetckpt_supervise::signals::HeldSignals;

use crate::{archive_name, snapshot, snapshot_files};

/// An archive that was written.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    /// Root of the process tree.
    pub root_pid: i32,
    /// Length, bytes.
    pub size: u64,
}

/// Packs the folder `images` into the archive `output`; a regular file that has its name is replaced only if `force`.
///
/// It is read back from the disk if `reads_back`.
pub fn pack(images: &Path, output: &Path, force: bool, reads_back: bool) -> Result<Packed, Failure> {
    let name = archive_name::find(output, force)?;
    let (folder, manifest) = snapshot::of_images(images)?;
    let sources = snapshot_files::sources(&folder).map_err(|why| snapshot::no_dump(images, &why))?;
    require_outside(output, &folder)?;
    let root_pid = manifest.header.root_pid;
    // A signal would leave the archive half written under its temporary name.
    let signals = HeldSignals::hold()?;
    let interrupting = Interrupting::new(&signals);
    let mut progress = remark::byte_progress("packing", snapshot_files::total_bytes(&sources));
    let size = writer::write(
        &name,
        manifest,
        &sources,
        writer::Options {
            is_interrupted: Some(&|| interrupting.has_come()),
            reads_back,
            ..writer::Options::default()
        },
        &mut progress,
    )
    .map_err(|error| interrupting.failure(error, "packing"))?;
    remark::progress_done();
    Ok(Packed { root_pid, size })
}

/// An archive among the images would be taken for one of them the next time.
fn require_outside(archive: &Path, images: &Path) -> Result<(), Failure> {
    let parent = archive.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = fs::canonicalize(parent.unwrap_or(Path::new(".")));
    let failure = || Failure::new(Code::CannotWrite, format!("cannot write {}", archive.display()));
    match parent {
        _ if archive.is_dir() => Err(failure().note("it is a folder")),
        Ok(parent) if parent.starts_with(images) => Err(failure()
            .note("it would lie among the images")
            .help("name a file in another folder")),
        Ok(_) => Ok(()),
        Err(e) => Err(failure()
            .note(e.to_string())
            .help("name a file in a folder that exists and that you may write to")),
    }
}

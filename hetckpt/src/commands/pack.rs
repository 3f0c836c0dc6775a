//! `hetckpt pack`: a folder of images becomes an archive.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use hetckpt_archive::writer;
use serde_json::json;

use crate::cli::Pack;
use crate::diagnostic::Failure;
use crate::interrupting::Interrupting;
use crate::supervise::HeldSignals;
use crate::{archive_name, output, snapshot, snapshot_files};

/// Packs the images.
pub fn run(options: Pack) -> anyhow::Result<ExitCode> {
    let name = archive_name::find(&options.output, options.force)?;
    let (images, manifest) = snapshot::of_images(&options.images)?;
    let sources = snapshot_files::sources(&images).map_err(|why| snapshot::no_dump(&options.images, why))?;
    require_outside(&options.output, &images)?;
    let root_pid = manifest.root_pid;
    // A signal would leave the archive half written under its temporary name.
    let signals = HeldSignals::hold()?;
    let interrupting = Interrupting::new(&signals);
    let mut progress = output::byte_progress("packing", snapshot_files::total_bytes(&sources));
    let size = writer::write(
        &name,
        manifest,
        &sources,
        writer::Options {
            is_interrupted: Some(&|| interrupting.has_come()),
            ..writer::Options::default()
        },
        &mut progress,
    )
    .map_err(|error| interrupting.failure(error, "packing"))?;
    output::progress_done();
    if options.json {
        output::json(&json!({ "pid": root_pid, "archive": options.output.to_string_lossy(), "archive_bytes": size }));
    } else {
        output::note(format!("{} ({})", options.output.display(), output::bytes(size)));
    }
    Ok(ExitCode::SUCCESS)
}

/// An archive among the images would be taken for one of them the next time.
fn require_outside(archive: &Path, images: &Path) -> Result<(), Failure> {
    let parent = archive.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = fs::canonicalize(parent.unwrap_or(Path::new(".")));
    let failure = || Failure::new("HK0704", format!("cannot write {}", archive.display()));
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

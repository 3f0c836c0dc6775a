//! `hetckpt unpack`: an archive becomes a folder of images, whole or not at all.

use std::process::ExitCode;

use serde_json::json;

use hetckpt_archive::reader::Archive;
use hetckpt_move::unpack;
use hetckpt_report::{archive_error, quantity, remark};

use crate::arguments::Unpack;
use crate::output;

/// Unpacks the archive.
pub fn run(options: &Unpack) -> anyhow::Result<ExitCode> {
    let archive = Archive::open(&options.archive).map_err(archive_error::failure)?;
    let size = unpack::unpack(&archive, &options.images)?;
    if options.json {
        let (pid, images) = (archive.manifest().header.root_pid, options.images.to_string_lossy());
        output::json(&json!({ "pid": pid, "images": images, "image_bytes": size }));
    } else {
        remark::note(format!("{} ({})", options.images.display(), quantity::bytes(size)));
    }
    Ok(ExitCode::SUCCESS)
}

//! `hetckpt pack`: a folder of images becomes an archive.

use std::process::ExitCode;

use serde_json::json;

use hetckpt_move::pack;
use hetckpt_report::{quantity, remark};

use crate::arguments::Pack;
use crate::output;

/// Packs the images.
pub fn run(options: &Pack) -> anyhow::Result<ExitCode> {
    let packed = pack::pack(
        &options.images,
        &options.new.output,
        options.new.force,
        options.new.verify,
    )?;
    if options.new.json {
        let archive = options.new.output.to_string_lossy();
        output::json(&json!({ "pid": packed.root_pid, "archive": archive, "archive_bytes": packed.size }));
    } else {
        remark::note(format!(
            "{} ({})",
            options.new.output.display(),
            quantity::bytes(packed.size)
        ));
    }
    Ok(ExitCode::SUCCESS)
}

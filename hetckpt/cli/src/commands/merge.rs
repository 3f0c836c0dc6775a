//! `hetckpt merge`: an archive and those that it borrows from become one.

use std::process::ExitCode;

use serde_json::json;

use hetckpt_move::merge;
use hetckpt_report::{quantity, remark};

use crate::arguments::Merge;
use crate::output;

/// Merges the archives.
pub fn run(options: &Merge) -> anyhow::Result<ExitCode> {
    let size = merge::merge(
        &options.archive,
        &options.new.output,
        options.new.force,
        options.new.verify,
    )?;
    if options.new.json {
        let archive = options.new.output.to_string_lossy();
        output::json(&json!({ "archive": archive, "archive_bytes": size }));
    } else {
        remark::note(format!("{} ({})", options.new.output.display(), quantity::bytes(size)));
    }
    Ok(ExitCode::SUCCESS)
}

//! `hetckpt inspect`: what an archive holds.

use std::process::ExitCode;

use serde::Serialize;

use hetckpt_archive::manifest::{CarriedFile, MemberEntry};
use hetckpt_archive::reader::Archive;
use hetckpt_archive::verify;
use hetckpt_move::summaries::summaries;
use hetckpt_report::archive_error;
use hetckpt_state::summary::Summary;

use crate::arguments::Inspect;
use crate::located::Located;
use crate::{manifest_text, output};

/// What `inspect --json` says. It borrows: a manifest may have millions of entries.
#[derive(Serialize)]
struct Inspected<'a> {
    archive: &'a str,
    format_version: u32,
    written_by: &'a str,
    created_unix: u64,
    criu_version: &'a str,
    root_pid: i32,
    command: &'a [String],
    processes: &'a [Summary],
    files: &'a [CarriedFile],
    members: &'a [MemberEntry],
}

/// Shows the manifest and the devices' state.
pub fn run(options: &Inspect) -> anyhow::Result<ExitCode> {
    let found = Located::find(&options.archive, &options.key)?;
    let archive = match options.verify {
        true => verify::verify(found.path()),
        false => Archive::open(found.path()),
    }
    .map_err(archive_error::failure)?;
    let manifest = archive.manifest();
    let summaries = summaries(manifest)?;
    if options.json {
        output::json(&Inspected {
            archive: &options.archive.to_string_lossy(),
            format_version: manifest.format_version,
            written_by: &manifest.written_by,
            created_unix: manifest.created_unix,
            criu_version: &manifest.criu_version,
            root_pid: manifest.root_pid,
            command: &manifest.command,
            processes: &summaries,
            files: &manifest.files,
            members: &manifest.members,
        });
    } else {
        manifest_text::print(manifest, &summaries);
    }
    Ok(ExitCode::SUCCESS)
}
